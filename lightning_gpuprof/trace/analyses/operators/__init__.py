"""Operators of torch, by name, type and shape of inputs; steps by phase."""
