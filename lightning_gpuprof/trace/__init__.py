"""Reads a Kineto trace into columns, and computes the facts of one window."""
