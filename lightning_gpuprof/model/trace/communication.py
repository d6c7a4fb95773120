"""Communication of a trace: how long it took, what of it computation covered, how fast each collective was."""

from typing import Literal

import msgspec

CollectiveKind = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
    "unknown",
]
"""``unknown``: neither the kernel (RCCL: ``ncclDevKernel_Generic``) nor a range around its launch is named after it."""

GroupSizeSource = Literal["collective", "world"]
"""Written beside the collective; or the ranks of the job, as the trace does not say which of them took part."""


class DeviceCommunication(msgspec.Struct, kw_only=True, frozen=True):
    """Communication of one device, microseconds. ``overlap_us + exposed_us = communication_us``."""

    device: str
    collectives: int
    window_us: float
    """First start to last end of the device's work."""
    communication_us: float
    """Union of NCCL's and RCCL's kernels, with the time in which they waited for other ranks."""
    computation_us: float
    """Union of all other kernels."""
    overlap_us: float
    exposed_us: float
    """Communication that does not overlap with computation."""
    exposed_ratio: float | None
    """Of the window."""
    copy_us: float
    """Union of copies and memsets."""
    copy_exposed_us: float


class StreamCommunication(msgspec.Struct, kw_only=True, frozen=True):
    """A stream on which communication ran, microseconds."""

    device: str
    stream: int
    collectives: int
    communication_us: float
    exposed_us: float
    computation_us: float
    """Union of the stream's other kernels; above 0 the two wait for each other."""


class CollectiveTimes(msgspec.Struct, kw_only=True, frozen=True):
    """Collectives that have something in common; None: they differ in it, or it is not known.

    Durations are those of kernels, so they hold the wait for later ranks, and bandwidths are lower bounds.
    """

    kind: CollectiveKind
    dtype: str | None
    """As Kineto writes it, in lower case."""
    group: str | None
    """Torch's name of the process group."""
    group_size: int | None
    group_size_source: GroupSizeSource | None
    message_bytes: int | None
    """Of one collective, counted as nccl-tests counts: all_gather the gathered, reduce_scatter the whole input."""
    count: int
    total_us: float
    """Sum of durations; of collectives that run side by side each counts."""
    mean_us: float
    min_us: float
    max_us: float
    share_ratio: float
    """Of all collectives of the trace."""
    exposed_us: float
    sized: int
    """Collectives whose size is known."""
    total_bytes: int | None
    algorithm_bandwidth_bytes_per_s: float | None
    bus_bandwidth_bytes_per_s: float | None
    """What links carry: the algorithm bandwidth times all_reduce ``2 (n - 1) / n``; all_gather, reduce_scatter,
    all_to_all, gather, scatter ``(n - 1) / n``; others 1, in a group of n (nccl-tests, ``doc/PERFORMANCE.md``)."""
    best_bus_bandwidth_bytes_per_s: float | None
    """Of the fastest collective: closest to what the links can do."""


class Communication(msgspec.Struct, kw_only=True, frozen=True):
    """Communication of all devices of a trace."""

    rank: int | None
    world_size: int | None
    backend: str | None
    devices: tuple[DeviceCommunication, ...]
    """All devices with work, those without communication too."""
    kinds: tuple[CollectiveTimes, ...]
    """One for each kind, longest total first."""
    sizes: tuple[CollectiveTimes, ...]
    """One for each kind, type, size and group, longest total first."""
    sizes_left_out: int
    streams: tuple[StreamCommunication, ...]
    notes: tuple[str, ...]
    """What is not known and why, in sentences."""
