"""Where the host waited for the device in a window, and how long the device then waited for the host."""

import msgspec

from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.trace.source_line import SourceLine


class SyncSite(msgspec.Struct, kw_only=True, frozen=True):
    """One place that makes the host wait: an operation, called from one line, or from one part of the step.

    An occurrence is one outermost ``aten`` operator with all its waiting calls, or one waiting call outside of such
    operators.
    """

    operation: str
    """The outermost ``aten`` operator, e.g. ``aten::item``; the call, e.g. ``cudaStreamSynchronize``, where it is in
    none."""
    calls: tuple[str, ...]
    """The calls of the runtime in which the host waits."""
    copy: str | None
    """What it copies between host and device: ``Memcpy DtoH (Device -> Pageable)``; None if it copies nothing."""
    line: SourceLine | None
    """The innermost line of user code; None if the trace has no stacks, or none around it."""
    module: str | None
    """The innermost module."""
    phase: Phase | None
    annotation: str | None
    """The innermost range that the user or torch named, other than steps; where ``line`` is known only an action of
    Lightning."""
    inside: str | None
    """The outermost operator around the operation; None where ``line`` is known."""
    count: int
    """Occurrences."""
    count_per_step: float | None
    """Occurrences inside of steps over the number of steps; None without steps."""
    blocked_us: float
    """Time of the host inside of the waiting calls: not the cost, since the device worked meanwhile."""
    idle_after_us: float
    """Device idle time that follows: from when the device ran dry, at or after the begin of the wait, until its next
    work, which was launched only after the wait. Nothing where the device had other work left."""
    cost_us: float
    """The part of ``idle_after_us`` that the wait, and those before it in the step, caused. Without them the host would
    have launched the next work earlier by the time that it was blocked: of the idle times of a step, up to each of
    them, not more than that. The first of several waits is the one that blocks; what follows the others is idle all the
    same. The rest is what the host did between the wait and the next launch."""


class SyncPoints(msgspec.Struct, kw_only=True, frozen=True):
    """All waits of the host for the device in one window.

    Each idle time of a device counts for one wait at most, the last that ended before the launch of the work that ends
    it; so ``cost_us <= idle_after_us <= idle_us``. Waits for the whole device outside of operators before the first
    or after the last launch are the profiler's own, or have nothing after them: they are in ``left_out_calls`` only.
    """

    devices: int
    """Devices that worked in the window; without one nothing is known of waits."""
    sites: tuple[SyncSite, ...]
    """Costliest first. Their values sum to those below."""
    count: int
    blocked_us: float
    idle_after_us: float
    cost_us: float
    idle_us: float
    """Idle time of all devices between the first and the last work of each."""
    cost_ratio: float | None
    """``cost_us`` over ``idle_us``; None if no device was ever idle, or there is none."""
    steps: int
    count_per_step: float | None
    """Over occurrences inside of steps; None without steps, likewise below."""
    blocked_us_per_step: float | None
    idle_after_us_per_step: float | None
    cost_us_per_step: float | None
    left_out_calls: int
    synchronize_calls: int
    """All calls of the runtime whose name holds "synchronize", those left out too."""
    synchronize_us: float
    item_calls: int
    """All ``aten::item``, also of tensors on the CPU."""
    item_us: float
