"""GPUs through NVML: samples and facts in our units, read by ``pynvml`` from the driver's C library."""
