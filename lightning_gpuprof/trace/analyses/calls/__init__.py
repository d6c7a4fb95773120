"""Calls of the runtime, streams and the queue between host and device."""
