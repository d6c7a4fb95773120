"""What every rule shares: the protocol, the guards against false alarms ("G0"), severity and gain.

Numbers from Metrics are checked here. A guard that lacks its signal raises :class:`MissingSignal`, which the engine
turns into "not evaluated (why)": what was not measured is never "nothing found". What a run cannot have, as a GPU where
the model runs on the CPU, is :class:`NotApplicable`, and nothing to report.
"""

from __future__ import annotations

import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar

from lightning_gpuprof.model.change import Change, setting
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.finding import (
    CRITICAL_RATIO,
    CRITICAL_STEPS,
    MIN_COST_MS,
    MIN_GAIN_RATIO,
    REMAINING,
    WARNING_RATIO,
    Evidence,
    Finding,
    Gain,
    Severity,
    speedup,
    worthwhile,
)
from lightning_gpuprof.model.finding import severity as severity
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.model.numbers import (
    counted,
    cpus,
    decimal_size,
    gib,
    listed,
    mhz,
    millis,
    of_each_step,
    percent,
    possible,
    seconds,
)
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase
from lightning_gpuprof.model.share import Share, usable
from lightning_gpuprof.model.signals import (
    MIN_STEPS,
    MOSTLY_OUTSIDE_RATIO,
    OUTSIDE_PARTS,
    device_idle_ratio,
    device_step,
    machine_busy_ratio,
    ordinary_ratio,
    require_possible,
    step_idle_ratio,
)
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.examples import Example

if TYPE_CHECKING:
    from typing_extensions import NotRequired, dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Any:
        """Only type checkers read it."""
        return lambda cls: cls


