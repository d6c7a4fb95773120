"""Ranks: communication, ranks that wait for others, and what their GPUs hold."""
