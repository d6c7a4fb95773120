"""Fits with a known truth: what is planted in them, how they are run, and whether the diagnosis names it."""
