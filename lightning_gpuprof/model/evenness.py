"""How even the steps of a run are: stretches that keep a level, and a drift from the first to the last."""

from __future__ import annotations

import msgspec

from lightning_gpuprof.model.phases import Phase


class Stretch(msgspec.Struct, kw_only=True, frozen=True):
    """Steady steps of a part of the run, and what else the machine did meanwhile."""

    from_batch: int
    to_batch: int
    count: int
    """Steady steps."""
    period_ms: float
    """Median."""
    interval_ms: tuple[float, float] | None
    """95 % interval of the median; None below 20 steps."""
    phases_ms: dict[Phase, float]
    """Median time of each phase that took any."""
    cpu_ms: dict[Phase, float] = {}
    """Median CPU time of the main thread by phase; empty if fewer than ten steps were sampled."""
    run_delay_ratio: float | None = None
    """Median share of the step time in which the main thread had no CPU although it was ready."""
    taken_cpus: float | None = None
    """CPUs of this run that others used: other processes, and other virtual machines (steal)."""
    cpu_busy_ratio: float | None = None
    """Use of the run's CPUs by whomever, 0 to 1."""
    from_s: float | None = None
    """When its first step began, since the start of the run."""
    into_epoch: int | None = None
    """Steps between the start of its first epoch and its own; None in the run's first epoch."""


class Drift(msgspec.Struct, kw_only=True, frozen=True):
    """The step time over the whole run, in fifths of the steady steps."""

    fifths: tuple[Stretch, ...]
    slope_ms_per_step: float
    """Theil and Sen's, of medians of blocks of steps, each compared with those of its own level: jumps are none."""
    p_value: float
    """Mann and Kendall's, two-sided, of the same medians."""


class Evenness(msgspec.Struct, kw_only=True, frozen=True):
    """Both views of the steady steps."""

    speed_levels: tuple[Stretch, ...] = ()
    """One for each of ``steps.speed_levels``, in order."""
    drift: Drift | None = None
    """None: too few steady steps (100)."""
    warmup_steps: int | None = None
    """Steps before the run was steady; None if it never became so."""
    warmup_excess_s: float | None = None
    """What they took more than as many steady ones, without waiting for data and without traced steps."""
