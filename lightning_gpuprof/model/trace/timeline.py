"""What host and devices did during one step of a window, moment by moment, as plain data of bounded size."""

from typing import Literal

import msgspec

LaneKind = Literal["phases", "operators", "calls", "stream", "idle"]
"""What a lane shows: the main thread's phases; the outermost operators of a thread; its calls of the CUDA or HIP
runtime and driver; the work of a stream; why a device had none."""

PartKind = Literal["phase", "idle", "operator", "launch", "wait", "memory", "call", "compute", "communication", "copy"]
"""``launch``, ``wait``, ``memory`` and ``call`` are calls: those that launch work, those that wait for a device, those
that allocate or free, all others. ``compute``, ``communication`` and ``copy`` run on a device."""


class LaneSum(msgspec.Struct, kw_only=True, frozen=True):
    """All of one name in a lane."""

    name: str
    """Empty for all that have no row of their own."""
    kind: PartKind
    count: int
    time_us: float


class TimelineLane(msgspec.Struct, kw_only=True, frozen=True):
    """A row of a timeline; columns are equally long and in order of time.

    Events too short to be seen are joined; the part has the name of the longest one, and says how much of it they last.
    """

    kind: LaneKind
    device: str | None = None
    stream: int | None = None
    thread: str | None = None
    """``process/thread``."""
    main: bool = False
    """Whether it is the main thread."""
    names: tuple[str, ...] = ()
    """Phases, idle causes, operators, calls, kernels; an empty name stands for several."""
    kinds: tuple[PartKind, ...] = ()
    """Of each name."""
    start_us: tuple[float, ...] = ()
    """From the begin of the step."""
    length_us: tuple[float, ...] = ()
    time_us: tuple[float, ...] = ()
    """How long its events last within the part."""
    name: tuple[int, ...] = ()
    """Index into ``names``."""
    count: tuple[int, ...] = ()
    """Events that the part stands for."""
    sums: tuple[LaneSum, ...] = ()
    """Everything in the lane, longest first; sums to ``total_us``."""
    total_us: float = 0.0


class Timeline(msgspec.Struct, kw_only=True, frozen=True):
    """The step with the median step time; microseconds."""

    step: str
    """``ProfilerStep#7``; the whole window if that has no steps."""
    steps: int
    """Steps of the window; 0 if it has none."""
    duration_us: float
    lanes: tuple[TimelineLane, ...] = ()
    """From the top: phases, threads, then for each device its streams and why it was idle."""
    left_out: int = 0
    """Lanes that would be too many."""
