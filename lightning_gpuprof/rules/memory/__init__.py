"""Memory: what holds it on the device and on the host, and what is short of it."""
