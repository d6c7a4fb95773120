"""The results of analyses of one trace: plain data in microseconds, bytes and shares, one kind of answer per module."""
