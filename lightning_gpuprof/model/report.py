"""``report.json``: the report as data. Field names are public; ``SCHEMA_VERSION`` rises when one changes meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, get_args

import msgspec

from lightning_gpuprof.model.compilation import CompileFacts
from lightning_gpuprof.model.curves import Curve, Marks, Ranks
from lightning_gpuprof.model.device import DeviceBusy, DeviceEnergy, DeviceFacts, ErrorCounter, ThrottleShare
from lightning_gpuprof.model.every_kernel import EveryKernel
from lightning_gpuprof.model.finding import Checks, CombinedGain, Finding, NotEvaluated, Verdict
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.input_pipeline import InputPipeline
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.line_times import FunctionTimes
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.method import Cost, Method, Outlook
from lightning_gpuprof.model.numbers import ONE_SIDED_5_PERCENT, possible
from lightning_gpuprof.model.phases import Part, Phase
from lightning_gpuprof.model.trace.ranks import RanksComparison
from lightning_gpuprof.model.trial import Trial
from lightning_gpuprof.model.window import WindowFacts

SCHEMA_VERSION = 2


StepLabel = Literal[
    "profiled",
    "disturbed",
    "compiled",
    "warm-up",
    "checkpoint",
    "validation-adjacent",
    "first-of-epoch",
    "last-of-epoch",
    "steady",
]
"""What a step counts as. Each step has one label, the first of these that holds; statistics use steady ones."""

STEP_LABELS: tuple[StepLabel, ...] = get_args(StepLabel)

LABEL_TERMS: dict[StepLabel, str] = {
    "profiled": "a trace window, or its warm-up, was open",
    "disturbed": "a window's trace was analysed on the same machine at that time",
    "compiled": "torch.compile compiled something in the step",
    "warm-up": "before the run was steady",
    "checkpoint": "a checkpoint was written in the step or right before it",
    "validation-adjacent": "validation ran in the step or right before it",
    "first-of-epoch": "its fetch includes the start of the iterator, and of workers",
    "last-of-epoch": "its batch may be smaller, and the epoch's end is in it",
    "steady": "an ordinary step after warm-up: the statistics use these",
}
"""One sentence per label, as reports explain it."""

OVERHEAD_TERMS: dict[str, str] = {
    "edge_ns": "what one timestamp costs, taken where a timed action begins or ends; measured at the start of the run",
    "edges_per_step": "timestamps that a step takes, at least",
    "timing_us_per_step": "the product of the two",
    "boundary_us_per_step": "what happens between two steps: they are handed over, windows and scalars are due",
    "share_of_step_ratio": "timing and boundary, of the median step time",
    "background_cpu_ratio": "CPU time of the threads that sample and write the journal, of the wall time",
    "windows_s": "what trace windows added: their beginning and end, and steps that were slower in and around them",
    "hooks_s": "the profiler's own work outside of the steps: at the start, between epochs and at the end",
    "conditions_s": "reading the conditions of the run; a part of the start",
    "report_s": "making the report, after the last measured moment",
}
"""One sentence per entry of :attr:`Report.overhead`, as reports explain it."""


OWN_NAME = "GpuProfiler"
"""Name of this profiler's callback in ledgers and journals."""

MIN_STEADY_STEPS = 20
"""Steady steps from which numbers are relied on. TraceML."""
NOISY_RATIO = 0.10
"""Half the interval of the median over the median: above it the median is not known well enough to rely on it."""


class Validity(msgspec.Struct, kw_only=True, frozen=True):
    """Whether the numbers can be relied on, and what to keep in mind."""

    ok: bool
    """False: do not draw conclusions from the rest."""
    caveats: tuple[str, ...] = ()
    """Sentences; empty if there is nothing to keep in mind."""
    conditional: bool = False
    """Other programs made the run wait for its CPUs, so a quiet machine may give other times and advice."""


class Wall(msgspec.Struct, kw_only=True, frozen=True):
    """Wall time of the stage in disjoint parts that sum to ``total_s``."""

    total_s: float
    """From the entry into the call to the last thing that it does."""
    parts: dict[str, float]
    """Keys as :data:`lightning_gpuprof.model.phases.PARTS`, seconds."""


