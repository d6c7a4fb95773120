"""``report.json``: the report as data. Field names are public; ``SCHEMA_VERSION`` rises when one changes meaning."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from lightning_gpuprof.model.finding import Finding, NotEvaluated, Verdict
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import Part, Phase
from lightning_gpuprof.model.window import WindowFacts

SCHEMA_VERSION = 1


StepLabel = Literal[
    "profiled",
    "disturbed",
    "warm-up",
    "checkpoint",
    "validation-adjacent",
    "first-of-epoch",
    "last-of-epoch",
    "steady",
]
"""What a step counts as. Each step has one label, the first of these that holds; statistics rest on steady ones."""

STEP_LABELS: tuple[StepLabel, ...] = get_args(StepLabel)

LABEL_TERMS: dict[StepLabel, str] = {
    "profiled": "a trace window, or its warm-up, was open",
    "disturbed": "a window's trace was analysed on the same machine meanwhile",
    "warm-up": "before the run was steady",
    "checkpoint": "a checkpoint was written in the step or right before it",
    "validation-adjacent": "validation ran in the step or right before it",
    "first-of-epoch": "its fetch includes the start of the workers",
    "last-of-epoch": "its batch may be smaller, and the epoch's end is in it",
    "steady": "an ordinary step after warm-up: the statistics rest on these",
}
"""One sentence per label, as reports explain it."""


class Validity(msgspec.Struct, kw_only=True, frozen=True):
    """Whether the numbers can be relied on, and what to keep in mind."""

    ok: bool
    caveats: tuple[str, ...] = ()


class Wall(msgspec.Struct, kw_only=True, frozen=True):
    """Wall time of the stage in disjoint parts that sum to ``total_s``."""

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


class Regime(msgspec.Struct, kw_only=True, frozen=True):
    """A stretch of the run in which the period keeps one level; neighbours differ by more than a fifth."""

    from_batch: int
    to_batch: int
    """The last batch before the next regime; steps that are not steady lie between, too."""
    count: int
    """Steady steps in it."""
    period_ms: Distribution
    phases_ms: dict[Phase, float]
    """Median time of each phase that took any."""


class Steps(msgspec.Struct, kw_only=True, frozen=True):
    """Steps of the stage: how many, from which batch on they are steady, and the period of steady unprofiled ones."""

    count: int
    optimizer_steps: int
    steady_from: int | None
    """``total_batch_idx`` of the first steady step; None if the run never became steady."""
    steady_count: int
    """Steps that the statistics rest on."""
    period_ms: Distribution | None
    samples_per_s: float | None
    """None if the batch size is not known."""
    period_median_interval_ms: tuple[float, float] | None = None
    """Lower and upper end of the 95 % interval by a block bootstrap (Kuensch 1989); None below 20 steady steps."""
    period_mean_interval_ms: tuple[float, float] | None = None
    samples_per_s_interval: tuple[float, float] | None = None
    labels: dict[StepLabel, int] = {}
    """How many steps count as what; sums to ``count``."""
    regimes: tuple[Regime, ...] = ()
    """In order; one if the run kept its level, none if it never became steady."""


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
    """Median device span over the steady steps in which it was measured; None if it was not."""
    cpu_ms: float | None = None
    """Median main-thread CPU time over the steady steps in which it was sampled; None if it was not."""


class LedgerRow(msgspec.Struct, kw_only=True, frozen=True):
    """One named place that wall time went to. The rows are disjoint and sum to the wall time."""

    part: Part
    phase: Phase | None
    """What the time is in its own loop; None: not explained."""
    name: str
    """A callback, a module's class, or what Lightning did."""
    hook: str
    """Method of the callback or module; else empty."""
    total_s: float
    share: float
    """Of the wall time, 0 to 1."""
    count: int | None = None
    """In how many steps and stretches between steps it took time; None for what is not explained."""


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
    ledger: tuple[LedgerRow, ...] = ()
    """Where every second went, largest first; the last row is what nothing explains, also where it is 0."""
    series: dict[str, list[float]] = {}
    """Curves over steps for figures, thinned so that outliers stay: ``batch``, ``period_ms`` and ``<phase>_ms``."""
