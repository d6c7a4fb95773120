"""Collectives of one rank and of several."""