Need: TypeAlias = Literal["gpu", "ranks", "workers", "compile"]
Number = TypeVar("Number", int, float)
Signal = TypeVar("Signal")


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

    Returns:
        The field, typed as the number, as a class body needs it.
    """
    declared: Number = dataclasses.field(default=default, metadata={"source": source})
    return declared


def source_of(rule: type, name: str) -> str:
    """Where the threshold ``name`` of a rule comes from.

    Args:
        rule: Class of the rule.
        name: Name of the field.

    Returns:
        One phrase; empty if the field does not say, or there is no such field.
    """
    fields: Mapping[str, object] = getattr(rule, "__dataclass_fields__", {})
    metadata: Mapping[str, str] = getattr(fields.get(name), "metadata", {})
    sources: Mapping[str, str] = getattr(rule, "sources", {})
    return metadata.get("source") or sources.get(name, "")


Advice = tuple[str, Change | None]
"""What to do, in sentences, and as data; None where it needs a human."""


class Words(TypedDict):
    """What families of rules hand on to :meth:`BaseRule.finding` as it is, or with something added."""

    subject: str
    summary: str
    advice: str | Advice
    evidence: tuple[Evidence | None, ...]
    confidence: NotRequired[float]
    explains: NotRequired[Claim | None]
    phase: NotRequired[Phase | None]
    change: NotRequired[Change | None]


has_thresholds = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)
"""Decorates a base of rules that has thresholds. It adds no methods, which would take 0.5 ms a class to compile: those
of :class:`BaseRule` make it and keep it frozen."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class BaseRule:
    """What the rules of this package derive from: evidence and findings with what the class already says.

    A subclass with an ``id`` is a rule: a frozen dataclass whose fields are thresholds (:func:`threshold`), and whose
    page, in Markdown, is the docstring of its module. Without one it is the base of some.
    """

    id: ClassVar[str]
    title: ClassVar[str] = ""
    """The fault in one short line without numbers, the slow thing as the subject: for headlines and lists."""
    needs: ClassVar[Need | None] = None
    """What it is about: a run without it is said to have none, rather than to have passed."""
    specialises: ClassVar[tuple[str, ...]] = ()
    """Ids of more general rules: where both fire on the same time, its gain stays with this one."""
    is_clue: ClassVar[bool] = False
    """Its findings say when and where steps are slow, not why: without a change they follow one that has it, unless
    they explain it (:attr:`specialises`, in the same phase)."""
    certainty: ClassVar[float] = 1.0
    """Confidence of its findings, 0 to 1, unless they have their own."""
    explains: ClassVar[Claim | None] = None
    """The time that its findings account for, unless they have their own; None: none."""
    examples: ClassVar[tuple[Example, ...]] = ()
    """Runs and what the rule makes of them: tests, and the section Example of its page."""
    sources: ClassVar[Mapping[str, str]] = {}
    """Where each threshold comes from; a rule that is decorated by hand as well loses it from its fields."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "id" in vars(cls) and "__dataclass_fields__" not in vars(cls):  # else the copy that slots=True makes
            cls.__doc__ = cls.__doc__ or sys.modules[cls.__module__].__doc__
            has_thresholds(cls)
            cls.sources = {name: source_of(cls, name) for name in vars(cls)["__dataclass_fields__"]}

    def __init__(self, **thresholds: float) -> None:
        if unknown := thresholds.keys() - self.sources.keys():
            raise TypeError(f"{type(self).__name__} has no threshold {', '.join(sorted(unknown))}")
        vars(self).update(thresholds)

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def evidence(
        self, threshold: str, value: float | str, name: str, unit: str | None = None, *, limit: float | None = None
    ) -> Evidence:
        """What was measured, beside its threshold and where that comes from.

        Args:
            threshold: Name of the field.
            value: In ``unit``.
            name: What was measured.
            unit: Default: "ratio" for a threshold whose name ends so, else none.
            limit: What the threshold comes to in this run, in ``unit``; default: the threshold itself.

        Returns:
            With the limit in the unit of the value, and its source.

        Raises:
            AttributeError: The rule has no such field.
        """
        at: float = getattr(self, threshold)
        if unit is None:
            unit = "ratio" if threshold.endswith("_ratio") else ""
        source = source_of(type(self), threshold)
        return Evidence(name=name, value=value, unit=unit, limit=at if limit is None else limit, source=source)

    @staticmethod
    def fact(name: str, value: float | str | None, unit: str = "") -> Evidence | None:
        """A number that is only shown, not compared with a threshold.

        Args:
            name: What was measured.
            value: In ``unit``; None: not measured.
            unit: Empty where there is none.

        Returns:
            Without limit and source; None if the value is None.
        """
        return None if value is None else Evidence(name=name, value=value, unit=unit)

    def finding(
        self,
        *,
        subject: str,
        summary: str,
        advice: str | Advice,
        evidence: tuple[Evidence | None, ...],
        cost: Cost | None = None,
        severity: Severity | None = None,
        gain: Gain | None = None,
        confidence: float | None = None,
        explains: Claim | None = None,
        phase: Phase | None = None,
        change: Change | None = None,
        title: str = "",
        leaves: str = "",
    ) -> Finding:
        """What this rule found; the arguments are those of :class:`~lightning_gpuprof.model.finding.Finding`.

        Args:
            subject: What is slow: a class, a device, a setting.
            summary: What was found, in sentences with numbers.
            advice: What to do, in sentences; with the change in one value where they are made together.
            evidence: The numbers that it rests on; None among them was not measured.
            cost: What it costs a step.
            severity: How bad it is; default: by the cost, without one information.
            gain: What a fix saves at most; default: the cost, if that is worthwhile.
            confidence: 0 to 1; default: :attr:`certainty`.
            explains: The time that it accounts for; default: :attr:`explains`.
            phase: Where that time lies, if it is in one phase and the claim does not say so.
            change: The advice as data.
            title: The fault in one short line; default: :attr:`title`.
            leaves: What of the fault stays, as the end of "Remaining cost:", without a full stop; it ends the advice.

        Returns:
            Information where neither severity nor cost is given; without a gain if there is none of
            its own and the cost is not worthwhile.
        """
        if not isinstance(advice, str):
            advice, change = advice
        if cost is not None:
            severity, gain = severity or cost.severity, gain or (cost.gain if cost.is_worth() else None)
        return Finding(
            rule=self.id,
            title=title or self.title,
            change=change,
            severity=severity or "info",
            subject=subject,
            summary=summary,
            advice=f"{advice} {REMAINING} {leaves}." if leaves else advice,
            leaves=leaves,
            evidence=tuple(one for one in evidence if one is not None),
            gain=gain,
            confidence=self.certainty if confidence is None else confidence,
            explains=explains or self.explains,
            phase=phase,
        )


class FamilyRule(BaseRule, ABC, Generic[Signal]):
    """A rule of a family whose rules judge the same signal."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what the family looks at. None: nothing is found."""
        found = self.look(metrics)
        return None if found is None else self.judge(metrics, found)

    @abstractmethod
    def look(self, metrics: Metrics) -> Signal | None:
        """What the family looks at; None: there is nothing to find.

        Raises:
            MissingSignal: It was not measured.
            NotApplicable: It cannot be in this run.
        """

    @abstractmethod
    def judge(self, metrics: Metrics, found: Signal) -> Finding | None:
        """Judge it.

        Args:
            metrics: The run.
            found: What the family looks at.

        Returns:
            The finding. None: nothing is found.

        Raises:
            MissingSignal: What the rule needs beside it was not measured.
            NotApplicable: It cannot be in this run.
        """


def worthwhile_evidence(name: str, cost: Cost) -> Evidence:
    """A cost beside the least gain that makes any rule speak.

    Args:
        name: What takes the time.
        cost: Its cost.

    Returns:
        Value and limit are ratios of the step.
    """
    source = "the least worthwhile gain"
    return Evidence(name=name, value=cost.ratio, unit="ratio", limit=MIN_GAIN_RATIO, source=source)
