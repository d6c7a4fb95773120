"""What every rule shares: the protocol, the guards against false alarms ("G0"), severity and gain.

Numbers from Metrics are checked here. A guard that lacks its signal raises :class:`MissingSignal`, which the engine
turns into "not evaluated (why)": what was not measured is never "nothing found". What a run cannot have, as a GPU where
the model runs on the CPU, is :class:`NotApplicable`, and nothing to tell of.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict, TypeVar

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import (
    MIN_COST_MS,
    MIN_GAIN_RATIO,
    Evidence,
    Finding,
    Gain,
    Severity,
    speedup,
    worthwhile,
)
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.model.numbers import millis, percent, possible
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import (
    MIN_STEPS,
    MOSTLY_OUTSIDE_RATIO,
    OUTSIDE_PARTS,
    condition,
    device_idle_ratio,
    device_step,
    is_cpu_only,
    is_distributed,
    is_mostly_outside,
    machine_busy_ratio,
    ordinary_ratio,
    outside_s,
    require_possible,
    run_ms_per_step,
    run_s,
    steady_period_ms,
    step_idle_ratio,
    step_share,
)
from lightning_gpuprof.rules.examples import Example

if TYPE_CHECKING:
    from typing_extensions import NotRequired, dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Any:
        """Only type checkers read it."""
        return lambda cls: cls


CRITICAL_STEPS = 20
"""Steady steps that a critical finding needs. TraceML."""

WARNING_RATIO = 0.10
"""Lower bound of the share from which a finding is a warning. TraceML."""

CRITICAL_RATIO = 0.20
"""Lower bound of the share from which a finding is critical. TraceML."""

Number = TypeVar("Number", int, float)


class Rule(Protocol):
    """A rule holds measurements against thresholds and puts what it finds into words.

    Besides ``id`` a rule class may have ``specialises``, a tuple of ids of more general rules: where both fire on the
    same time, its gain stays with this one. Its docstring is its page, in Markdown.
    """

    id: ClassVar[str]

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge one run.

        Returns:
            The finding, or None if the cause is not there.

        Raises:
            MissingSignal: What the rule needs was not measured.
            NotApplicable: It cannot be in this run.
        """
        ...


def threshold(default: Number, *, source: str) -> Number:
    """A dataclass field for a threshold; its source appears on the rule's page.

    Args:
        default: The value, in the unit that the field's name ends with.
        source: Where the value comes from.
    """
    declared: Number = dataclasses.field(default=default, metadata={"source": source})
    return declared


def source_of(rule: type, name: str) -> str:
    """Where the threshold ``name`` of a rule comes from; empty if the field does not say.

    Args:
        rule: Class of the rule.
        name: Name of the field.
    """
    fields: Mapping[str, object] = getattr(rule, "__dataclass_fields__", {})
    metadata: Mapping[str, str] = getattr(fields.get(name), "metadata", {})
    sources: Mapping[str, str] = getattr(rule, "sources", {})
    return metadata.get("source") or sources.get(name, "")