class Distribution(msgspec.Struct, kw_only=True, frozen=True):
    """Statistics of a sample, in the unit that the field's name ends with."""

    mean: float
    std: float
    median: float
    p05: float
    """5 % of the values are below it."""
    p95: float
    """95 % of the values are below it."""
    p99: float
    """99 % of the values are below it."""
    min: float
    max: float

    def upper_mean(self, count: int) -> float:
        """95 % upper bound of the mean, by the normal approximation; ``count`` of the values are independent."""
        return self.mean + ONE_SIDED_5_PERCENT * self.std / math.sqrt(max(1, count))


class SpeedLevel(msgspec.Struct, kw_only=True, frozen=True):
    """A stretch of the run in which the step time keeps one level; neighbours differ by more than a fifth."""

    from_batch: int
    """``total_batch_idx`` of its first step."""
    to_batch: int
    """The last batch before the next level; steps that are not steady lie between, too."""
    count: int
    """Steady steps in it."""
    period_ms: Distribution
    phases_ms: dict[Phase, float]
    """Median time of each phase that took any."""


class Steps(msgspec.Struct, kw_only=True, frozen=True):
    """Steps of the stage: how many, from which batch on they are steady, and the step time of steady untraced ones."""

    count: int
    """All steps of the stage."""
    optimizer_steps: int
    """How often the optimizer was stepped; fewer where gradients are accumulated."""
    steady_from: int | None
    """``total_batch_idx`` of the first steady step; None if the run never became steady."""
    steady_count: int
    """Steps that the statistics use."""
    period_ms: Distribution | None
    """Of steady, unprofiled steps; None if there are none."""
    samples_per_s: float | None
    """None if the batch size is not known."""
    period_median_interval_ms: tuple[float, float] | None = None
    """95 % confidence interval by a block bootstrap (Kuensch 1989); None below 20 steady steps."""
    period_mean_interval_ms: tuple[float, float] | None = None
    """The same of the mean."""
    samples_per_s_interval: tuple[float, float] | None = None
    """95 % confidence interval, from that of the mean step time."""
    labels: dict[StepLabel, int] = {}
    """How many steps count as what; sums to ``count``."""
    speed_levels: tuple[SpeedLevel, ...] = ()
    """In order; one if the run kept its level, none if it never became steady."""
    drift_ms: tuple[float, float] | None = None
    """Mean step time of the slowest and fastest tenth, in order of time, where they are over 20 % of the mean apart and
    the speed moved so slowly that ``gpuprof compare`` asks for more steps; else None."""

    @property
    def half_interval_ratio(self) -> float | None:
        """Half of the 95 % interval of the median step time, of the median; None: not known."""
        ends, period = self.period_median_interval_ms, self.period_ms
        if ends is None or period is None or not period.median > 0:
            return None
        ratio = (ends[1] - ends[0]) / 2 / period.median
        return ratio if possible(ratio) else None

    @property
    def is_noisy(self) -> bool:
        """The median step time is not known well enough to rely on it."""
        ratio = self.half_interval_ratio
        return ratio is not None and ratio > NOISY_RATIO


class PhaseRow(msgspec.Struct, kw_only=True, frozen=True):
    """One phase over all steps. Shares of all phases sum to 1."""

    phase: Phase
    median_ms: float | None
    """Over steady unprofiled steps; None if there are none."""
    p95_ms: float | None
    """95 % of the same steps are below it."""
    total_s: float
    share: float
    """Of the time of all steps, 0 to 1."""
    device_ms: float | None = None
    """Median device span over the steady steps in which it was measured."""
    cpu_ms: float | None = None
    """Median main-thread CPU time over the steady steps in which it was sampled."""
    p05_ms: float | None = None
    """Over the same steps as the median."""
    mean_ms: float | None = None
    """Over the same steps: the phases sum to the mean step."""
    ordinary_ms: float | None = None
    """Of an ordinary step: the mean over the middle half of these steps by length, scaled so that all phases sum to
    the median step time."""


