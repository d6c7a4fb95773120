"""Transfers: copies between host and device, and waits of the host for the device."""
