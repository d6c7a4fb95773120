"""The host that launches too late: launches, Python between them, long gaps."""
