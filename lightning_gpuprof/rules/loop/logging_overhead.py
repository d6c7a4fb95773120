"""Collecting logged values and writing them to the loggers slows the steps.

## What it means
Each `self.log` updates a running value (50 to 200 µs), in every step. Every `log_every_n_steps` Lightning reduces the
values and hands them to each logger, on the main thread. Many calls, or a logger that writes synchronously, make that
slow.

## How it is measured
The phase `logging` as a share of the steady, untraced steps: the lower bound of its median, or, where values are
written every few steps, its part of the total without outliers. Where other programs use the CPUs, so that the main
thread waits for one in 5 % of the step or more, that wait does not count. 1 ms, which a few values cost in any run, is
taken off first. On a GPU only the time counts in which it idles, which a trace window shows; without one it is
information only.

Calls of `self.log` are timed apart, as `log_every_n_steps` makes only the rest rarer. So are `log_metrics` and `save`
of each logger: one that takes half of the time of logging is named, with the median time of a write.

## When it is wrong
- Values that your code computes only to log them count where they are computed, for example as `forward`. So does a
  sixth of each call of `self.log`: the gain may be larger than promised.
- On a GPU, reducing a logged tensor may wait for the device, and that wait then moves elsewhere.
- A logger that stalls in rare steps: see `step-outliers`.
- What a callback or your own code writes to a logger counts for the hook that does it.

## What to do
Where writing is slow, write less often: `Trainer(log_every_n_steps=...)`. Where the calls are, call `self.log` only
every N-th batch (`if (batch_idx + 1) % 50 == 0:`), or log fewer keys. `self.log_dict` and `on_epoch=True` save nothing:
with 20 values they took 3.9 and 4.2 ms per step where `self.log` took 4.0.
"""

import math

from msgspec.structs import replace

from lightning_gpuprof.model.metrics import LoggerWrites
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.rules.base import (
    Change,
    Cost,
    Finding,
    Metrics,
    Share,
    claims,
    millis,
    threshold,
)
from lightning_gpuprof.rules.callbacks import LOG_EVERY, logging_change, most_every, why_every
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import PhaseRule, idle_evidence

_CALLS_COST = (
    "Raising log_every_n_steps would not help, because the calls themselves are slow; self.log_dict and on_epoch=True "
    "cost as much."
)
"""Measured with Lightning 2.6 and 20 values: 4.0 ms a step by self.log, 3.9 by log_dict, 4.2 by on_epoch=True."""

_GPU = {"run": {"device.type": "cuda"}}
_CALLS = {"log_calls": Share(median_ratio=0.15, lower_ratio=0.15, median_ms=10.0, total_ratio=0.15)}


