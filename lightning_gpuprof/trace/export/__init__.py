"""What was read out of a trace, for the tools that people open: trace viewers, flame graphs."""
