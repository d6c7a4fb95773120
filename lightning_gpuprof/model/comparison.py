"""Two reports side by side: what changed, whether it is more than noise, and predicted against achieved gain."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.conditions import Group, Role
from lightning_gpuprof.model.finding import Expected, Finding, Severity
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.trace import differences

COMPARISON_VERSION = 1

DEFAULT_METRICS = ("throughput", "wall")
"""Measures that decide the outcome unless others are asked for."""

DEFAULT_THRESHOLD_RATIO = 0.03
"""Smaller differences between two runs are noise (heuristic; the rules hold back gains below 3 % as well)."""

THIS_RUN = "this run"
"""Name of a later run that has just ended, which no command can take."""

Outcome = Literal["improved", "regressed", "within noise", "not comparable"]
"""``improved`` and ``regressed`` lie outside the noise band; ``not comparable`` always comes with a reason."""

FindingState = Literal["gone", "new", "kept", "not judged"]
"""``not judged``: the rule could not judge the other run, so its silence there means nothing."""


Better = Literal["lower", "higher"]

Source = Literal["journal", "interval", "spread"]
"""Where the uncertainty of a run's step times is from: a block bootstrap over the steady steps of its journal; the 95 %
intervals in its report, which such a bootstrap made; or, in reports without those, only the step time's spread."""


class Change(msgspec.Struct, kw_only=True, frozen=True):
    """One number before and after; None where it was not measured."""

    name: str
    unit: str
    before: float | None
    after: float | None
    difference: float | None
    """After minus before; None unless both were measured."""
    lower: float | None = None
    """Lower end of the interval of ``difference``; None where its uncertainty is not known."""
    upper: float | None = None
    measure: str = ""
    """Name for ``--metric``, as ``phase.forward``; empty for a number that is shown, not judged."""
    outcome: Outcome | None = None
    """None: shown, not judged."""
    why: str = ""
    """Reason for ``not comparable``, or what to keep in mind."""
    better: Better | None = None
    """Which way is an improvement; None for a number that is neither good nor bad by itself."""


class ConditionChange(msgspec.Struct, kw_only=True, frozen=True):
    """A condition that differs between the runs; None also stands for "not known"."""

    name: str
    before: Value
    after: Value
    group: Group = "run"
    """What it is about, see ``docs/conditions.md``."""
    role: Role = "label"
    """``fixed``: not comparable unless the group is allowed; ``tested``: may be the change under test; ``label``: means
    nothing."""


class CodeChange(msgspec.Struct, kw_only=True, frozen=True):
    """A source file of the user that differs between the runs, comments and hidden strings aside."""

    path: str
    added: int
    """Lines."""
    removed: int
    diff: tuple[str, ...]
    """The first lines of a unified diff, each with its sign."""
    cut: bool = False
    """There are more."""


class FindingChange(msgspec.Struct, kw_only=True, frozen=True):
    """A finding of either run and what became of it."""

    rule: str
    subject: str
    severity: Severity
    state: FindingState
    summary: str
    speedup_max: float | None = None
    """Bound that the earlier run predicted for its fix."""
    saved_ms_per_step: float | None = None
    """The same bound as time: at most so much less per step."""
    expected: Expected | None = None
    """What the earlier run expected of its fix."""
    achieved_ms_per_step: float | None = None
    """What the time that the finding explains really lost. None: not known, or not gone."""
    achieved_in: str = ""
    """The phase or part that was compared with the bound."""
    above_bound: bool = False
    """More was achieved than the bound, by more than chance."""


Standing = Literal["in the expected range", "more than expected", "less than expected"]
"""The range is the interval in which nine of ten such changes are expected to end."""


class Expectation(msgspec.Struct, kw_only=True, frozen=True):
    """What the earlier run expected of the one change that was made, and what came of it."""

    rule: str
    """Whose advice it was."""
    expected: Expected
    """As the earlier run's finding has it."""
    speedup: float
    """What came."""
    of: Literal["step", "run"]
    """Whether that is the speed-up of ``training`` or of ``wall``."""
    standing: Standing