class LoggingOverhead(PhaseRule):
    id = "logging-overhead"
    phase = "logging"
    title = "Logging slows down the steps"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    fixed_ms: float = threshold(1.0, source="heuristic: one or two logged values cost 0.2 to 0.6 ms on a slow machine")
    wanted_ratio: float = threshold(0.01, source="heuristic: what logging may cost")
    named_ratio: float = threshold(0.5, source="heuristic: a logger that takes half of the time of logging is named")

    examples = (
        fires(
            "every step writes for 12 of 62 ms",
            "warning",
            "Log less often: Trainer(..., log_every_n_steps=20)",
            saves_ms=11.4,
            times_ms={"logging": 12.0},
            run={"trainer.log_every_n_steps": 1},
        ),
        fires(
            "of 12 ms, self.log takes 10",
            "warning",
            "Call self.log every 50 steps",
            saves_ms=9.8,
            times_ms={"logging": 12.0},
            run={"trainer.log_every_n_steps": 1},
            metrics=_CALLS,
        ),
        fires(
            "one of two loggers takes 11 of 12 ms",
            "warning",
            "RemoteLogger takes 11.0 ms per write, CSVLogger 0.500 ms. ... Log less often",
            times_ms={"logging": 12.0},
            run={"trainer.log_every_n_steps": 1},
            writes_ms={"RemoteLogger": 11.0, "CSVLogger": 0.5},
        ),
        fires(
            "self.log takes most of it",
            "warning",
            "Call self.log every 50 steps",
            lacks="CSVLogger",
            times_ms={"logging": 12.0},
            writes_ms={"CSVLogger": 0.5},
            metrics=_CALLS,
        ),
        fires("every step updates values", "warning", "Call self.log every 50 steps", times_ms={"logging": 12.0}),
        fires("the GPU idles for 15 %", "warning", "Log", times_ms={"logging": 50.0}, idle_ratio=0.15, **_GPU),
        fires("what the GPU does is not known", "info", "Log", times_ms={"logging": 50.0}, **_GPU),
        quiet("the GPU is busy at that time", times_ms={"logging": 50.0}, idle_ratio=0.02, **_GPU),
        quiet(
            "it takes 0.19 ms of 1 ms", times_ms={"forward": 0.3, "backward": 0.3, "optimizer": 0.1, "logging": 0.19}
        ),
        looks_alike("callbacks hold the step", times_ms={"callbacks": 60.0}),
        looks_alike(
            "ranks wait for a late one",
            times_ms={"logging": 12.0},
            run={"trainer.synced_values": 1},
            ranks={"excess_ms": 0.0, "ranks": 2, "logging_ms": (12.0, 0.5)},
        ),
        not_evaluated("three steps are steady", "3 steady steps", steady=3),
    )

    def part(self, metrics: Metrics) -> Share | None:
        """The phase. Certain is what it takes without waits for a CPU that others use, or for a late rank."""
        whole, own, least_ms = metrics.share_of("logging"), metrics.logging_without_delay, metrics.least_logging_ms
        without_delay = whole.lower_ratio if own is None else own.lower_ratio
        without_wait = whole.lower_ratio if least_ms is None else least_ms / metrics.step_ms
        return replace(whole, lower_ratio=min(whole.lower_ratio, without_delay, without_wait))

    def judge(self, metrics: Metrics, found: Cost) -> Finding:
        every, ratio = metrics.positive("trainer.log_every_n_steps"), found.lower_ms / found.step_ms
        now = every or LOG_EVERY
        calls_ms = 0.0 if metrics.log_calls is None else metrics.log_calls.median_ms
        written = max(0.0, 1.0 - calls_ms / found.ms)
        in_each_step = (every or 0) > 1 and metrics.shares["logging"].lower_ratio >= self.least_ratio
        rarer = max(2, math.ceil(written * ratio / self.wanted_ratio))
        change = None if written < 0.5 or in_each_step else logging_change(metrics, rarer)
        if change is not None:
            then = most_every(metrics, now * rarer)
            part = written * (1.0 - now / then)
            left_ms = ratio * (1.0 - part) * found.step_ms
            why = why_every(metrics, then, now * rarer, left_ms, self.wanted_ratio)
            leaves, advice = "", f"Log less often: {change.added[0]}. {why}"
        else:
            then = most_every(metrics, now if now > 1 else LOG_EVERY)
            part = (calls_ms / found.ms if calls_ms else 1.0) * (1.0 - 1.0 / then)
            change = Change(add=(f"if (batch_idx + 1) % {then} == 0:", "    self.log(...)"))
            lost = f"Trade-off: epoch averages then use one step in {then}."
            advice = f"Call self.log every {then} steps: {' '.join(map(str.strip, change.add))}. {lost} {_CALLS_COST}"
            left = f"{millis(found.ms * (1.0 - part))} of logging per step"
            leaves = f"{left}, and whatever computes the values in each step"
        slow = self._slow_logger(metrics, found)
        return self.finding(
            severity=found.severity_beyond(self.fixed_ms),
            subject=slow.name if slow is not None else str(metrics.condition("trainer.loggers") or "logging"),
            summary=f"Logging takes {found}.{'' if slow is None else _writes_words(metrics, slow)}",
            advice=advice,
            change=change,
            evidence=(
                self.evidence("least_ratio", found.ratio, "logging, share of the step"),
                self.fact("logging per step", found.ms, "ms"),
                self.fact("step time", found.step_ms, "ms"),
                idle_evidence(metrics, "logging"),
                self.fact("log_every_n_steps", every),
                None if slow is None else self.fact(f"one write of {slow.name}", slow.each_ms, "ms"),
            ),
            gain=found.part(part).gain,
            leaves=leaves,
            confidence=0.9 if metrics.is_cpu_only else 0.7,
            explains=claims.LOGGING,
        )

    def _slow_logger(self, metrics: Metrics, found: Cost) -> LoggerWrites | None:
        """The logger that takes most of the time of logging; None: none does."""
        slowest = max(metrics.logger_writes, key=lambda one: one.share.total_ratio, default=None)
        if slowest is None or not usable(slowest.share) or not possible(slowest.each_ms):
            return None
        return slowest if slowest.share.total_ratio >= self.named_ratio * found.ratio else None


def _writes_words(metrics: Metrics, slow: LoggerWrites) -> str:
    others = [one for one in metrics.logger_writes if one is not slow and possible(one.each_ms)]
    beside = [f"{slow.name} takes {millis(slow.each_ms)} per write", *(f"{o.name} {millis(o.each_ms)}" for o in others)]
    return f" {', '.join(beside)}."
