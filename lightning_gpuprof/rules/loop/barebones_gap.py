"""Steps are so short that Lightning's own loop takes a large part of them.

## What it means
Lightning's loop costs a fraction of a millisecond per batch, whatever the batch size: progress, unused hooks,
bookkeeping. Steps of a few milliseconds feel that.

## How it is measured
The phase `loop` (Lightning's work between the named actions) as a share of the step time of steady steps: the lower
bound of its median, if the step time is below 20 ms. Callbacks and logging have rules of their own. The gain is that of
batches four times as large (of single samples, eight), if the model's own time grew with them: three quarters of the
phase. It is information only.

## When it is wrong
- While a device is busy, the host's time costs nothing.
- Larger batches may change how the model learns.

## What to do
Larger batches; less per-batch work. `Trainer(barebones=True)` shows what is left without logging, callbacks and
progress bar: as a test only.
"""

from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, claims, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.small_batch_loader import PROPOSED

_TIMES = 4
"""Batches as large. Heuristic; of single samples as many as :mod:`small_batch_loader` proposes."""

_NO_OTHERS = dict.fromkeys(("data_wait", "h2d", "backward", "optimizer", "zero_grad", "callbacks", "logging"), 0.0)


class BarebonesGap(BaseRule):
    id = "barebones-gap"
    title = "Steps are too short for Lightning's loop"

    least_ratio: float = threshold(0.10, source="heuristic")
    most_period_ms: float = threshold(20.0, source="heuristic: longer steps hide it")

    examples = (
        fires(
            "the loop takes a fifth", "info", "Set batch_size=128", times_ms={**_NO_OTHERS, "forward": 4.0, "loop": 1.0}
        ),
        fires(
            "batches of one sample",
            "info",
            "Set batch_size=8",
            batch_size=1,
            times_ms={**_NO_OTHERS, "forward": 4.0, "loop": 1.0},
        ),
        quiet("the loop takes less than a tenth of 5 ms", times_ms={**_NO_OTHERS, "forward": 4.0, "loop": 0.44}),
        looks_alike("the loop takes as much of 21 ms", times_ms={**_NO_OTHERS, "forward": 11.0, "loop": 10.0}),
        not_evaluated("four steps are steady", "4 steady steps", steady=4),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        cost, batch = metrics.cost_of(metrics.share_of("loop")), metrics.batch_size
        times = PROPOSED if batch == 1 else _TIMES
        saved = cost.part(1 - 1 / times)
        if cost.step_ms >= self.most_period_ms or cost.lower_ratio < self.least_ratio or not saved.is_worth():
            return None
        larger = f"Set batch_size={batch * times}" if batch else f"Use batches {times} times as large"
        change = setting("DataLoader", batch_size=(batch, batch * times)) if batch else None
        return self.finding(
            severity="info",
            subject="Lightning's loop",
            summary=f"Lightning's own loop takes {cost}, whatever the batch size.",
            advice=f"{larger} if training allows it: {times} times as many samples then share the loop's time. "
            "Trainer(barebones=True) shows what is left without logging, callbacks and progress bar.",
            change=change,
            evidence=(
                self.evidence("least_ratio", cost.ratio, "loop, share of the step"),
                self.evidence("most_period_ms", cost.step_ms, "step time", "ms"),
            ),
            cost=saved,
            confidence=0.5 if metrics.is_cpu_only else 0.3,
            explains=claims.LOOP,
        )
