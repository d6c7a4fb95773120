"""Whether a trace is worth believing: what is missing in it, what does not fit, and what it can show at all."""

from typing import Literal

import msgspec

SignalName = Literal[
    "device work",
    "runtime calls",
    "operators",
    "steps",
    "shapes",
    "stacks",
    "modules",
    "forward-backward links",
    "memory events",
    "occupancy",
    "device properties",
    "device waits",
    "rank",
    "collective metadata",
    "absolute time",
]


class Signal(msgspec.Struct, kw_only=True, frozen=True):
    """One kind of information that a trace can hold."""

    name: SignalName
    present: bool | None
    """None where the trace does not say, or has no use for it."""
    count: int | None
    """How many events have it; None where that is no number of events."""
    without: str
    """What follows from its absence; empty if it is there."""
    advice: str
    """How to record it; empty if it is there."""


class LaunchCalls(msgspec.Struct, kw_only=True, frozen=True):
    """Calls of one name that can start device work."""

    name: str
    count: int
    with_work: int
    """Calls whose device work is in the trace."""
    without_work: int


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """What a trace holds, and what is wrong with it."""

    events: int
    bytes_json: int
    categories: dict[str, int]
    """Spans of each category, as it is spelled in the file."""
    unreadable: int
    how: str
    """``stream`` and ``whole`` are sound; ``repaired`` and ``one by one`` mean a broken file."""
    resolution_ns: int | None
    """Largest of 1000, 100, 10 and 1 that divides all times; None without spans."""
    window_us: float
    """First start to last end of everything but the profiler's own work."""
    host_window_us: float | None
    """The same over calls, operators and ranges; None without any."""
    device_window_us: float | None
    steps: int
    profiler_overhead_us: float
    """What the profiler says of its own work, summed, e.g. flushing buffers."""
    calls: tuple[LaunchCalls, ...]
    """Calls that can start device work, most frequent first."""
    kernel_launches: int
    """Calls that launch kernels or graphs."""
    kernel_launches_without_work: int
    """Those whose kernel was not recorded; launches that are captured into a graph do not count."""
    device_work: int
    """Kernels, copies and memsets."""
    work_matched: int
    """Those whose launch is in the trace."""
    work_launched_before: int
    """Launched before the window, by their correlation id or their time."""
    work_launch_lost: int
    """All others without a launch, if the trace has calls at all."""
    starts_before_launch: int
    """Device work that starts before its launch: clock skew."""
    starts_before_launch_max_us: float
    overlaps_in_stream: int
    """Device work that begins before what is ahead of it in its stream has ended."""
    crossing_operators: int
    """Operators that outlast the operator of their thread in which they began."""
    empty_kernels: int
    signals: tuple[Signal, ...]
    problems: tuple[str, ...] = ()
    """What makes numbers of this trace doubtful, in sentences; empty if nothing was found."""
    notes: tuple[str, ...] = ()
