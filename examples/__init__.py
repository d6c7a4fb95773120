"""Programs that show the profiler at work on real data; run them from the repository root."""
