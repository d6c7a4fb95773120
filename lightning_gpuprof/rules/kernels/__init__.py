"""What kernels do: tensor cores, sizes, layouts, fusion, precision."""
