"""Measuring inside the training process: cheap, fenced, and written to the journal; nothing is concluded here."""
