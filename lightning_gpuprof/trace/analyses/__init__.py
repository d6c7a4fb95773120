"""From a trace to one kind of answer per module."""
