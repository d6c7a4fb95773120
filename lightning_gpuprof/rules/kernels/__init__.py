"""Kernels: tensor cores, sizes, layouts, fusion, precision."""
