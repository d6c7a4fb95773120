"""Where the host waited for the device in a window, and how long the device then waited for the host."""

import msgspec

from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.trace.attribution import SourceLine


class SyncSite(msgspec.Struct, kw_only=True, frozen=True):
    """One operation that makes the host wait, called from one line or part of the step.

    An occurrence is an outermost ``aten`` operator with its waiting calls, or a waiting call outside of one.
    """

    operation: str
    """The outermost ``aten`` operator, e.g. ``aten::item``; the call, e.g. ``cudaStreamSynchronize``, where it is in
    none."""
    calls: tuple[str, ...]
    copy: str | None
    """``Memcpy DtoH (Device -> Pageable)``; None if it copies nothing."""
    line: SourceLine | None
    """The innermost line of user code; None without stacks."""
    module: str | None
    phase: Phase | None
    annotation: str | None
    """The innermost named range other than steps; where ``line`` is known only an action of Lightning."""
    inside: str | None
    """The outermost operator around it; None where ``line`` is known."""
    count: int
    count_per_step: float | None
    blocked_us: float
    """Host time inside the waiting calls, not the cost: the device was busy."""
    idle_after_us: float
    """Device idle time that follows, until the next work, if that was launched after the wait."""
    cost_us: float
    """The part of ``idle_after_us`` that the waits of the step caused: at most the time for which they had blocked the
    host. Of several waits in a row the first one costs. The rest is host work between the wait and the next launch."""


class SyncPoints(msgspec.Struct, kw_only=True, frozen=True):
    """All waits of the host for the device in one window.

    Each idle time counts for one wait at most, the last before the launch that ends it: ``cost_us <= idle_after_us <=
    idle_us``. Waits for the whole device before the first or after the last launch are in ``left_out_calls`` only.
    """

    devices: int
    """Devices that worked; without one nothing is known of waits."""
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
    """Over occurrences inside steps; None without steps."""
    blocked_us_per_step: float | None
    idle_after_us_per_step: float | None
    cost_us_per_step: float | None
    left_out_calls: int
    synchronize_calls: int
    """Runtime calls whose name holds "synchronize", those left out too."""
    synchronize_us: float
    item_calls: int
    """All ``aten::item``, also of tensors on the CPU."""
    item_us: float
    timed_convolutions: int = 0
    """For which cuDNN timed algorithms."""
    timed_convolutions_us: float = 0.0
    steps_with_timed_convolutions: int = 0
