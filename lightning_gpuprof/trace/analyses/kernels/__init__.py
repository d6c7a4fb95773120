"""What kernels are, and how far they fill their device."""
