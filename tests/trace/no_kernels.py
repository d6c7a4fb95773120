"""The kernels of a window that has none: what tests change a part of."""

from lightning_gpuprof.model.trace.kernels import KernelFacts, KernelFillFacts, SmallKernels

NO_FILL = KernelFillFacts(
    est_sm_efficiency_ratio=None,
    est_sm_efficiency_known_ratio=None,
    est_sm_efficiency_of_window_ratio=None,
    est_occupancy_ratio=None,
    est_occupancy_known_ratio=None,
    est_occupancy_computed_ratio=None,
    waves_known_ratio=None,
    tail_us=None,
)
NONE_SMALL = SmallKernels(
    limit_us=10.0,
    count=0,
    count_ratio=None,
    total_us=0.0,
    total_ratio=None,
    launched_count=0,
    launch_call_us=0.0,
    launch_call_median_us=None,
    longer_launch_count=0,
    launch_gap_us=0.0,
)
EMPTY = KernelFacts(
    count=0,
    total_us=0.0,
    device_window_us=None,
    classes=(),
    dtypes=(),
    tensor_cores=None,
    fill=NO_FILL,
    kernels=(),
    activity=(),
    activity_rows=0,
    durations=(),
    small=NONE_SMALL,
    savings=(),
    no_savings=(),
)
