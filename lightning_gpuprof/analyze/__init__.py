"""From journals and window facts to Metrics, by pure functions."""
