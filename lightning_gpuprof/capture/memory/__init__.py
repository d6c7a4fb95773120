"""Samples and records of the memory of device and model."""
