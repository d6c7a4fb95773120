"""Metrics flow in, how long steps wait for batches that are made too slowly flows out; rules that say why share it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding, Gain, Severity, worthwhile
from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline
from lightning_gpuprof.model.loading import EMPTY_QUEUE_RATIO, MIN_WAIT_RATIO, Loading
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.numbers import counted, millis
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, at_least, gain
from lightning_gpuprof.rules.input.loading import wait_severity


@dataclass(frozen=True, kw_only=True)
class Starving:
    """Steps that wait for batches because making these takes longer than using them."""

    state: Loading
    """Per step; where batches come in bursts, of mean rather than of median steps."""
    made: InputLoader
    """How the loader that sets the pace makes its batches, as measured there."""
    bursts: bool
    """Few steps wait, but for long: several workers hand over their batches at about the same time."""
    certain_ratio: float
    """Lower bound of the wait's share, without what a fetch may cost although nothing is wrong."""

    @property
    def explains(self) -> Claim:
        """The time that the wait is part of: of ordinary steps, or of those that stand out."""
        return claims.OUTLIERS if self.bursts else claims.WAIT_FOR_BATCHES

    @property
    def dataset(self) -> str:
        """What findings are about: the class of the dataset, if it is known."""
        return self.state.dataset or "DataLoader"

    @property
    def make_ms(self) -> float:
        """Time in which one process makes a batch."""
        return self.made.make_ms or 0.0

    @property
    def words(self) -> str:
        """The wait as a sentence."""
        state = self.state
        step = "the mean step" if self.bursts else "each step"
        start = "Batches come in bursts; " if self.bursts else ""
        wait = f"{millis(state.wait.median_ms)} of {millis(state.period_ms)} for its batch"
        text = f"{start}{step} waits {wait}: {at_least(state.wait)}."
        return text[0].upper() + text[1:]

    def severity(self, steps: int) -> Severity:
        """By the certain share of the wait and what the device idles; ``steps`` are those that it rests on."""
        return wait_severity(self.state.idle_ratio, self.certain_ratio, steps)

    @property
    def waiting(self) -> tuple[float, str]:
        """The share of the wait and what it is called as evidence."""
        return self.state.wait.median_ratio, f"waiting for data, share of {'all steps' if self.bursts else 'the step'}"

    def gain_without(self, part: float) -> Gain | None:
        """Bound of what is gained if a part of the making of batches, 0 to 1, went away.

        With n processes that make batches in P ms each, a batch comes P / n ms after the one before; without the part
        p ms of it that is p / n less. So R = min(W, p / n), without workers p itself, and no more than the device
        idles. The lower bound is the part of the wait's own lower bound.

        Returns:
            None if it is not worthwhile.
        """
        state = self.state
        whole_ms = self.make_ms / max(1, state.num_workers)
        recoverable_ms = min(state.wait.median_ms, part * whole_ms, state.idle_ms)
        if not worthwhile(recoverable_ms, state.period_ms):
            return None
        return gain(recoverable_ms, part * state.wait.lower_ratio * state.period_ms, state.period_ms)


class StarvingRule(BaseRule, ABC):
    """A rule that says why batches are made too slowly, where steps wait for them."""

    needs_workers: ClassVar[bool] = True
    """It judges what workers do, not the loading on the main thread."""
    least_ratio: float
    """Certain share of the wait from which it speaks; a threshold of each rule."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the making of batches where steps wait for it."""
        found = starving(metrics)
        if found is None or found.certain_ratio < self.least_ratio:
            return None
        return None if self.needs_workers and not found.state.num_workers else self.judge(metrics, found)

    @abstractmethod
    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge why.

        Args:
            metrics: The run.
            found: How the steps wait.

        Raises:
            MissingSignal: What the rule needs was not measured.
        """


def starving(metrics: Metrics) -> Starving | None:
    """Whether steps wait because batches are made too slowly, whatever the reason.

    Returns:
        None if they do not wait, or not for certain longer than a fetch may take, or for another reason (batches are
        made in time but come late), or if the device has work meanwhile.

    Raises:
        MissingSignal: The steps wait, but the making of batches was not measured; or as :func:`loading`.
    """
    state = measured(metrics.loading)
    bursts = state.bursts
    if bursts is not None:
        state = bursts
    elif state.certain_ratio < MIN_WAIT_RATIO:
        return None
    found = _measured(metrics)
    if found.verdict != "processing" or (bursts is None and not _empty(metrics, state)):
        return None
    if state.made is None:
        raise MissingSignal("the loader that sets the pace is not the configured one, or it changed its workers")
    if state.is_free:
        return None
    return Starving(
        state=state,
        made=state.made,
        bursts=bursts is not None,
        certain_ratio=state.certain_ratio if bursts is None else bursts.certain_ratio,
    )


def makers(state: Loading) -> str:
    """Who makes the batches: ``2 workers``, ``the main process``."""
    return counted(state.num_workers, "worker") if state.num_workers else "the main process"


def pace_words(found: Starving, *, without: float = 0.0) -> str:
    """How often batches come, without a part of their making, and how often steps could use them.

    Args:
        found: How the steps wait.
        without: The part that is thought away, 0 to 1.
    """
    state = found.state
    left_ms = found.make_ms * (1 - without)
    one = "the main process makes" if not state.num_workers else f"{makers(state)} {_verb(state)}"
    if not state.num_workers:
        return f"{one} a batch in {millis(left_ms)} before each step of {millis(state.compute_ms)}"
    return f"{one} a batch every {millis(left_ms / state.num_workers)}, the step needs {millis(state.compute_ms)}"


def _verb(state: Loading) -> str:
    return "delivers" if state.num_workers == 1 else "deliver"


def _measured(metrics: Metrics) -> InputPipeline:
    found = metrics.input
    if found is None:
        raise MissingSignal("the making of batches was not measured from inside")
    if found.verdict == "not-enough-data":
        raise MissingSignal(found.summary)
    return found


def _empty(metrics: Metrics, state: Loading) -> bool:
    """Whether an empty queue shows that the workers are behind; without workers nothing else can be the reason."""
    if not state.num_workers:
        return True
    if metrics.fetch_waited_ratio is None:
        raise MissingSignal("how many steps had to wait for a batch was not measured")
    return metrics.fetch_waited_ratio >= EMPTY_QUEUE_RATIO
