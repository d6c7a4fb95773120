"""GPUs through NVML: the driver's C library flows in through ``pynvml``, samples and facts in our units flow out."""
