"""One kind of answer about a trace per module."""
