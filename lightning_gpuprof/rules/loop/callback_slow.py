"""Finds the callback whose per-batch hooks take a good part of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    condition,
    is_cpu_only,
    ordinary_ratio,
    possible,
    steady_period_ms,
    threshold,
    usable,
)
from lightning_gpuprof.rules.callbacks import class_name, own_setting
from lightning_gpuprof.rules.steps.host_time import HostTime, idle_evidence, most_held_ratio
from lightning_gpuprof.rules.wording import listed, millis, percent

_HOOKS_WITH_BATCH_IDX = frozenset(
    f"on_{loop}_batch_{edge}" for loop in ("train", "validation", "test", "predict") for edge in ("start", "end")
)
_LOOPS = {"fit": "train", "validate": "validation", "test": "test", "predict": "predict"}
"""What the names of a stage's hooks call its loop."""


@dataclass(frozen=True, kw_only=True)
class CallbackSlow(BaseRule):
    """One callback's hooks around the batch take a noticeable part of every step.

    ## What it means

    Lightning calls the hooks of all callbacks on the training thread, in every step. What a hook does there, the
    training waits for.

    ## How it is measured

    The exclusive time of all per-batch hooks of each callback, as a share of the period of steady steps that were not
    traced. The share is the lower bound of its median; for a callback that works only every few batches, which a median
    does not see, its part of the total time without the excess of outlying steps. The most expensive callback is
    named with its most expensive hook. This profiler's own callback is not among them; its cost is in the report's
    `overhead`. The severity goes by the share without 0.5 ms, which well-behaved callbacks cost, too. The gain is the
    callback's time per step. On a GPU only the part counts, in share and gain, in which the device idles while the host
    is in callbacks, which a trace window tells; without one it is information only, and the gain has no lower bound.

    ## When it is wrong

    - On a GPU, a hook that reads a tensor's value (`.item()`, `.cpu()`, a progress bar that shows the loss) waits for
      the device. That time then moves elsewhere rather than disappearing if the hook is removed; what the device idles
      because of a progress bar `progress-bar-sync` explains.
    - A hook that works only in rare steps is found by `step-outliers`.
    - DataLoader workers that make batches no faster than steps use them are waited for instead: where their pace was
      measured, the gain ends there, and the summary says so.
    - Hooks of the LightningModule and its DataModule around the batch are not told apart from each other: what no
      callback holds of the phase is reported as theirs, with less confidence.

    ## What to do

    Do the work every N batches, or move it to `on_train_epoch_end`, or to a thread. The printed N brings it below 1 %.
    For a callback of Lightning's own the advice is the argument that it is made with.

    ## Example

    "Run Slow.on_train_batch_end every 67 batches: begin it with `if batch_idx % 67: return`" for a callback that
    sleeps 20 ms in a step of 30 ms.
    """

    id = "callback-slow"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    fixed_ms: float = threshold(0.5, source="heuristic: what a progress bar costs; it does not raise the severity")
    wanted_ratio: float = threshold(0.01, source="heuristic: what a callback may cost")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the most expensive callback."""
        period_ms = steady_period_ms(metrics)
        costs = sorted((*_callbacks(metrics), *_module_hooks(metrics, period_ms)), key=lambda c: c.ratio, reverse=True)
        worth = [cost for cost in costs if cost.ratio >= self.least_ratio]
        if not worth:
            return None
        slowest = worth[0]
        most_ratio = most_held_ratio(metrics, "callbacks")
        taken_ms = max(slowest.median_ms, slowest.ratio * period_ms)
        time = HostTime(period_ms=period_ms, ratio=slowest.ratio, taken_ms=taken_ms, most_ratio=most_ratio)
        if not time.is_worth(self.least_ratio):
            return None
        shown_ratio = taken_ms / period_ms
        others = [f"{c.owner} {percent(c.ratio)}" for c in worth[1:4]]
        also = f" Also above {percent(self.least_ratio)}: {listed(others)}." if others else ""
        where = f", mostly in {slowest.hook}" if slowest.hook else ""
        return self.finding(
            severity=time.severity(metrics.steps.steady_count, fixed_ms=self.fixed_ms),
            subject=slowest.subject,
            summary=(
                f"{slowest.what} {percent(shown_ratio)} of every step ({millis(taken_ms)} of "
                f"{millis(period_ms)}){where}.{also}"
            ),
            advice=_advice(
                metrics,
                slowest,
                every=max(2, math.ceil(slowest.ratio / self.wanted_ratio)),
                stage=condition(metrics, "stage"),
            ),
            evidence=(
                self.evidence("least_ratio", shown_ratio, f"{slowest.owner} share of the step"),
                Evidence(name=f"{slowest.owner} per step", value=taken_ms, unit="ms"),
                Evidence(name="period", value=period_ms, unit="ms"),
                *idle_evidence(metrics, most_ratio, "callbacks"),
            ),
            gain=time.gain,
            confidence=(0.95 if slowest.hook else 0.7) * (1.0 if is_cpu_only(metrics) else 0.85),
            explains=_explains(metrics, slowest),
        )


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """What the hooks of one owner take of ordinary steps; the hook is empty if it was not told apart."""

    owner: str
    hook: str
    ratio: float
    median_ms: float

    @property
    def subject(self) -> str:
        return f"{self.owner}.{self.hook}" if self.hook else self.owner

    @property
    def what(self) -> str:
        return f"Callback {self.owner} takes" if self.hook else f"The hooks of {self.owner} itself take"


def _explains(metrics: Metrics, slowest: _Cost) -> Claim:
    """A progress bar on a device mostly waits for the device, which ``progress-bar-sync`` explains."""
    bar = not is_cpu_only(metrics) and "ProgressBar" in slowest.owner
    return claims.WAITS_OF_THE_PROGRESS_BAR if bar else claims.CALLBACKS


def _callbacks(metrics: Metrics) -> list[_Cost]:
    return [
        _Cost(
            owner=class_name(c),
            hook=c.hook,
            ratio=ordinary_ratio(metrics, c.share, "callbacks"),
            median_ms=c.share.median_ms,
        )
        for c in metrics.callback_shares
        if usable(c.share)
    ]


def _module_hooks(metrics: Metrics, period_ms: float) -> list[_Cost]:
    """What is left of the phase: the LightningModule and the DataModule have hooks of the same names."""
    whole = metrics.share("callbacks")
    if whole is None or not usable(whole):
        return []
    own_us = metrics.overhead.get("boundary_us_per_step") or 0.0
    told_ms = sum(c.share.median_ms for c in metrics.callback_shares if usable(c.share))
    told_ms += own_us / 1e3 if possible(own_us) else 0.0
    left_ms = max(0.0, whole.median_ms - told_ms)
    ratio = max(0.0, whole.lower_ratio - told_ms / period_ms)
    model = condition(metrics, "model.class")
    return [_Cost(owner=str(model or "the LightningModule"), hook="", ratio=ratio, median_ms=left_ms)]


def _advice(metrics: Metrics, slowest: _Cost, *, every: int, stage: object) -> str:
    text = own_setting(metrics, slowest.owner, every)
    if text is not None:
        return f"{text[0].upper()}{text[1:]}. Its hook {slowest.hook} runs in every step."
    loop = _LOOPS.get(str(stage), "train")
    if slowest.hook:
        what = slowest.subject
        count = "batch_idx" if slowest.hook in _HOOKS_WITH_BATCH_IDX else "trainer.global_step"
    else:
        what = f"what {slowest.owner} does in on_{loop}_batch_start, on_{loop}_batch_end and the hooks between"
        count = "self.global_step" if loop == "train" else "batch_idx"
    return (
        f"Run {what} every {every} batches: begin it with `if {count} % {every}: return`; or move its work to "
        f"on_{loop}_epoch_end, or to a thread."
    )
