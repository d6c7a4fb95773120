"""What was read out of a trace, as tables for people: one file per analysis."""
