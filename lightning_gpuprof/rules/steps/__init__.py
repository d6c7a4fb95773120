"""Steps: optimizer, compiler, garbage collector, CPUs, outliers, drifts."""
