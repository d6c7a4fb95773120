"""The plain facts of one trace, under short names and with definitions that a slow program can check key by key."""

import msgspec


class DeviceFacts(msgspec.Struct, kw_only=True, frozen=True):
    """One device, microseconds. Device work is kernels, copies and memsets; intervals hold their start, not their end.

    The window goes from the first start to the last end of the device's work; ``busy_us + idle_us = window_us``.
    """

    n: int
    """Device work of all kinds."""
    streams: int
    window_us: float
    busy_us: float
    """Length of the union of all work."""
    idle_us: float
    idle_pct: float
    """Of the window, 0 to 100."""
    kernel_union_us: float
    n_gaps: int
    """Between the intervals of the union."""
    max_gap_us: float
    comp_us: float
    """Union of kernels that do not communicate."""
    comm_us: float
    """Union of kernels with ``nccl`` or ``rccl`` in their name."""
    mem_us: float
    """Union of copies and memsets."""
    comm_comp_overlap_us: float
    """While both communicate and compute."""
    comm_exposed_us: float
    """``comm_us - comm_comp_overlap_us``."""


class KinetoFacts(msgspec.Struct, kw_only=True, frozen=True):
    """One trace; all times in microseconds. None and empty where the trace has nothing of the kind."""

    sha256: str
    """Of the file as it is, 64 hexadecimal digits."""
    bytes_file: int
    bytes_json: int
    """Decompressed."""
    encoding: str
    n_events: int
    n_X: int  # noqa: N815 - as the format calls them
    """Complete events: those with a duration."""
    meta: dict[str, object]
    """Versions and settings under Kineto's names."""
    distributed: dict[str, object]
    gpus: list[str]
    categories: dict[str, int]
    """Complete events of each category as it is spelled, most first."""
    n_kernel: int
    n_memcpy: int
    n_memset: int
    devices: dict[str, DeviceFacts]
    kernel_sum_us: float
    """Sum of the durations of all kernels."""
    n_kernel_names: int
    top5_kernels: list[tuple[str, int, float]]
    """Name (at most 160 characters), count, sum of durations."""
    kernel_dur_median_us: float | None
    kernels_under_10us: int
    memcpy: dict[str, tuple[int, int, float]]
    """Count, bytes, sum of durations of each kind of copy."""
    api: dict[str, tuple[int, float]]
    """Count and sum of durations of the 15 runtime and driver calls with the largest sums."""
    n_launch: dict[str, int]
    """Calls with ``launch`` in their name."""
    sync_us: float
    """Sum of the durations of calls with ``synchronize`` in their name."""
    n_sync: int
    idle_pct_matched_only: float | None
    """Idle share over all devices together if work without a launch in the trace is dropped, as some tools do."""
    idle_pct_kernels_only: float | None
    """The same if only kernels count as busy, as other tools do."""
    gpu_matched: int
    """Device work whose launch is in the trace, by correlation id."""
    gpu_unmatched: int
    launch_to_start_median_us: float | None
    """From the start of the call to the start of the work."""
    launch_to_start_max_us: float | None
    negative_launch_latency: int
    n_item: int
    """``aten::item`` operators."""
    n_local_scalar_dense: int
    item_us: float
    n_dataloader_next: int
    """Ranges of ``DataLoader…__next__``."""
    dataloader_us: float
    steps: list[tuple[str, float]]
    """``ProfilerStep…`` ranges in order of time: name, duration."""
    n_call_stack_args: int
    n_python_function: int
    n_with_shapes: int
    """Complete events with ``Input Dims``."""
    collectives_from_metadata: dict[str, tuple[int, float]]
    """Count and sum of durations of device work with a ``Collective name``."""
    user_annotations: list[tuple[str, int]]
    """The six most frequent."""
