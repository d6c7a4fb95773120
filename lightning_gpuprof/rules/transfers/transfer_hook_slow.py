"""Finds the hook of the user's own around the move of the batch that takes a good part of every step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import HookShare, Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    gain,
    is_cpu_only,
    ordinary_ratio,
    severity,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.steps.host_time import idle_evidence, most_held_ratio
from lightning_gpuprof.rules.wording import listed, millis, percent

_MOVES = "transfer_batch_to_device"


@dataclass(frozen=True, kw_only=True)
class TransferHookSlow(BaseRule):
    """A hook around the move of the batch takes a noticeable part of every step.

    ## What it means

    `on_before_batch_transfer`, `transfer_batch_to_device` and `on_after_batch_transfer` of the LightningModule or its
    DataModule run on the training thread, between the fetch of a batch and `training_step`. What they do there, the
    training waits for.

    ## How it is measured

    The exclusive time of each overridden hook, as a share of the period of steady steps that were not traced. The share
    is the lower bound of its median; for a hook that works only every few batches, which a median does not see, its
    part of the total time without the excess of outlying steps. The hook with the largest share is named, with the line
    of your code at which the training thread was most often seen in it. The gain is its time per step. On a GPU only
    the part counts in which the device idles while the batch is moved, which a trace window tells; without one it is
    information only.

    ## When it is wrong

    - The copy to a GPU is a part of an overridden `transfer_batch_to_device`: it stays when the rest goes, so there
      the gain has no lower bound.
    - On a GPU, a hook that reads a tensor's value (`.item()`, `.cpu()`) waits for the device: see `sync-points`.
    - Work that moves to the DataLoader workers needs CPUs there.

    ## What to do

    Prepare samples in the Dataset or in `collate_fn`, where DataLoader workers do it beside the step; on a GPU keep
    `on_after_batch_transfer` to operators on whole batches.

    ## Example

    "Net.on_after_batch_transfer takes 52 % (at least 51 %) of the step: 6.20 ms of 11.9 ms."
    """

    id = "transfer-hook-slow"
    specialises = ("blocked-in-step", "h2d-pageable")

    least_ratio: float = threshold(0.05, source="torch-tb-profiler: DataLoader above 5 %; here the move of the batch")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the slowest hook."""
        period_ms = steady_period_ms(metrics)
        hooks = (
            (ordinary_ratio(metrics, one.share, "h2d"), one) for one in metrics.transfer_hooks if usable(one.share)
        )
        known = sorted(hooks, key=lambda hook: hook[0], reverse=True)
        if not known:
            return None
        (ratio, slowest), *rest = known
        most_ratio = most_held_ratio(metrics, "h2d")
        held_ratio = ratio if most_ratio is None else min(ratio, most_ratio)
        taken_ms = max(slowest.share.median_ms, ratio * period_ms)
        recoverable_ms = taken_ms if most_ratio is None else min(taken_ms, most_ratio * period_ms)
        if held_ratio < self.least_ratio or not worthwhile(recoverable_ms, period_ms):
            return None
        level: Severity = "info" if most_ratio is None else severity(held_ratio, metrics.steps.steady_count)
        copies = slowest.hook == _MOVES and not is_cpu_only(metrics)
        name = f"{slowest.owner}.{slowest.hook}"
        others = [f"{one.hook} {percent(max(one.share.median_ratio, of_step))}" for of_step, one in rest]
        seen = f", mostly at {slowest.site}" if slowest.site else ""
        also = f" Beside it: {listed(others)}." if others else ""
        return self.finding(
            severity=level,
            subject=name,
            summary=(
                f"{name} takes {percent(taken_ms / period_ms)} (at least {percent(ratio)}) of the step: "
                f"{millis(taken_ms)} of {millis(period_ms)}{seen}.{also}"
            ),
            advice=_advice(slowest, on_cpu=bool(is_cpu_only(metrics))),
            evidence=(
                self.evidence("least_ratio", taken_ms / period_ms, f"{slowest.hook} share of the step"),
                Evidence(name=f"{slowest.hook} per step", value=taken_ms, unit="ms"),
                *idle_evidence(metrics, most_ratio, "h2d"),
            ),
            gain=gain(recoverable_ms, 0.0 if copies or most_ratio is None else held_ratio * period_ms, period_ms),
            confidence=0.9 if is_cpu_only(metrics) else 0.75,
            explains=claims.BATCH_COPIES if copies else claims.BATCH_TRANSFER,
        )


def _advice(slowest: HookShare, *, on_cpu: bool) -> str:
    at = f" (at {slowest.site})" if slowest.site else ""
    beside = "into the Dataset or collate_fn, where DataLoader workers do it beside the step: num_workers >= 1"
    if slowest.hook == _MOVES:
        return (
            f"Let {_MOVES} only move the batch: return super().{_MOVES}(batch, device, dataloader_idx). Move "
            f"the rest of its work{at} {beside}."
        )
    if slowest.hook == "on_after_batch_transfer" and not on_cpu:
        return (
            f"Keep {slowest.hook} to operators on the whole batch on the device{at}: no loop over samples, no "
            f".item(), .cpu() or numpy. What has to be done on the CPU moves {beside}."
        )
    return f"Move the work of {slowest.hook}{at} {beside}."
