"""Finds that collecting, reducing and writing logged values takes a noticeable part of the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    condition,
    ordinary_ratio,
    steady_period_ms,
    step_share,
    threshold,
)
from lightning_gpuprof.rules.steps.host_time import HostTime, idle_evidence, most_held_ratio
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class LoggingOverhead(BaseRule):
    """Collecting logged values and writing them to the loggers slows the steps.

    ## What it means

    Each call of `self.log` updates a running value (50 to 200 us a call); after the batch Lightning collects them, and
    every `log_every_n_steps` optimizer steps it reduces them and hands them to each logger, on the training thread.
    Many keys, many calls, or a logger that writes synchronously make this long.

    ## How it is measured

    The phase `logging` as a share of the period of steady steps that were not traced: the lower bound of its median;
    for logging that happens only every few steps, which a median does not see, its part of the total time without the
    excess of outlying steps. What a few logged values cost in any run (1 ms) is taken off before the share is held
    against the threshold. The gain is the whole time. On a GPU no more counts, in share and gain, than the device idles
    in a step, which a trace window tells; without one it is information only, and the gain has no lower bound.

    ## When it is wrong

    - Values that the user's own code computes only to log them count where they are computed, e.g. as `forward`.
    - A logger that stalls in rare steps is found by `step-outliers`.
    - On a GPU, reducing a logged tensor may wait for the device; that wait then moves elsewhere. Idle time of the
      device that something else causes counts for logging, too, as far as that is as long.

    ## What to do

    Log less often (`Trainer(log_every_n_steps=...)`), fewer keys (`self.log_dict` once instead of many `self.log`), and
    `on_step=False, on_epoch=True` for what is only read per epoch.

    ## Example

    "log_every_n_steps is 1: set Trainer(log_every_n_steps=20)" for 200 values per step that take 20 % of it.
    """

    id = "logging-overhead"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    fixed_ms: float = threshold(1.0, source="heuristic: one or two logged values cost 0.2 to 0.6 ms on a slow machine")
    wanted_ratio: float = threshold(0.01, source="heuristic: what logging may cost")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge all logging of a step."""
        period_ms = steady_period_ms(metrics)
        share = step_share(metrics, "logging")
        ratio = ordinary_ratio(metrics, share, "logging")
        most_ratio = most_held_ratio(metrics, "logging")
        taken_ms = max(share.median_ms, ratio * period_ms)
        time = HostTime(period_ms=period_ms, ratio=ratio, taken_ms=taken_ms, most_ratio=most_ratio)
        if not time.is_worth(self.least_ratio, fixed_ms=self.fixed_ms):
            return None
        shown_ratio = max(ratio, share.median_ratio)
        loggers = condition(metrics, "trainer.loggers")
        evidence = [
            self.evidence("least_ratio", shown_ratio, "logging share of the step"),
            Evidence(name="logging per step", value=taken_ms, unit="ms"),
            Evidence(name="period", value=period_ms, unit="ms"),
            *idle_evidence(metrics, most_ratio, "logging"),
        ]
        every = condition(metrics, "trainer.log_every_n_steps")
        if isinstance(every, int):
            evidence.append(Evidence(name="log_every_n_steps", value=every))
        return self.finding(
            severity=time.severity(metrics.steps.steady_count, fixed_ms=self.fixed_ms),
            subject=loggers if isinstance(loggers, str) and loggers else "logging",
            summary=(
                f"Logging (self.log and the loggers) takes {percent(shown_ratio)} of the step: "
                f"{millis(taken_ms)} of {millis(period_ms)}."
            ),
            advice=_advice(
                every if isinstance(every, int) else None,
                times=math.ceil(ratio / self.wanted_ratio),
                each_step=share.lower_ratio >= self.least_ratio,
            ),
            evidence=tuple(evidence),
            gain=time.gain,
            confidence=0.9 if metrics.run.get("device.type") == "cpu" else 0.7,
            explains=claims.LOGGING,
        )


def _advice(every: int | None, *, times: int, each_step: bool) -> str:
    fewer = "one self.log_dict(...) instead of many self.log, and on_step=False, on_epoch=True for epoch values"
    if every is None or every < 1:
        return f"Log {max(2, times)} times less often: Trainer(log_every_n_steps=...), and fewer keys: {fewer}."
    if every > 1 and each_step:
        return (
            f"Log fewer keys per step: {fewer}. The time passes in every step although log_every_n_steps is {every}, "
            "so it is the update of the logged values, not the writing."
        )
    rarer = every * max(2, times)
    return f"log_every_n_steps is {every}: set Trainer(log_every_n_steps={rarer}), and fewer keys: {fewer}."
