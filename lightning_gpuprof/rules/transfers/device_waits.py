"""Sync points of a trace window flow in; out flow the host's waits for the device, by who makes the host wait.

The parts do not overlap, so that each rule about waits explains time of its own.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.model.trace.sync_points import SyncSite
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, gain, is_distributed, severity, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.launches.step_rule import of_every_step

Cause = Literal["progress bar", "gradient scaler", "batch upload", "host tensor", "rank check", "code"]
"""Who makes the host wait: a progress bar that shows a tensor; the scaler of 16-bit gradients; a copy of pageable
memory to the device, outside of or within the model's phases; Lightning's check of all ranks at the begin of a step;
anything else, which is the code of the model or of a callback."""

LEAST_PER_STEP = 0.5
"""Waits per step from which a place belongs to the ordinary step rather than to logging now and then. Heuristic."""

_PROGRESS_BAR = re.compile(r"\[Callback\]\w*ProgressBar\w*\.")
_OPTIMIZER_STEP = re.compile(r"\]\w+\.optimizer_step$")
"""Around the scaler and the optimizer; what the optimizer itself reads is in torch's ``Optimizer.step#`` within."""
_CALLBACK = re.compile(r"\[Callback\](?P<hook>[\w.]+)")
_MODULE_HOOK = re.compile(r"\[Lightning(?:Data)?Module\](?P<hook>[\w.]+)")


@dataclass(frozen=True, kw_only=True)
class Wait:
    """One place that makes the host wait, in an untraced step."""

    site: SyncSite
    cause: Cause
    per_step: float
    """How often."""
    cost_ms: float
    """Idle time of the device that it causes, per step."""

    @property
    def where(self) -> str:
        """The line of user code, else the hook, else the module, range or phase around it."""
        return _where(self.site)


@dataclass(frozen=True, kw_only=True)
class CostlyWaits:
    """All waits of one cause, as far as the device is idle because of them."""

    step: ExplainedStep
    waits: tuple[Wait, ...]
    """Costliest first."""
    per_step: float
    cost_ms: float
    """Per step."""
    lower_ms: float

    @property
    def worst(self) -> Wait:
        """The costliest place."""
        return self.waits[0]

    @property
    def most_per_step(self) -> float:
        """How often the place is met that is met most often."""
        return max(wait.per_step for wait in self.waits)

    @property
    def blocked_ms(self) -> float:
        """Time per traced step for which the host is blocked: not the cost."""
        return sum(wait.site.blocked_us for wait in self.waits) / 1e3 / self.step.steps

    @property
    def idle_words(self) -> str:
        """``the GPU then idles 3.10 ms of every 24.0 ms step (13 %)``."""
        return f"the GPU then idles {of_every_step(self.cost_ms, self.step)}"


