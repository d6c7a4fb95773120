"""What a rule says: a finding with its evidence and the most that its fix can gain."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.phases import Phase

Severity = Literal["critical", "warning", "info"]
REMAINING = "Remaining cost:"
"""Begins the end of an advice that says what the change leaves."""
SHARD_FIRST = "Shard the iterable dataset first"
"""Begins the sentence of an advice without which the run would train on each sample several times."""
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")

VerdictKind = Literal[
    "input-bound",
    "transfer-bound",
    "sync-bound",
    "host-bound",
    "comm-bound",
    "compute-bound",
    "memory-bound",
    "latency-bound",
    "loop-bound",
    "outside-steps",
    "hardware-limited",
    "mixed",
    "not-enough-data",
]


class Evidence(msgspec.Struct, kw_only=True, frozen=True):
    """A measured number and the limit that it is compared with."""

    name: str
    value: float | str
    """In ``unit``; a ``ratio`` is 0 to 1."""
    unit: str = ""
    """Empty where there is none, or the name says it."""
    limit: float | None = None
    """In the same unit; None: only shown, not compared with anything."""
    source: str = ""
    """Where the limit comes from."""


class Gain(msgspec.Struct, kw_only=True, frozen=True):
    """Upper bound of what the fix can gain (Amdahl): with R of T recoverable the speed-up is at most T/(T-R)."""

    saved_ms_per_step: float
    """Of the step time; what is outside the steps is spread over all steps."""
    speedup_max: float
    """T / (T - R), for R of T saved."""
    saved_lower_ms_per_step: float | None = None
    """The same from the lower bounds of the measured shares; findings are ranked by it. None: ``saved_ms_per_step``."""

    @property
    def lower_ms(self) -> float:
        """The lower bound, which is the gain itself where there is none."""
        return self.saved_ms_per_step if self.saved_lower_ms_per_step is None else self.saved_lower_ms_per_step

    @property
    def whole_ms(self) -> float:
        """T of a gain whose speed-up is above 1, from s = T / (T - R)."""
        return self.saved_ms_per_step * self.speedup_max / (self.speedup_max - 1)

    def within(self, room_ms: float) -> "Gain | None":
        """What of it fits into a room. None if that is not worthwhile."""
        if self.saved_ms_per_step <= room_ms:
            return self
        if room_ms <= 0 or self.speedup_max <= 1 or not worthwhile(room_ms, self.whole_ms):
            return None
        lower_ms = self.saved_lower_ms_per_step
        return Gain(
            saved_ms_per_step=room_ms,
            speedup_max=speedup(room_ms, self.whole_ms),
            saved_lower_ms_per_step=None if lower_ms is None else min(lower_ms, room_ms),
        )

    def beyond(self, counted_ms: float) -> "Gain | None":
        """What it is above another one of the same time. None if that is not worthwhile."""
        above_ms = self.saved_ms_per_step - counted_ms
        if above_ms <= 0 or self.speedup_max <= 1 or not worthwhile(above_ms, self.whole_ms):
            return None
        return Gain(
            saved_ms_per_step=above_ms,
            speedup_max=speedup(above_ms, self.whole_ms),
            saved_lower_ms_per_step=max(0.0, self.lower_ms - counted_ms),
        )


class Expected(msgspec.Struct, kw_only=True, frozen=True):
    """The step time that a change is expected to leave, where :class:`Gain` says what it leaves at best."""

    whole_ms: float
    """T, the time now."""
    step_ms: float
    """After the change; what is outside the steps is spread over all steps."""
    lower_ms: float
    """Of the interval in which it is in nine of ten runs: its fast end."""
    upper_ms: float
    """Its slow end."""

    @property
    def speedup(self) -> float:
        """T over the time after the change."""
        return _times(self.whole_ms, self.step_ms)

    @property
    def speedup_range(self) -> tuple[float, float]:
        """The same at both ends of the interval, the lower one first."""
        return _times(self.whole_ms, self.upper_ms), _times(self.whole_ms, self.lower_ms)


def _times(whole_ms: float, left_ms: float) -> float:
    """As finite as a bound is, whatever a damaged report says."""
    return whole_ms / max(left_ms, 0.01 * whole_ms) if whole_ms > 0 else 1.0


class CombinedGain(msgspec.Struct, kw_only=True, frozen=True):
    """Upper bound of what all fixes gain together. Gains of findings are disjoint, so they add up.

    Of the ordinary step and of the run: what is saved in the step is saved in the run, too, and what lies beside the
    ordinary steps (validation, checkpoints, gaps between epochs, outlying steps) only there.
    """

    period_ms: float
    """Median time of a steady step."""
    saved_ms_per_step: float
    """Of the step time."""
    step_speedup_max: float
    """Of the ordinary step: T / (T - R)."""
    run_ms_per_step: float
    """Wall time without setup and teardown over all steps; at least the step time."""
    saved_run_ms_per_step: float
    """Of that; at least ``saved_ms_per_step``."""
    run_speedup_max: float
    """Of the run."""
    saved_lower_ms_per_step: float = 0.0
    """As ``saved_ms_per_step``, from the lower bounds of the gains."""
    saved_run_lower_ms_per_step: float = 0.0
    """As ``saved_run_ms_per_step``, from the lower bounds of the gains."""


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """A diagnosis of one cause, with its numbers and what to change."""

    rule: str
    """Its id, as ``gpuprof explain`` takes it."""
    severity: Severity
    subject: str
    """Who or what it is about: a callback class, a loader, a source line."""
    summary: str
    """What is wrong, with the numbers of this run."""
    advice: str
    """The action first, with this run's values; where it :attr:`leaves` something, it ends with that."""
    evidence: tuple[Evidence, ...]
    """What it was judged by."""
    gain: Gain | None = None
    """The most that its fix can gain; None: not known, or carried by another finding."""
    confidence: float = 1.0
    """0 to 1."""
    explains: Claim | None = None
    """The time that the gain is taken from; findings on the same time are alternatives. None: stands for itself."""
    title: str = ""
    """The fault in one short line without numbers."""
    change: Change | None = None
    """The advice as data, where it is a setting or a line of code."""
    phase: Phase | None = None
    """Where the time lies that is gained, if it is in one phase and ``explains`` does not say so: what slow steps are
    slow in."""
    expected: Expected | None = None
    """What the change is expected to bring by itself; None: not predicted."""
    leaves: str = ""
    """What remains of the fault after the change, as the end of "Remaining cost:"; empty: nothing is known to."""

    @property
    def most_saved_ms(self) -> float:
        """What a step gets shorter by at most: the gain, or more where the rest of the step speeds up as well."""
        bound_ms = 0.0 if self.gain is None else self.gain.saved_ms_per_step
        return bound_ms if self.expected is None else max(bound_ms, self.expected.whole_ms - self.expected.lower_ms)

    @property
    def most_speedup(self) -> float | None:
        """The upper bound that people are shown, never below what is expected; None: no gain is known."""
        if self.gain is None or self.expected is None:
            return None if self.gain is None else self.gain.speedup_max
        return max(self.gain.speedup_max, self.expected.speedup_range[1])

    @property
    def claim(self) -> Claim:
        """What it explains; a part of the step of its own where it does not say."""
        return self.explains or Claim(resource="step", name=f"rule {self.rule}")


