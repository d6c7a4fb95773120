"""How the streams of a trace window's devices worked: each for itself, beside each other, and how full their queues."""

import msgspec


class QueueDepth(msgspec.Struct, kw_only=True, frozen=True):
    """How much work was launched and not done, over the device's window.

    A work is in the queue from the begin of its launch to its end; if the launch is not in the trace, while it runs.
    CUDA holds the host in a launch while about a thousand works wait.
    """

    mean: float
    """Over time."""
    max: int
    empty_ratio: float
    """Share of the window in which no launched work was left."""
    bin_us: float
    """Length of the stretches that ``means`` and ``maxima`` are of."""
    means: tuple[float, ...]
    """In each stretch of ``bin_us``."""
    maxima: tuple[int, ...]


class StreamTimes(msgspec.Struct, kw_only=True, frozen=True):
    """One stream. Times are unions, also of works that run beside each other, as in a CUDA graph."""

    stream: int | None
    works: int
    """Kernels, copies and memsets; they sum to it."""
    kernels: int
    copies: int
    memsets: int
    unmatched: int
    """Works whose launch is not in the trace."""
    busy_us: float
    window_ratio: float | None
    """Of the device's window."""
    device_busy_ratio: float | None
    """Of the time in which the device was busy."""
    overlap_us: float
    """While another stream was busy."""
    overlap_ratio: float | None
    communication_us: float
    """Kernels of NCCL or RCCL."""
    communicates: bool
    """Whether at least half of ``busy_us`` is communication."""
    copy_us: float
    """Copies between or within memories, without memsets."""
    exposed_copy_us: float
    queue: QueueDepth


class Concurrency(msgspec.Struct, kw_only=True, frozen=True):
    """Time in which so many streams were busy; the four sum to the device's window."""

    none_us: float
    one_us: float
    two_us: float
    more_us: float
    """Three or more."""
    max: int
    mean: float | None
    """Over the time in which at least one was busy."""


class DeviceStreams(msgspec.Struct, kw_only=True, frozen=True):
    """One device and its streams."""

    device: str
    window_us: float
    """From the first start to the last end of the device's work."""
    busy_us: float
    works: int
    unmatched: int
    copy_us: float
    """Union of all copies, without memsets."""
    exposed_copy_us: float
    """Copies while no kernel ran."""
    concurrency: Concurrency
    queue: QueueDepth
    streams: tuple[StreamTimes, ...]
    """Longest busy time first."""


class Streams(msgspec.Struct, kw_only=True, frozen=True):
    """All devices that did some work in the window, in order of their numbers."""

    devices: tuple[DeviceStreams, ...] = ()