class LineRow(msgspec.Struct, kw_only=True, frozen=True):
    """A line of the user's code in which a phase of the steps was seen, with all that it calls in libraries."""

    place: str
    """``file:line function``."""
    phase: Phase
    total_s: float
    """Its part of the phase in all steps: the share of looks at the main thread that found it there."""
    share: float
    """The same, of the time of all steps."""
    looks: int
    """How often it was seen there. Looks after the first 20 s count twice, after two minutes four times: they are that
    much rarer."""
    python_ratio: float | None = None
    """Of the looks at which that is known, those in Python, or between calls shorter than 0.1 ms. None: not known."""
    native_ratio: float | None = None
    """Those in native code: torch's operators, and most waits for a GPU."""
    off_cpu_ratio: float | None = None
    """Those at which it slept, or waited for a file, a lock or another thread. The three sum to 1."""
    code: str = ""
    """The line as written, ``***`` for strings that may be secret; empty: not known."""


class StackRow(msgspec.Struct, kw_only=True, frozen=True):
    """Calls of the user's code in which a phase of the steps was seen; the rest of the phase has no frames."""

    phase: Phase
    frames: tuple[str, ...]
    """``file:line function``, the caller first."""
    total_s: float
    """As of a line."""


class LedgerRow(msgspec.Struct, kw_only=True, frozen=True):
    """One named place that wall time went to. The rows are disjoint and sum to the wall time."""

    part: Part
    """Of the wall time."""
    phase: Phase | None
    """What the time is in its own loop; None: not explained."""
    name: str
    """A callback, a module's class, or what Lightning did."""
    hook: str
    """Method of the callback or module; else empty."""
    total_s: float
    """Exclusive: no second is in two rows."""
    share: float
    """Of the wall time, 0 to 1."""
    count: int | None = None
    """In how many steps and stretches between steps it took time; None for what is not explained."""


class CallbackRow(msgspec.Struct, kw_only=True, frozen=True):
    """Exclusive time of one hook of one callback over the whole run."""

    name: str
    """Class of the callback."""
    hook: str
    """Its method."""
    total_s: float
    """Without what it calls of others that are named."""
    share: float
    """Of the wall time, 0 to 1."""


class Device(msgspec.Struct, kw_only=True, frozen=True):
    """Summary of the samples of one GPU; a value that was not measured is None."""

    name: str
    uuid: str
    """The driver's name for this one board or MIG slice."""
    samples: int
    """Taken during training."""
    values: dict[str, Distribution | None]
    """Names with units as in the journal's samples, e.g. ``utilization_ratio``, ``power_w``."""
    subject: str = ""
    """``gpu0``, ``gpu1``, in the CUDA order of the process."""
    facts: DeviceFacts = DeviceFacts()
    distinct_samples: int | None = None
    """Samples with a utilization that the driver had renewed."""
    longest_repeat_samples: int | None = None
    """Most samples in a row with the same utilization."""
    throttle: tuple[ThrottleShare, ...] | None = None
    """Largest first, without those that never were; None: not measured."""
    busy: DeviceBusy | None = None
    energy: DeviceEnergy | None = None
    errors: tuple[ErrorCounter, ...] = ()
    """Those that this GPU has."""
    xids: tuple[int, ...] = ()
    """Codes of the critical errors (Xid) that the driver reported during the run, in their order."""

    @property
    def title(self) -> str:
        """How findings name it: ``NVIDIA H200 (gpu0)``."""
        return f"{self.name} ({self.subject})" if self.subject and self.subject != self.name else self.name

    @property
    def place(self) -> str:
        """How an administrator finds it: by its PCI address, else by its UUID."""
        return self.facts.pci_bus_id or self.uuid or self.subject

    def median(self, name: str) -> float | None:
        """Median of a value; None if it was not measured, or is not a valid number."""
        found = self.values.get(name)
        return found.median if found is not None and possible(found.median) else None

    def largest(self, name: str) -> float | None:
        """Largest sample of a value; None likewise."""
        found = self.values.get(name)
        return found.max if found is not None and possible(found.max) else None

    @property
    def power_limit_ratio(self) -> float | None:
        """Power limit in force over the board's default; None: one of them is not known."""
        limit, default = self.values.get("power_limit_w"), self.facts.power_limit_default_w
        if limit is None or not default or not (possible(limit.median) and possible(default)):
            return None
        return limit.median / default


