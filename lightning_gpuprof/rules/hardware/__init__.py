"""The state of the GPUs: clocks, power, links, errors, other processes."""
