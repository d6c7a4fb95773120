"""Between host and device: copies, and waits of the host for the device."""
