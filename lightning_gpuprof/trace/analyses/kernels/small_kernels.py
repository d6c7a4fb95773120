"""Short kernels: durations by bucket, cost of launching, idle gaps before them."""

import numpy as np

from lightning_gpuprof.model.trace.kernels import DurationBucket, SmallKernels
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int64, Mask, distinct, ratio, summed

SMALL_NS = 10_000
"""Kernels shorter than this are small: a launch costs the host 5 to 10 µs."""

_LONGEST_GAP_NS = 1_000_000
"""A longer gap is no launch: in recorded traces operators launch within 0.25 ms, and what took more than 1 ms was the
start of CUDA, an allocation of memory, or a host thread that did not run."""

_EDGES_NS = (0, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000)


def duration_buckets(duration_ns: Int64) -> tuple[DurationBucket, ...]:
    """Kernels by their duration; no buckets if there are no kernels."""
    if not len(duration_ns):
        return ()
    bucket = np.searchsorted(np.array(_EDGES_NS), duration_ns, "right") - 1
    counts = np.bincount(bucket, minlength=len(_EDGES_NS)).tolist()
    total_ns = summed(bucket, duration_ns, len(_EDGES_NS)).tolist()
    return tuple(
        DurationBucket(
            from_us=low / 1000,
            to_us=None if high is None else high / 1000,
            count=count,
            count_ratio=count / len(duration_ns),
            total_us=time / 1000,
            total_ratio=ratio(time, sum(total_ns)),
        )
        for low, high, count, time in zip(_EDGES_NS, (*_EDGES_NS[1:], None), counts, total_ns, strict=True)
    )


def small_kernels(linked: LinkedTrace, gap_ns: Int64) -> SmallKernels:
    """What small kernels and their launches cost.

    Args:
        linked: The trace.
        gap_ns: Of each kernel, see :func:`launch_gaps_ns`.

    Returns:
        Of all devices together; ratios are None without kernels.
    """
    kernel, runtime = linked.trace.kernel, linked.trace.runtime
    duration_ns = kernel.duration_ns
    small = duration_ns < SMALL_NS
    launched = small & linked.launched[: len(kernel)]
    call = linked.launch[: len(kernel)][launched]
    call_ns = runtime.duration_ns[call]
    all_of_call = np.bincount(linked.launch[linked.launched], minlength=len(runtime))
    calls_ns = int(runtime.duration_ns[distinct(call)].sum())
    count, launched_count = int(small.sum()), int(launched.sum())
    small_ns, all_ns = int(duration_ns[small].sum()), int(duration_ns.sum())
    return SmallKernels(
        limit_us=SMALL_NS / 1000,
        count=count,
        count_ratio=ratio(count, len(kernel)),
        total_us=small_ns / 1000,
        total_ratio=ratio(small_ns, all_ns),
        launched_count=launched_count,
        launch_call_us=calls_ns / 1000,
        launch_call_median_us=float(np.median(call_ns)) / 1000 if launched_count else None,
        longer_launch_count=int((call_ns > duration_ns[launched] * all_of_call[call]).sum()),
        launch_gap_us=int(gap_ns[small].sum()) / 1000,
    )


def launch_gaps_ns(linked: LinkedTrace) -> Int64:
    """Idle time of the device directly before each kernel while the host was launching it.

    From the start of the operator that launched it (of the call where there is no operator of a library), but not
    before the device had ended all earlier work; 0 for work whose launch is not in the trace, for the first of a
    device, and for gaps too long to be a launch. The gaps are disjoint.

    Returns:
        One value for each row of :attr:`Trace.kernel`.
    """
    work, count = linked.work, len(linked.trace.kernel)
    gap_ns = np.zeros(len(work), np.int64)
    begun_ns = _host_start_ns(linked)
    for rows in linked.device_rows.values():
        ordered = rows[np.argsort(work.start_ns[rows], kind="stable")]
        reached_ns = np.maximum.accumulate(work.end_ns[ordered])[:-1]
        later = ordered[1:]
        gap_ns[later] = np.maximum(work.start_ns[later] - np.maximum(reached_ns, begun_ns[later]), 0)
    gap_ns[~linked.launched | (gap_ns > _LONGEST_GAP_NS)] = 0
    return gap_ns[:count]


def _host_start_ns(linked: LinkedTrace) -> Int64:
    """When the host began with the operator that launched each work, or with the call."""
    started_ns = linked.launch_start_ns.copy()
    ops = linked.trace.cpu_op
    rows = np.flatnonzero(linked.operator >= 0)
    # ranges such as ProfilerStep# are operators in old traces, and begin long before
    of_library: Mask = linked.named(ops, lambda name: "::" in name)
    rows = rows[of_library[linked.operator[rows]]]
    started_ns[rows] = np.minimum(started_ns[rows], ops.start_ns[linked.operator[rows]])
    return started_ns
