"""When the devices of a trace window were idle, and why: disjoint causes that sum to the idle time."""

from typing import Literal, get_args

import msgspec

from lightning_gpuprof.model.trace.attribution import SourceLine

IdleCause = Literal[
    "data",
    "checkpoint",
    "callbacks",
    "validation",
    "profiler",
    "allocator",
    "communication",
    "host_sync",
    "between_steps",
    "host_work",
    "launch",
    "launch_latency",
    "queued",
    "back_to_back",
    "unexplained",
]
"""Why a device was idle.

A gap ends when the device starts some work. If the call that launched it began after the gap did, the device had run
dry: from the gap's begin to that call the host was late, and every moment of this *host part* has the first cause of
the list, down to ``launch``, that holds of the launching thread or of the main thread. From the call to the end of the
gap it is ``launch_latency``; a call of more than 1 ms belongs to the host part. A gap whose work had been launched
before it began is the device's own: ``queued`` or ``back_to_back``. Without the launch in the trace, and nothing
behind it in its stream that was launched before the gap, the gap is ``unexplained``.

``host_sync`` is the wait itself while the device has nothing to do, and after it as much of the host part as the host
had waited since the launch before: had it not waited, the next launch would have come earlier by that.
"""

IDLE_CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)
"""In the order in which they claim a moment."""

HOST_WORK_FROM_US = 1000.0
"""A kernel's launch through torch takes 5 to 100 µs of host time, a few times that under the profiler: a host that
launched nothing for longer than this was at something else. A convention, not a limit of any hardware."""

BACK_TO_BACK_BELOW_US = 5.0
"""Kernels that wait in a stream follow each other in 1 to 4 µs on the GPUs that were looked at; a gap in the queue that
is shorter than this is the device's turn-around. A convention."""

IDLE_CAUSE_TERMS: dict[IdleCause, str] = {
    "data": "the host was fetching a batch from the DataLoader",
    "checkpoint": "the host was writing a checkpoint",
    "callbacks": "the host was in a hook of a callback, LightningModule or datamodule",
    "validation": "the host was in validation, test or prediction inside the window",
    "profiler": "the profiler itself kept the host busy, or flushed its buffers",
    "allocator": "the host was in a call that allocates or frees memory, such as cudaMalloc or cudaFree",
    "communication": "the host was in a call that prepares or waits for a collective; a device that waits inside a "
    "communication kernel counts as busy",
    "host_sync": "the host had waited for the device, so its next launch came late by as much as it had waited",
    "between_steps": "the host was outside every ProfilerStep range",
    "host_work": "the host launched nothing for more than 1 ms: it ran Python or other code on the CPU, or one call "
    "took that long, as the first launch of a kernel does",
    "launch": "the host launches too slowly: the device had finished before the next launch",
    "launch_latency": "from the start of the launch call to the start of its kernel, on a device with nothing queued",
    "queued": "the next kernel had been launched in time, but did not start for 5 µs or more: it waited for "
    "another stream, a copy or an event",
    "back_to_back": "less than 5 µs between two kernels that were both launched in time",
    "unexplained": "the launch of the next kernel was not recorded",
}
"""One sentence per cause, as reports explain it."""


class IdleShare(msgspec.Struct, kw_only=True, frozen=True):
    """Idle time of one cause on one device."""

    cause: IdleCause
    idle_us: float
    idle_ratio: float
    """Of the device's idle time; the causes sum to 1."""
    window_ratio: float
    """Of the device's window; the causes and the busy time sum to 1."""
    gaps: int


class HostTime(msgspec.Struct, kw_only=True, frozen=True):
    """Where the host was during ``launch`` and ``host_work``."""

    calls_us: float
    """In calls of the CUDA or HIP runtime or driver."""
    operators_us: float | None
    """In operators of torch, outside of such calls; None if the trace has no operators."""
    elsewhere_us: float
    """In neither: Python, or what nothing was recorded of."""


class StepIdle(msgspec.Struct, kw_only=True, frozen=True):
    """One device during one step of the host; it may still run work of the step before.

    ``busy_us + idle_us = window_us``, and the causes sum to ``idle_us``.
    """

    step: str
    """``ProfilerStep#7``."""
    start_us: float
    """From the start of the device's window; negative if the step begins before it."""
    step_us: float
    """On the host; inflated by tracing."""
    window_us: float
    """Common part of the step and the device's window."""
    busy_us: float
    idle_us: float
    busy_ratio: float | None
    causes_us: dict[IdleCause, float]


class IdleGap(msgspec.Struct, kw_only=True, frozen=True):
    """A stretch in which no stream of the device was busy."""

    start_us: float
    """From the start of the device's window."""
    duration_us: float
    cause: IdleCause
    """The one with most time of the gap."""
    causes_us: dict[IdleCause, float]
    """They sum to ``duration_us``."""
    step: str | None
    """The step at the middle of the gap's host part, else when the next work was launched."""
    phase: str | None
    """What the launching thread, else the main thread, was at in that moment."""
    host: str | None
    """The innermost operator, range, call or Python function in which the launching thread, else the main thread, spent
    at least half of the host part."""
    host_ratio: float | None
    """Share of the host part in it, with what is nested."""
    operator: str | None
    """The innermost operator that launched the work after the gap."""
    before: str
    after: str
    launch_thread: str | None
    """``process/thread``."""
    line: SourceLine | None
    """The innermost line of user code in that moment."""


CHUNKS = 30
LONG_GAP_US = 500_000.0
"""Both as in the expert systems rules of nsys (gpu_time_util, gpu_gaps)."""


class DeviceIdle(msgspec.Struct, kw_only=True, frozen=True):
    """One device. ``busy_us + idle_us = window_us``; the causes sum to ``idle_us``."""

    device: str
    window_us: float
    """From the first start to the last end of the device's work."""
    busy_us: float
    """Union of kernels, copies and memsets over all streams."""
    idle_us: float
    idle_ratio: float | None
    """Of the window."""
    gaps: int
    causes: tuple[IdleShare, ...]
    """Longest first."""
    host: HostTime
    steps: tuple[StepIdle, ...]
    """In order of time, those in the device's window."""
    longest: tuple[IdleGap, ...]
    """Longest first."""
    chunks: tuple[float, ...] = ()
    """Busy share of each of :data:`CHUNKS` equal parts of the window, in order of time."""
    long_gaps: int = 0
    """Those of :data:`LONG_GAP_US` and more."""
    long_gaps_us: float = 0.0


class Idle(msgspec.Struct, kw_only=True, frozen=True):
    """All devices that did some work in the window."""

    devices: tuple[DeviceIdle, ...] = ()
    """In order of their numbers."""
    unseen: tuple[IdleCause, ...] = ()
    """Causes that this trace cannot show; their time is in others, mostly ``host_work`` and ``launch``."""
