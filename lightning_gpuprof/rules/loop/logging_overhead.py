"""Finds that collecting, reducing and writing logged values takes a noticeable part of the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import millis, percent
from lightning_gpuprof.model.signals import condition
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.callbacks import LOG_EVERY, logging_change, most_every
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HostTime, PhaseRule, idle_evidence

_GPU = {"run": {"device.type": "cuda"}}


@dataclass(frozen=True, kw_only=True)
class LoggingOverhead(PhaseRule):
    """Collecting logged values and writing them to the loggers slows the steps.

    ## What it means
    Each `self.log` updates a running value (50 to 200 us). After the batch Lightning collects the values, and every
    `log_every_n_steps` it reduces them and hands them to each logger, on the main thread. Many keys, many calls or
    a logger that writes synchronously make that slow.

    ## How it is measured
    The phase `logging` as a share of the steady, untraced steps: the lower bound of its median, or, where values are
    written every few steps, its part of the total without outliers. 1 ms, which a few values cost in any run, is taken
    off first. On a GPU only the time counts in which it idles, which a trace window shows; without one it is
    information only.

    ## When it is wrong
    - Values that your code computes only to log them count where they are computed, for example as `forward`.
    - On a GPU, reducing a logged tensor may wait for the device, and that wait then moves elsewhere.
    - A logger that stalls in rare steps: see `step-outliers`.

    ## What to do
    Log less often (`Trainer(log_every_n_steps=...)`), fewer keys (one `self.log_dict`), and `on_step=False,
    on_epoch=True` for what is read per epoch.
    """

    id = "logging-overhead"
    phase = "logging"
    title = "Logging slows down the steps"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    fixed_ms: float = threshold(1.0, source="heuristic: one or two logged values cost 0.2 to 0.6 ms on a slow machine")
    wanted_ratio: float = threshold(0.01, source="heuristic: what logging may cost")

    examples = (
        fires(
            "every step writes for 12 of 62 ms",
            "warning",
            "Log less often: Trainer(..., log_every_n_steps=20)",
            saves_ms=12.0,
            times_ms={"logging": 12.0},
            run={"trainer.log_every_n_steps": 1},
        ),
        fires("every step updates values", "warning", "Log fewer keys per step", times_ms={"logging": 12.0}),
        fires("the GPU idles for 15 %", "warning", "Log", times_ms={"logging": 50.0}, idle_ratio=0.15, **_GPU),
        fires("what the GPU does is not known", "info", "Log", times_ms={"logging": 50.0}, **_GPU),
        quiet("the GPU works meanwhile", times_ms={"logging": 50.0}, idle_ratio=0.02, **_GPU),
        quiet(
            "it takes 0.19 ms of 1 ms", times_ms={"forward": 0.3, "backward": 0.3, "optimizer": 0.1, "logging": 0.19}
        ),
        looks_alike("callbacks hold the step", times_ms={"callbacks": 60.0}),
        not_evaluated("three steps are steady", "3 steady steps", steady=3),
    )

    def judge(self, metrics: Metrics, time: HostTime) -> Finding:
        """Put it into words."""
        taken_ms, period_ms = time.taken_ms, time.period_ms
        shown_ratio = taken_ms / period_ms
        loggers = condition(metrics, "trainer.loggers")
        evidence = [
            self.evidence("least_ratio", shown_ratio, "logging, share of the step"),
            Evidence(name="logging per step", value=taken_ms, unit="ms"),
            Evidence(name="step time", value=period_ms, unit="ms"),
            *idle_evidence(metrics, "logging"),
        ]
        every = condition(metrics, "trainer.log_every_n_steps")
        if isinstance(every, int):
            evidence.append(Evidence(name="log_every_n_steps", value=every))
        advice, change = _less(
            metrics,
            every if isinstance(every, int) else None,
            ratio=time.ratio,
            rarer=max(2, math.ceil(time.ratio / self.wanted_ratio)),
            each_step=metrics.shares["logging"].lower_ratio >= self.least_ratio,
        )
        return self.finding(
            severity=time.severity(metrics.steps.steady_count, fixed_ms=self.fixed_ms),
            subject=loggers if isinstance(loggers, str) and loggers else "logging",
            summary=f"Logging takes {millis(taken_ms)} of each {millis(period_ms)} step: {percent(shown_ratio)}.",
            advice=advice,
            change=change,
            evidence=tuple(evidence),
            gain=time.gain,
            confidence=0.9 if metrics.run.get("device.type") == "cpu" else 0.7,
            explains=claims.LOGGING,
        )


def _less(
    metrics: Metrics, every: int | None, *, ratio: float, rarer: int, each_step: bool
) -> tuple[str, Change | None]:
    fewer = "one self.log_dict(...) instead of many self.log, and on_step=False, on_epoch=True for values of an epoch"
    if every is not None and every > 1 and each_step:
        return (
            f"Log fewer keys per step: {fewer}. Writing them less often would not help: every step takes the time, and "
            f"log_every_n_steps is {every}."
        ), None
    change = logging_change(metrics, rarer)
    if change is None:
        return f"Log fewer keys: {fewer}.", None
    now = every or LOG_EVERY
    then = most_every(metrics, now * rarer)
    why = f"Why {then}: that leaves {percent(ratio * now / then)} of the step."
    return f"Log less often: {change.added[0]}. {why} And log fewer keys: {fewer}.", change
