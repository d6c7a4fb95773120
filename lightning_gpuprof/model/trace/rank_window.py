"""What the comparison of ranks needs of the trace of one: small enough to keep that of a thousand."""

from typing import Annotated

import msgspec

from lightning_gpuprof.model.trace.communication import CollectiveKind

BEFORE_WINDOW, NO_STEP = -2, -1
"""In :attr:`Collectives.step`: launched before the window; in no step."""


Nanoseconds = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class CollectiveClass(msgspec.Struct, kw_only=True, frozen=True):
    """What tells collectives of a rank apart, but their step and their order."""

    kind: CollectiveKind
    group: str | None
    message_bytes: int | None


class Collectives(msgspec.Struct, kw_only=True, frozen=True):
    """The collectives of a rank in order of their start; all lists have one number for each."""

    classes: tuple[CollectiveClass, ...] = ()
    of_class: list[int] = []
    """Index into :attr:`classes`."""
    step: list[int] = []
    """Index into :attr:`RankWindow.steps`, or one of the above."""
    start_ns: list[Nanoseconds] = []
    """Since :attr:`RankWindow.base_time_ns`; likewise below."""
    end_ns: list[Nanoseconds] = []
    computed_at_start_ns: list[Nanoseconds] = []
    """How long the device had computed by then, since the window began."""
    computed_at_end_ns: list[Nanoseconds] = []


class RankWindow(msgspec.Struct, kw_only=True, frozen=True):
    """One rank of one window."""

    rank: int | None
    world_size: int | None
    device: str | None
    """The one that communicates; None if the trace has no device work."""
    base_time_ns: Nanoseconds
    """Unix time, by the rank's own clock."""
    work_ns: tuple[int, int] | None
    """First start and last end of work on any device, since then; None without work."""
    window_ns: int
    """First start to last end of the device's work."""
    busy_ns: int
    computation_ns: int
    """Union of kernels that do not communicate."""
    communication_ns: int
    """Union of those that do."""
    steps: tuple[str, ...]
    class_us: dict[str, float]
    """Durations of kernels of each class, summed."""
    collectives: Collectives
    trace_bytes: int = 0
    """Size of the trace's file, where this was kept beside it."""
