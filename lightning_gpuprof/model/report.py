"""``report.json``: the report as data. Field names are public; ``SCHEMA_VERSION`` rises when one changes meaning."""

from __future__ import annotations

import msgspec

from lightning_gpuprof.model.finding import Finding, NotEvaluated, Verdict
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.window import WindowFacts

SCHEMA_VERSION = 1


class Validity(msgspec.Struct, kw_only=True, frozen=True):
    """Whether the numbers can be relied on, and what to keep in mind."""

    ok: bool
    caveats: tuple[str, ...] = ()


class Wall(msgspec.Struct, kw_only=True, frozen=True):
    """Wall time of ``fit`` in disjoint parts that sum to ``total_s``."""

    total_s: float
    parts: dict[str, float]
    """Keys as :data:`lightning_gpuprof.model.phases.PARTS`, seconds."""


class Distribution(msgspec.Struct, kw_only=True, frozen=True):
    """Statistics of a sample, in the unit that the field's name ends with."""

    mean: float
    std: float
    median: float
    p05: float
    p95: float
    p99: float
    min: float
    max: float


class Steps(msgspec.Struct, kw_only=True, frozen=True):
    """Training steps: how many, from which batch on the run is steady, and the period of steady unprofiled steps."""

    count: int
    optimizer_steps: int
    steady_from: int | None
    """``total_batch_idx`` of the first steady step; None if the run never became steady."""
    steady_count: int
    """Steps that the statistics rest on."""
    period_ms: Distribution | None
    samples_per_s: float | None
    """None if the batch size is not known."""


class PhaseRow(msgspec.Struct, kw_only=True, frozen=True):
    """One phase over all steps. Shares of all phases sum to 1."""

    phase: Phase
    median_ms: float | None
    """Over steady unprofiled steps; None if there are none."""
    p95_ms: float | None
    total_s: float
    """Over all steps."""
    share: float
    """Of the time of all steps, 0 to 1."""
    device_ms: float | None = None


class CallbackRow(msgspec.Struct, kw_only=True, frozen=True):
    """Exclusive time of one hook of one callback over the whole run."""

    name: str
    hook: str
    total_s: float
    share: float
    """Of the wall time, 0 to 1."""


class Device(msgspec.Struct, kw_only=True, frozen=True):
    """Summary of the samples of one GPU; a value that was not measured is None."""

    name: str
    uuid: str
    samples: int
    values: dict[str, Distribution | None]
    """Names with units as in the journal's samples, e.g. ``utilization_ratio``, ``power_w``."""


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that a reader of a run sees, in the order of the method."""

    schema_version: int
    run: dict[str, Value]
    """Conditions of the run, flat, dotted names."""
    validity: Validity
    wall: Wall
    steps: Steps
    phases: tuple[PhaseRow, ...]
    callbacks: tuple[CallbackRow, ...]
    """Largest first."""
    devices: tuple[Device, ...]
    host: dict[str, float | None]
    memory: dict[str, float | None]
    windows: tuple[WindowFacts, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]
    """Most valuable first."""
    not_evaluated: tuple[NotEvaluated, ...]
    overhead: dict[str, float | None]
    series: dict[str, list[float]] = {}
    """Curves over steps for figures, thinned so that outliers stay: ``batch``, ``period_ms`` and ``<phase>_ms``."""