class Measured(msgspec.Struct, kw_only=True, frozen=True):
    """What was measured of a run: what its metrics, which rules read, and its report both have."""

    run: dict[str, Value]
    """Conditions of the run, flat, dotted names."""
    sources: dict[str, str] = {}
    """The user's source files by path, without comments and what may be secret; empty if the run was too short, or
    source lines were not sampled."""
    validity: Validity
    wall: Wall
    steps: Steps
    phases: tuple[PhaseRow, ...]
    callbacks: tuple[CallbackRow, ...]
    devices: tuple[Device, ...]
    host: HostUse
    memory: Memory
    windows: tuple[WindowFacts, ...]
    overhead: dict[str, float | None]
    """What the profiler itself cost; keys as :data:`OVERHEAD_TERMS`."""
    lines: tuple[LineRow, ...] = ()
    """Of the user's code, the costliest first; empty if the run was too short, or source lines were not sampled."""
    stacks: tuple[StackRow, ...] = ()
    """What called those lines: a flame graph of the step."""
    line_times: tuple[FunctionTimes, ...] = ()
    """Functions of ``lines=``, timed line by line."""
    kernels: EveryKernel | None = None
    """Of every step, where ``trace.every_kernel`` recorded them."""
    ledger: tuple[LedgerRow, ...] = ()
    """Where every second went, largest first; the last row is what nothing explains, also where it is 0."""
    compile: CompileFacts | None = None
    """What ``torch.compile`` did; None if nothing was compiled."""
    series: dict[str, list[float]] = {}
    """Curves over steps, thinned so that outliers stay: ``batch``, ``t_s`` (seconds since the stage was entered),
    ``period_ms`` and ``<phase>_ms``."""
    curves: tuple[Curve, ...] = ()
    """What was sampled beside the steps, over the run."""
    marks: tuple[Marks, ...] = ()
    """Events during the steps, by kind."""
    rank_ends: tuple[str, ...] = ()
    """How the other ranks ended, where not all ended alike."""
    rank_windows: tuple[str, ...] = ()
    """Trace windows of other ranks."""
    window_ranks: RanksComparison | None = None
    """The last window that most ranks have traced, rank by rank, by their collectives. None: fewer than two have traced
    one, or the report was made in the training process."""
    input: InputPipeline | None = None
    """The input pipeline from inside; None if nothing was measured there."""


class Report(Measured, kw_only=True, frozen=True, tag_field="schema_version", tag=SCHEMA_VERSION):
    """Everything that a reader of a run sees. Notebooks draw it as HTML."""

    drawn_by: ClassVar[Callable[[Report], str] | None] = None
    """Makes the HTML; set by :mod:`lightning_gpuprof.pipeline`, because data knows of no sink."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    """Most valuable first."""
    not_evaluated: tuple[NotEvaluated, ...]
    checks: Checks = Checks()
    """Rules that reported nothing."""
    combined: CombinedGain | None = None
    """What all findings gain together; None if none has a gain."""
    ranks: Ranks | None = None
    """The ranks side by side; None where there is one, or the journals of the others are not in the folder."""
    method: Method | None = None
    """The run by the levels of the method, with its checklist."""
    target: Outlook | None = None
    """Whether the target can be reached; None if none was given."""
    cost: Cost | None = None
    """None on anything but GPUs."""
    trial: Trial | None = None
    """What ``gpuprof try`` measured of its advice; None: nobody tried."""

    def _repr_html_(self) -> str | None:
        """HTML for the output of a notebook's cell; None: the notebook shows the text."""
        draw = type(self).drawn_by
        return None if draw is None else draw(self)
