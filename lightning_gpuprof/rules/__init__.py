"""Finds problems in Metrics; one rule, one file, found by its presence in this folder."""
