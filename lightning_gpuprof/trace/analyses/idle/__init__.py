"""Why the devices were idle."""
