"""The ordinary step and its course: optimizer, compiler, collector, CPUs, outliers, drifts."""
