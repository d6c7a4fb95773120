"""Ranks: communication, and ranks that wait for others."""
