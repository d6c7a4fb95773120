"""DDP's gradient buckets are so small that latency dominates, or so large that nothing is left to hide them behind.

## What it means
DDP gathers gradients in buckets of `bucket_cap_mb` (25 by default) and reduces each as soon as it is full. Small
buckets pay the latency of a collective many times. A bucket with most of the gradients is full only when the backward
ends.

## How it is measured
The rule needs a `bucket_cap_mb` that differs from the default, and exposed communication of at least 5 % of the
untraced step. In trace windows, one of these must hold:

- a step has more than 4 times as many all-reduces as 25 MB buckets would make;
- the largest all-reduce holds more than half of the gradients of a model of at least 100 MB.

The exposed communication bounds the gain. Only a run shows how much of it another size saves, so the lower bound is 0.

## When it is wrong
All-reduces of the model's own (synchronised metrics, SyncBatchNorm) are counted from 64 KiB on. On slow networks, large
buckets can be right: that is why only exposed time counts.

## What to do
Use `DDPStrategy(bucket_cap_mb=25)`, the default. Then try twice and half of it.
"""

import math

from lightning_gpuprof.model.collectives import CollectiveWindow
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.rules.base import BaseRule, Metrics, MissingSignal, claims, counted, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.collective_times import MIB, collective_run

_DEFAULT_MB = 25
"""``bucket_cap_mb`` of torch."""


def _small(
    count: int, *, ms: float = 0.1, mb: float = 1.0, cap_mb: int | None = 1, strategy: str = "DDPStrategy"
) -> dict[str, object]:
    run = {"trainer.bucket_cap_mb": cap_mb, "model.parameter_bytes": 100 * MIB, "trainer.strategy": strategy}
    return {"collectives": ({"ms": ms, "count": 5 * count, "mb": mb},), "run": run}


def _one_bucket(mb: float) -> dict[str, object]:
    run = {"trainer.bucket_cap_mb": 1000, "model.parameter_bytes": 400 * MIB}
    return {"collectives": ({"ms": 10.0, "count": 5, "mb": mb},), "run": run}


class DdpBucketSize(BaseRule):
    id = "ddp-bucket-size"
    title = "DDP's buckets have the wrong size"
    needs = "ranks"
    specialises = ("exposed-comm",)

    least_ratio: float = threshold(0.05, source="heuristic")
    most_times: float = threshold(4.0, source="the method: 4 times the buckets of 25 MB")
    most_in_one_ratio: float = threshold(0.5, source="heuristic")
    least_model_mb: float = threshold(100.0, source="heuristic: 4 buckets of the default size")
    least_reduced_kib: float = threshold(64.0, source="heuristic: smaller ones are metrics, not gradients")

    examples = (
        fires(
            "100 all-reduces of 1 MiB take 10 ms that nothing covers",
            "critical",
            "With gradient buckets of 1 MB, each step makes 100 all-reduces for 100 MiB ... bucket_cap_mb=25). "
            "That makes about 5",
            saves_ms=10.0,
            **_small(100),
        ),
        fires(
            "one bucket holds most gradients", "critical", "one all-reduce holds 390 of 400 MiB", **_one_bucket(390.0)
        ),
        fires("21 all-reduces, 25 MB would make 5", "critical", "makes 21 all-reduces", **_small(21, ms=1.0)),
        quiet("20 all-reduces", **_small(20, ms=1.0)),
        quiet("the size is the default", **_small(100, cap_mb=25)),
        quiet("the largest bucket holds a quarter", **_one_bucket(100.0)),
        quiet("they take little time", **_small(100, ms=0.01)),
        looks_alike("metrics are reduced", **_small(100, mb=0.01)),
        looks_alike("the strategy is FSDP", **_small(100, strategy="FSDPStrategy")),
        not_evaluated("the bucket size is not known", "bucket size", **_small(100, cap_mb=None)),
        not_evaluated("nothing was traced", "no trace window", **_small(100), metrics={"windows": ()}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        run = collective_run(metrics)
        if run is None or metrics.condition("trainer.strategy") not in (None, "DDPStrategy"):
            return None
        cap_mb, model_bytes = metrics.number("trainer.bucket_cap_mb"), metrics.positive("model.parameter_bytes")
        if cap_mb is None or model_bytes is None:
            raise MissingSignal("the bucket size of DDP or the size of the model is not known")
        exposed = metrics.cost(run.exposed.ms, run.exposed.lower_ms)
        if cap_mb == _DEFAULT_MB or not exposed.is_worth(self.least_ratio):
            return None
        buckets = min((self._buckets(window) for window in run.windows), default=0.0)
        wanted = 1 + math.ceil(model_bytes / MIB / _DEFAULT_MB)
        largest_bytes = min(
            max((one.message_bytes or 0 for one in window.communication.sizes if one.kind == "all_reduce"), default=0)
            for window in run.windows
        )
        many = cap_mb < _DEFAULT_MB and buckets > self.most_times * wanted
        late = (
            cap_mb > _DEFAULT_MB
            and model_bytes >= self.least_model_mb * MIB
            and largest_bytes > self.most_in_one_ratio * model_bytes
        )
        if not many and not late:
            return None
        why = (
            f"each step makes {counted(round(buckets), 'all-reduce')} for {model_bytes / MIB:.3g} MiB of parameters"
            if many
            else f"one all-reduce holds {largest_bytes / MIB:.3g} of {model_bytes / MIB:.3g} MiB and starts only after "
            "the backward pass"
        )
        change = setting("DDPStrategy", bucket_cap_mb=(cap_mb, _DEFAULT_MB))
        return self.finding(
            severity=exposed.severity,
            subject="DDPStrategy",
            summary=(
                f"With gradient buckets of {cap_mb:g} MB, {why}. Communication that does not overlap with computation "
                f"takes {exposed}."
            ),
            advice=(
                f"Use the default bucket size: {change.added[0]}. That makes about {wanted} reductions per step, most "
                "of them during the backward pass."
            ),
            change=change,
            evidence=(
                self.evidence("least_ratio", min(1.0, exposed.ratio), "exposed communication, share of the step"),
                Evidence(name="all-reduces in a step", value=buckets, limit=self.most_times * wanted if many else None),
                self.fact("bucket_cap_mb", cap_mb, "MB"),
                self.fact("largest all-reduce", largest_bytes / MIB, "MiB"),
                self.fact("step time", run.period_ms, "ms"),
            ),
            cost=exposed.uncertain,
            confidence=0.6,
            explains=claims.COMMUNICATION,
        )

    def _buckets(self, window: CollectiveWindow) -> float:
        return sum(
            window.per_step(one)
            for one in window.communication.sizes
            if one.kind == "all_reduce" and (one.message_bytes or 0) >= self.least_reduced_kib * 1024
        )
