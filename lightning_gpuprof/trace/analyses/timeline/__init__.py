"""One step of a window, moment by moment."""
