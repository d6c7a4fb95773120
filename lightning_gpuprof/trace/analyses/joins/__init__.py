"""Joins of a trace's tables, made once for all analyses: operators, threads, lines, modules, phases."""
