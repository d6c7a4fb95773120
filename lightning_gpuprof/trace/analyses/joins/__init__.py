"""From tables of a trace to what joins them, once for all analyses: operators, threads, lines, modules, phases."""
