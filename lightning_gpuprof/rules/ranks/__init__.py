"""Several ranks: communication, and ranks that wait for others."""
