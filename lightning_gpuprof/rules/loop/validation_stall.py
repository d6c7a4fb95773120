"""Finds that validation takes a large part of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import (
    condition,
    gain,
    require_possible,
    run_ms_per_step,
    run_s,
    severity,
    share_evidence,
    source_of,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.wording import counted, percent, seconds


@dataclass(frozen=True, kw_only=True)
class ValidationStall:
    """Validation takes a large part of the wall time, while training waits.

    ## What it means

    Lightning validates on the same process and device as it trains. The time of a validation run is time without
    training steps, and it does not show in the time of a step.

    ## How it is measured

    The wall time of all validation runs inside `fit` (not the sanity check before training) over the wall time without
    set-up and tear-down. The proposed factor k is the smallest that brings the share to 5 %, at most 10 and at most the
    number of validation runs. The gain is (1 - 1/k) of the validation time, spread over all training steps. Below 40 %
    of the wall time it is at most a warning: a fifth of the time may be wanted.

    ## When it is wrong

    - If a metric of each validation steers the training (early stopping, a schedule on a plateau), fewer runs change
      the training, too.
    - Callbacks that work during validation count as validation.
    - Short runs validate relatively often: look at a run of the real length.

    ## What to do

    Validate less often, on fewer batches, with larger batches (no gradients are kept, so they fit), or with workers on
    the validation loader.

    ## Example

    "Validate every 10 epochs instead of every epoch: Trainer(check_val_every_n_epoch=10)" for 20 validation runs of
    0.15 s in a run of 3.3 s.
    """

    id: ClassVar[str] = "validation-stall"

    least_ratio: float = threshold(0.20, source="catalogue: a fifth of the wall time")
    critical_ratio: float = threshold(0.40, source="ours: less than that may be wanted")
    wanted_ratio: float = threshold(0.05, source="ours: what validation may cost")
    most_times_rarer: int = threshold(10, source="ours: fewer runs than that hide overfitting")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the validation runs of the whole fit."""
        total_s = run_s(metrics)
        validation = metrics.validation
        require_possible("the time of validation", validation.total_s)
        ratio = validation.total_s / total_s
        if validation.count == 0 or not ratio >= self.least_ratio:
            return None
        ratio = min(1.0, ratio)
        rest_s = max(total_s - validation.total_s, 1e-9)
        wanted = math.ceil(validation.total_s * (1 - self.wanted_ratio) / (self.wanted_ratio * rest_s))
        rarer = max(2, min(wanted, self.most_times_rarer, max(2, validation.count)))
        recoverable_ms = min(validation.total_s, total_s) * (1 - 1 / rarer) * 1e3 / metrics.steps.count
        if not worthwhile(recoverable_ms, run_ms_per_step(metrics)):
            return None
        level: Severity = severity(ratio, metrics.steps.steady_count)
        if level == "critical" and ratio < self.critical_ratio:
            level = "warning"
        each = "" if validation.median_s is None else f", {seconds(validation.median_s)} each"
        return Finding(
            rule=self.id,
            severity=level,
            subject=validation.subject or "validation loop",
            summary=(
                f"{counted(validation.count, 'validation run')} took {seconds(validation.total_s)} of "
                f"{seconds(total_s)} ({percent(ratio)}){each}."
            ),
            advice=_advice(metrics, rarer=rarer),
            evidence=(
                share_evidence(
                    "validation share of the wall time",
                    ratio,
                    limit=self.least_ratio,
                    source=source_of(type(self), "least_ratio"),
                ),
                Evidence(name="validation", value=validation.total_s, unit="s"),
                Evidence(name="wall time without set-up and tear-down", value=total_s, unit="s"),
                Evidence(name="validation runs", value=validation.count),
            ),
            gain=gain(recoverable_ms, recoverable_ms, run_ms_per_step(metrics)),
            confidence=0.9,
            explains="validation",
        )


def _advice(metrics: Metrics, *, rarer: int) -> str:
    count = metrics.validation.count
    epochs = max(1, len(metrics.epoch_starts))
    also = "; or fewer and larger batches: Trainer(limit_val_batches=...), a larger batch_size in val_dataloader."
    if count == 1:
        return f"Validate on 1/{rarer} of the batches: Trainer(limit_val_batches={1 / rarer:.2g}){also}"
    current, interval = (condition(metrics, f"trainer.{n}") for n in ("check_val_every_n_epoch", "val_check_interval"))
    if current is None and interval is not None:  # None itself is not recorded: batches count over all epochs
        if not isinstance(interval, int) or isinstance(interval, bool):
            return f"Validate {rarer} times less often: Trainer(val_check_interval=...){also}"
        then = interval * rarer
        return (
            f"Validate every {then:,} batches instead of every {interval:,}: Trainer(val_check_interval={then}, "
            f"check_val_every_n_epoch=None){also}"
        )
    if count > epochs:
        per_epoch = count / epochs
        if per_epoch > rarer:
            how = f"Trainer(val_check_interval={rarer / per_epoch:.2g})"
        else:
            how = f"Trainer(val_check_interval=1.0, check_val_every_n_epoch={math.ceil(rarer / per_epoch)})"
        return f"Validate {rarer} times less often than {per_epoch:.3g} times per epoch: {how}{also}"
    every = current if isinstance(current, int) and not isinstance(current, bool) and current > 0 else 1
    now = "every epoch" if every == 1 else f"every {every} epochs"
    then = every * rarer
    return f"Validate every {then} epochs instead of {now}: Trainer(check_val_every_n_epoch={then}){also}"
