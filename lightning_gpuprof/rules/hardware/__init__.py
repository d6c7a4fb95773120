"""Hardware: clocks, power, links, errors and other processes of the GPUs."""
