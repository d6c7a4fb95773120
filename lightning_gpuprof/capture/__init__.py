"""Measuring inside the main process: cheap, fenced, and written to the journal; nothing is concluded here."""