class Words(TypedDict):
    """What families of rules hand on to :meth:`BaseRule.finding` as it is, or with something added."""

    subject: str
    summary: str
    advice: str
    evidence: tuple[Evidence, ...]
    confidence: NotRequired[float]
    explains: NotRequired[Claim | None]
    change: NotRequired[Change | None]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class BaseRule:
    """What the rules of this package derive from: evidence and findings with what the class already says.

    A subclass with an ``id`` is a rule: a frozen dataclass whose fields are thresholds (:func:`threshold`), and whose
    page, in Markdown, is the docstring of its module. Without one it is the base of some.
    """

    id: ClassVar[str]
    title: ClassVar[str] = ""
    """The fault in one short line without numbers, the slow thing as the subject: for headlines and lists."""
    specialises: ClassVar[tuple[str, ...]] = ()
    """Ids of more general rules: where both fire on the same time, its gain stays with this one."""
    is_clue: ClassVar[bool] = False
    """Its findings say when and where steps are slow, not why: without a change they follow one that has it."""
    certainty: ClassVar[float] = 1.0
    """Confidence of its findings, 0 to 1, unless they have their own."""
    explains: ClassVar[Claim | None] = None
    """The time that its findings account for, unless they have their own; None: none."""
    examples: ClassVar[tuple[Example, ...]] = ()
    """Runs and what the rule makes of them: tests, and the section Example of its page."""
    sources: ClassVar[Mapping[str, str]] = {}
    """Where each threshold comes from; a rule that is decorated by hand as well loses it from its fields."""

    def __init_subclass__(cls) -> None:
        if "id" in vars(cls):
            cls.__doc__ = cls.__doc__ or sys.modules[cls.__module__].__doc__
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
            cls.sources = {name: source_of(cls, name) for name in vars(cls)["__dataclass_fields__"]}
            for name in ("__setattr__", "__delattr__"):  # a second @dataclass(frozen=True) refuses to replace them
                delattr(cls, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def evidence(
        self, threshold: str, value: float | str, name: str, unit: str | None = None, *, limit: float | None = None
    ) -> Evidence:
        """What was measured, beside the threshold that it is held against and where that comes from.

        Args:
            threshold: Name of the field.
            value: In ``unit``.
            name: What was measured.
            unit: Default: "ratio" for a threshold whose name ends so, else none.
            limit: What the threshold comes to in this run, in ``unit``; default: the threshold itself.

        Raises:
            AttributeError: The rule has no such field.
        """
        at: float = getattr(self, threshold)
        if unit is None:
            unit = "ratio" if threshold.endswith("_ratio") else ""
        source = source_of(type(self), threshold)
        return Evidence(name=name, value=value, unit=unit, limit=at if limit is None else limit, source=source)

    def finding(
        self,
        *,
        subject: str,
        summary: str,
        advice: str,
        evidence: tuple[Evidence, ...],
        severity: Severity = "info",
        gain: Gain | None = None,
        confidence: float | None = None,
        explains: Claim | None = None,
        change: Change | None = None,
        title: str = "",
    ) -> Finding:
        """What this rule found; the arguments are those of :class:`~lightning_gpuprof.model.finding.Finding`.

        Args:
            subject: What is slow: a class, a device, a setting.
            summary: What was found, in sentences with numbers.
            advice: What to do, in sentences.
            evidence: The numbers that it rests on.
            severity: How bad it is.
            gain: What a fix saves at most; None: not known, or nothing.
            confidence: 0 to 1; default: :attr:`certainty`.
            explains: The time that it accounts for; default: :attr:`explains`.
            change: The advice as data.
            title: The fault in one short line; default: :attr:`title`.
        """
        return Finding(
            rule=self.id,
            title=title or self.title,
            change=change,
            severity=severity,
            subject=subject,
            summary=summary,
            advice=advice,
            evidence=evidence,
            gain=gain,
            confidence=self.certainty if confidence is None else confidence,
            explains=explains or self.explains,
        )


def severity(lower_ratio: float, steps: int) -> Severity:
    """Severity by the lower bound of the share and the number of steps that it rests on.

    Args:
        lower_ratio: Lower bound of the share, 0 to 1.
        steps: Number of steady steps.
    """
    if lower_ratio >= CRITICAL_RATIO and steps >= CRITICAL_STEPS:
        return "critical"
    return "warning" if lower_ratio >= WARNING_RATIO and steps >= MIN_STEPS else "info"


def outside_severity(metrics: Metrics, ratio: float) -> Severity:
    """Severity of what takes this share of the run outside its steps; few steps warn if most of the run is there.

    Args:
        metrics: Metrics of the run.
        ratio: Share of the run, 0 to 1.
    """
    least = MIN_STEPS if is_mostly_outside(metrics) else 0
    return severity(ratio, max(least, metrics.steps.steady_count))


def gain(recoverable_ms: float, lower_ms: float, period_ms: float) -> Gain:
    """Bound of what a fix gains.

    Args:
        recoverable_ms: R, recoverable time per step.
        lower_ms: The same from the lower bound of the share; held within 0 and R.
        period_ms: T, the step time that R is part of.
    """
    return Gain(
        saved_ms_per_step=recoverable_ms,
        speedup_max=speedup(recoverable_ms, period_ms),
        saved_lower_ms_per_step=min(max(0.0, lower_ms), recoverable_ms),
    )


def worthwhile_gain(recoverable_ms: float, lower_ms: float, period_ms: float) -> Gain | None:
    """:func:`gain`; None if R is not worthwhile.

    Args:
        recoverable_ms: R, recoverable time per step in ms.
        lower_ms: Lower bound of R in ms.
        period_ms: T, the step time in ms.
    """
    return gain(recoverable_ms, lower_ms, period_ms) if worthwhile(recoverable_ms, period_ms) else None


def worthwhile_evidence(name: str, recoverable_ms: float, period_ms: float) -> Evidence:
    """R's share of T, beside the least gain that makes any rule speak.

    Args:
        name: What takes the time.
        recoverable_ms: R, recoverable time per step in ms.
        period_ms: T, the step time in ms.
    """
    return Evidence(
        name=name,
        value=recoverable_ms / period_ms,
        unit="ratio",
        limit=MIN_GAIN_RATIO,
        source="the least worthwhile gain",
    )


def at_least(share: Share) -> str:
    """A share with its lower bound, where that is another number: ``83 % (at least 81 %)``."""
    median, lower = percent(share.median_ratio), percent(share.lower_ratio)
    return median if median == lower else f"{median} (at least {lower})"


def of_each_step(ms: float, period_ms: float) -> str:
    """``20.0 ms of each 50.0 ms step (40 %)``; kernels that overlap may add up to more than the step.

    Args:
        ms: Time per step in ms.
        period_ms: T, the step time in ms.
    """
    return f"{millis(ms)} of each {millis(period_ms)} step ({percent(min(1.0, ms / period_ms))})"
