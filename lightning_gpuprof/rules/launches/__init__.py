"""Launches: a host that launches too late, Python between launches, long gaps."""
