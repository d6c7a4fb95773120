"""Computes Metrics from journals and window facts, by pure functions."""
