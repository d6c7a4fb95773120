"""Which code the device worked for, and where the host waits for it."""