class Judgement(msgspec.Struct, kw_only=True, frozen=True):
    """Achieved speed-up on one axis and what it is worth."""

    measure: str
    """What was compared, e.g. ``samples/s`` or ``median step time``."""
    outcome: Outcome
    why: str = ""
    """Reason for ``not comparable``, or what to keep in mind."""
    speedup: float | None = None
    """Above 1: the later run is faster. None if not comparable."""
    lower: float | None = None
    """Lower end of the 95 % confidence interval of ``speedup``; None where its noise is not known."""
    upper: float | None = None
    noise_ratio: float | None = None
    """Half width of the band within which a difference is noise, as a share of the earlier run."""
    from_levels: bool = False
    """``lower`` and ``upper`` are the speed-ups between the closest and the farthest speed levels, as too few steps are
    independent."""
    rough: bool = False
    """Few of the steps are independent; the interval is wide and uncertain."""


class WindowChanges(msgspec.Struct, kw_only=True, frozen=True):
    """What the trace windows of both runs hold, per traced step; rows by absolute change, largest first.

    A report holds the first rows of each table only; what lies beyond them is left out.
    """

    before_steps: int
    """Traced steps that the totals were divided by."""
    after_steps: int
    kernel_total: differences.Change | None = None
    """Durations of all kernels; None if a run has no device work."""
    kernel_classes: tuple[differences.Change, ...] = ()
    kernels: tuple[differences.Change, ...] = ()
    """Kernels of exactly the same name."""
    operators: tuple[differences.Change, ...] = ()
    """Host time of operators without the operators inside them; inflated by profiling."""
    left_out: int = 0
    """Names of either run whose time in the other is not known."""
    host_factor: float | None = None
    """How many times as long operators' host times are throughout. None: neither longer nor shorter."""
    caveats: tuple[str, ...] = ()
    """Why the two are not fully comparable, in sentences."""


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
    """Step time, samples/s and wall time."""
    phases: tuple[Change, ...]
    """Median time per step of each phase, ms."""
    parts: tuple[Change, ...]
    """Wall time per part, s."""
    findings: tuple[FindingChange, ...]
    predicted_speedup_max: float | None
    """Largest bound among the earlier run's findings."""
    conditions: tuple[ConditionChange, ...]
    code: tuple[CodeChange, ...] | None = None
    """Largest change first; None: no file of both runs is known."""
    notes: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    """Measures that decide the outcome."""
    threshold_ratio: float | None = None
    """Smallest change that counts."""
    cause: str = ""
    """The phases that explain most of a change of the step; empty if there is none."""
    sources: tuple[Source, Source] | None = None
    """Where the uncertainty of each run's step times is from; None: not comparable."""
    mean_phases: tuple[Change, ...] = ()
    """Mean time per steady step of each phase, ms, largest change first; sums to the change of the mean step. Empty
    without both journals."""
    memory: tuple[Change, ...] = ()
    """Peaks, bytes."""
    devices: tuple[Change, ...] = ()
    """Medians of what was sampled of GPUs that both runs have; shown, not judged."""
    host: tuple[Change, ...] = ()
    """Means of what was sampled of the host; shown, not judged."""
    windows: WindowChanges | None = None
    """None unless both runs have a trace window that was analysed."""
    predicted_step_speedup_max: float | None = None
    """Bound of the ordinary step by all findings of the earlier run together, beside ``training``."""
    predicted_run_speedup_max: float | None = None
    """Bound of the run by all of them together, beside ``wall``."""
    above_bound: bool = False
    """More was gained than these bounds, by more than chance."""
    expectation: Expectation | None = None
    """None: the earlier run expected nothing of the change."""
    next_finding: Finding | None = None
    """The most valuable finding of the later run; None if there is none."""
    way_out: str = ""
    """What makes runs comparable that are not, or shows a change that other programs hide; else empty."""

    @property
    def judged(self) -> tuple[Change, ...]:
        """The rows that have an outcome, in the order of the report."""
        rows = (*self.changes, *self.phases, *self.memory)
        return tuple(row for row in rows if row.outcome is not None)
