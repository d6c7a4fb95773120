"""Figures of a trace window, as plain data that page and tab draw."""
