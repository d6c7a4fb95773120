"""What the rules about waits of the host share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from lightning_gpuprof.model.device_step import ExplainedStep as ExplainedStep
from lightning_gpuprof.model.device_step import HostWaits as HostWaits
from lightning_gpuprof.model.device_step import WaitCause
from lightning_gpuprof.rules.base import Change, Evidence, Finding, Metrics, measured, of_each_step, worthwhile
from lightning_gpuprof.rules.examples import not_applicable, not_evaluated
from lightning_gpuprof.rules.launches.step_rule import StepRule

UNTRACED = (
    not_applicable("the model is on the CPU", "runs on the CPU"),
    not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
)
"""Examples of all rules about waits and copies."""


class WaitRule(StepRule, ABC):
    """A rule about the waits of one cause: what they cost is judged here, each rule has the words."""

    cause: ClassVar[WaitCause]
    counted: ClassVar[str] = "waits"
    """What is counted per step, as evidence."""
    least_per_step: float
    """How many from which it speaks; a threshold of each rule."""
    least_ratio: float
    """Share of the step time that their cost has to reach for certain; likewise."""

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        """Judge the waits of the cause.

        Args:
            metrics: The run.
            step: Its device's step.

        Returns:
            The finding. None: they cost too little.
        """
        found = costly_waits(step, self.cause, least_per_step=self.least_per_step, least_ratio=self.least_ratio)
        if found is None:
            return None
        cost, saved = metrics.cost(found.cost_ms, found.lower_ms), self.saved_ratio(found)
        return self.of_step(
            step,
            cost.part(saved),
            severity=cost.severity,
            subject=self.subject(found),
            summary=f"{self.summary(found)}.",
            advice=self.advice(metrics, found),
            evidence=(
                self.evidence("least_ratio", found.ratio, "idle after waits, share of the step"),
                self.evidence("least_per_step", found.per_step, f"{self.counted} per step"),
                self.beside(metrics),
                self.fact("host blocked per traced step", found.blocked_ms, "ms"),
            ),
            change=self.change(metrics, found),
        )

    @abstractmethod
    def summary(self, found: HostWaits) -> str:
        """Who waits, how often and for how long, without the full stop."""

    @abstractmethod
    def advice(self, metrics: Metrics, found: HostWaits) -> str:
        """What to do instead.

        Args:
            metrics: Metrics of the run.
            found: The waits of this cause per step, and what they cost.

        Returns:
            Sentences with their full stops.
        """

    def change(self, metrics: Metrics, found: HostWaits) -> Change | None:
        """The advice as data.

        Args:
            metrics: Metrics of the run.
            found: The waits of this cause per step, and what they cost.

        Returns:
            None: it needs a human.
        """
        return None

    def subject(self, found: HostWaits) -> str:
        """What it is about: the costliest place."""
        return found.worst.where

    def saved_ratio(self, found: HostWaits) -> float:
        """Part of the cost that following the advice saves."""
        return 1.0

    def beside(self, metrics: Metrics) -> Evidence | None:
        """Further evidence. None: there is none."""
        return None


def costly_waits(
    step: ExplainedStep, cause: WaitCause, *, least_per_step: float, least_ratio: float
) -> HostWaits | None:
    """The waits of one cause, if they are worth a finding.

    Args:
        step: The device's step.
        cause: Whose waits.
        least_per_step: Waits per step that are needed.
        least_ratio: Share of the step time that the lower bound of their cost has to reach.

    Returns:
        Times in ms per step. None: they are not worth one.

    Raises:
        MissingSignal: The sync points of the window could not be computed.
    """
    found = measured(step.waits).get(cause)
    if found is None or found.per_step < least_per_step or not worthwhile(found.cost_ms, step.period_ms):
        return None
    return found if found.lower_ms >= least_ratio * step.period_ms else None


def idle_words(found: HostWaits) -> str:
    """``the GPU then idles 3.10 ms of each 24.0 ms step (13 %)``."""
    return f"the GPU then idles {of_each_step(found.cost_ms, found.period_ms)}"


def times(per_step: float) -> str:
    """How often per step: ``once``, ``2.5 times``."""
    return "once" if abs(per_step - 1) < 0.05 else f"{per_step:.1f}".removesuffix(".0") + " times"