class WaitRule(BaseRule, ABC):
    """A rule about the waits of one cause: what they cost is judged here, each rule has the words."""

    cause: ClassVar[Cause]
    explains: ClassVar[Claim]
    counted: ClassVar[str] = "waits"
    """What is counted per step, as evidence."""
    least_per_step: float
    """How many from which it speaks; a threshold of each rule."""
    least_ratio: float
    """Share of the step time that their cost has to reach for certain; likewise."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the waits of the cause."""
        found = costly_waits(metrics, self.cause, least_per_step=self.least_per_step, least_ratio=self.least_ratio)
        if found is None:
            return None
        step, saved = found.step, self.saved_ratio(found)
        return self.finding(
            severity=severity(found.lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=self.subject(found),
            summary=f"{self.summary(found)}.{remark(step)}",
            advice=self.advice(metrics, found),
            evidence=(
                self.evidence("least_ratio", found.cost_ms / step.period_ms, "idle after waits, share of the step"),
                self.evidence("least_per_step", found.per_step, f"{self.counted} per step"),
                *self.beside(metrics),
                Evidence(name="host blocked per traced step", value=found.blocked_ms, unit="ms"),
                *step_evidence(step),
            ),
            gain=gain(found.cost_ms * saved, found.lower_ms * saved, step.period_ms),
            confidence=confidence(step),
            explains=self.explains,
            change=self.change(metrics, found),
        )

    @abstractmethod
    def summary(self, found: CostlyWaits) -> str:
        """Who waits, how often and for how long, without the full stop."""

    @abstractmethod
    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """What to do instead."""

    def change(self, metrics: Metrics, found: CostlyWaits) -> Change | None:
        """The advice as data."""
        return None

    def subject(self, found: CostlyWaits) -> str:
        """What it is about: the costliest place."""
        return found.worst.where

    def saved_ratio(self, found: CostlyWaits) -> float:
        """Part of the cost that following the advice saves."""
        return 1.0

    def beside(self, metrics: Metrics) -> tuple[Evidence, ...]:
        """Further evidence."""
        return ()


def costly_waits(metrics: Metrics, cause: Cause, *, least_per_step: float, least_ratio: float) -> CostlyWaits | None:
    """The waits of one cause, if they are worth a finding.

    Args:
        metrics: The run.
        cause: Whose waits.
        least_per_step: Waits per step that are needed.
        least_ratio: Share of the step time that the lower bound of their cost has to reach.

    Returns:
        None if there are fewer, or they cost less, or too little to gain from.

    Raises:
        MissingSignal: As :func:`~lightning_gpuprof.rules.launches.device_idle.explained_step`; or the sync points of
            the window could not be computed.
    """
    step = explained_step(metrics)
    found = waits(metrics, step, cause)
    per_step = sum(wait.per_step for wait in found)
    cost_ms = sum(wait.cost_ms for wait in found)
    lower_ms = step.lower_ms(cost_ms)
    if per_step < least_per_step or not worthwhile(cost_ms, step.period_ms) or lower_ms < least_ratio * step.period_ms:
        return None
    return CostlyWaits(step=step, waits=found, per_step=per_step, cost_ms=cost_ms, lower_ms=lower_ms)


def times(per_step: float) -> str:
    """How often per step: ``once``, ``2.5 times``."""
    return "once" if abs(per_step - 1) < 0.05 else f"{per_step:.1f}".removesuffix(".0") + " times"


def waits(metrics: Metrics, step: ExplainedStep, cause: Cause) -> tuple[Wait, ...]:
    """The host's waits that one cause makes in ordinary steps, costliest first.

    Args:
        metrics: The run.
        step: Its device's step.
        cause: Whose waits.

    Raises:
        MissingSignal: The sync points of the window could not be computed.
    """
    points = step.analysis.sync_points
    if points is None:
        raise MissingSignal("the sync points of the trace window could not be computed")
    found = []
    for site in points.sites:
        per_step = site.count / step.steps if site.count_per_step is None else site.count_per_step
        if per_step < LEAST_PER_STEP or cause_of(metrics, site) != cause:
            continue
        in_steps_us = site.cost_us * min(1.0, per_step * step.steps / site.count)
        cost_ms = step.estimate_ms(in_steps_us / 1e3 / step.steps)
        found.append(Wait(site=site, cause=cause, per_step=per_step, cost_ms=cost_ms))
    return tuple(sorted(found, key=lambda wait: -wait.cost_ms))


def cause_of(metrics: Metrics, site: SyncSite) -> Cause:
    """Who makes the host wait at a site."""
    if _PROGRESS_BAR.search(site.annotation or ""):
        return "progress bar"
    if is_distributed(metrics) and _is_upload_of_rank_check(metrics, site):
        return "rank check"
    if site.copy is not None and "HtoD" in site.copy:
        return "host tensor" if site.phase in COMPUTE_PHASES else "batch upload"
    reads_a_value = site.operation in ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
    if reads_a_value and _OPTIMIZER_STEP.search(site.annotation or "") and _scales_gradients(metrics):
        return "gradient scaler"
    if reads_a_value and is_distributed(metrics) and _is_rank_check(site):
        return "rank check"
    return "code"


def _scales_gradients(metrics: Metrics) -> bool:
    return str(condition(metrics, "trainer.precision") or "").startswith("16")


def _is_rank_check(site: SyncSite) -> bool:
    return site.phase in (None, "sync") and site.annotation is None and site.inside is None


def _is_upload_of_rank_check(metrics: Metrics, site: SyncSite) -> bool:
    """Whether it is the copy of the check's tensor: Lightning moves all else to the device inside of named actions."""
    if site.copy is None or "HtoD" not in site.copy or condition(metrics, "version.lightning") is None:
        return False
    return site.phase not in COMPUTE_PHASES and site.annotation is None and site.inside is None and site.line is None


def _where(site: SyncSite) -> str:
    hook = _CALLBACK.search(site.annotation or "")
    if hook is not None:
        return hook["hook"]
    if site.line is not None:
        return site.line.frame
    hook = _MODULE_HOOK.search(site.annotation or "")
    if hook is not None:
        return hook["hook"]
    around = site.module or site.annotation or site.inside or site.phase
    return f"{site.operation} in {around.removeprefix('[pl][profile]')}" if around else site.operation
