"""How much work operators do, and how near that is to what the device can do."""
