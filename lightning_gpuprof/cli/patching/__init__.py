"""Turns advice into a unified diff of the user's files."""