class NotEvaluated(msgspec.Struct, kw_only=True, frozen=True):
    """A rule that could not judge, and why; never the same as "nothing found"."""

    rule: str
    why: str
    """The signal that was missing."""


class Checks(msgspec.Struct, kw_only=True, frozen=True):
    """The rules that reported nothing, and why; those that lacked a signal are in ``Report.not_evaluated``."""

    passed: tuple[str, ...] = ()
    """Ids of the rules that judged the run and found nothing."""
    not_applicable: tuple[NotEvaluated, ...] = ()
    """Rules with nothing to judge in such a run."""


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """What bounds the run, in one word and one sentence; the runner-up is the next cause or empty."""

    kind: VerdictKind
    """What bounds the run."""
    summary: str
    """The same in a sentence, with its numbers."""
    runner_up: str = ""
    """The next cause with its share; empty if there is none."""


MIN_COST_MS = 0.2
"""Recoverable time per step below which no rule speaks. Heuristic."""

MIN_GAIN_RATIO = 0.03
"""Recoverable share of the step time below which no rule speaks: the method calls 3 % the least worthwhile gain."""


def worthwhile(recoverable_ms: float, period_ms: float) -> bool:
    """Whether R passes the least cost per step and the least gain.

    Args:
        recoverable_ms: R, ms of a step.
        period_ms: Step time in ms.
    """
    return recoverable_ms >= MIN_COST_MS and recoverable_ms >= MIN_GAIN_RATIO * period_ms


CRITICAL_STEPS = 20
"""Steady steps that a critical finding needs. TraceML."""

MIN_STEPS = 10
"""Steady steps that a warning needs. Heuristic, after TraceML (2 to warn)."""

WARNING_RATIO = 0.10
"""Lower bound of the share from which a finding is a warning. TraceML."""

CRITICAL_RATIO = 0.20
"""Lower bound of the share from which a finding is critical. TraceML."""


def severity(lower_ratio: float, steps: int) -> Severity:
    """Severity by the lower bound of the share and the number of steps that it rests on.

    Args:
        lower_ratio: Lower bound of the share, 0 to 1.
        steps: Number of steady steps.

    Returns:
        ``critical`` from :data:`CRITICAL_RATIO` and :data:`CRITICAL_STEPS` on, ``warning`` from :data:`WARNING_RATIO`
        and :data:`MIN_STEPS` on, else ``info``.
    """
    if lower_ratio >= CRITICAL_RATIO and steps >= CRITICAL_STEPS:
        return "critical"
    return "warning" if lower_ratio >= WARNING_RATIO and steps >= MIN_STEPS else "info"


def at_most_warning(level: Severity) -> Severity:
    """Of what is not certain enough to be critical."""
    return "warning" if level == "critical" else level


def speedup(recoverable_ms: float, period_ms: float) -> float:
    """Amdahl's bound ``T / (T - R)``.

    Args:
        recoverable_ms: R, the time per step that the fix can remove at most.
        period_ms: T, the step time.

    Returns:
        At least 1.0. R is held below 99 % of T, so that the bound stays finite.
    """
    if period_ms <= 0 or recoverable_ms <= 0:
        return 1.0
    return period_ms / (period_ms - min(recoverable_ms, 0.99 * period_ms))
