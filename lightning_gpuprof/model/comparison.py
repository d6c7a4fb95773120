"""Two reports side by side: what changed, whether it is more than noise, and predicted against achieved gain."""

from __future__ import annotations

from typing import Literal

import msgspec

from lightning_gpuprof.model.finding import Severity
from lightning_gpuprof.model.journal import Value

COMPARISON_VERSION = 1

Outcome = Literal["improved", "regressed", "within noise", "not comparable"]
"""``improved`` and ``regressed`` lie outside the noise band; ``not comparable`` always comes with a reason."""

FindingState = Literal["gone", "new", "kept", "not judged"]
"""``not judged``: the rule could not judge the other run, so its silence there means nothing."""


class Change(msgspec.Struct, kw_only=True, frozen=True):
    """One number before and after; None where it was not measured."""

    name: str
    unit: str
    before: float | None
    after: float | None
    difference: float | None
    """After minus before; None unless both were measured."""


class ConditionChange(msgspec.Struct, kw_only=True, frozen=True):
    """A condition that differs between the runs; None also stands for "not known"."""

    name: str
    before: Value
    after: Value


class FindingChange(msgspec.Struct, kw_only=True, frozen=True):
    """A finding of either run and what became of it."""

    rule: str
    subject: str
    severity: Severity
    state: FindingState
    summary: str
    speedup_max: float | None = None
    """Bound that the earlier run predicted for its cure; None for a finding without a gain or one that is new."""


class Judgement(msgspec.Struct, kw_only=True, frozen=True):
    """Achieved speed-up on one axis and what it is worth."""

    measure: str
    """What was compared, e.g. ``samples/s`` or ``median period``."""
    outcome: Outcome
    why: str = ""
    """Reason for ``not comparable``, or what to keep in mind."""
    speedup: float | None = None
    """Above 1: the later run is faster. None if not comparable."""
    lower: float | None = None
    """Lower end of the 95 % interval of ``speedup``; None where its noise is not known."""
    upper: float | None = None
    noise_ratio: float | None = None
    """Half width of the band within which a difference is noise, as a share of the earlier run."""


class Comparison(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that ``gpuprof compare`` says."""

    schema_version: int
    before: str
    after: str
    outcome: Outcome
    summary: str
    training: Judgement
    """Throughput of steady training steps."""
    wall: Judgement
    """The whole ``fit``, with what happens outside the steps."""
    changes: tuple[Change, ...]
    """Period, samples/s and wall time."""
    phases: tuple[Change, ...]
    """Median time per step of each phase, ms."""
    parts: tuple[Change, ...]
    """Wall time per part, s."""
    findings: tuple[FindingChange, ...]
    predicted_speedup_max: float | None
    """Largest bound among the earlier run's findings; None if none had a gain. Bounds are not added or multiplied."""
    conditions: tuple[ConditionChange, ...]
    notes: tuple[str, ...] = ()
