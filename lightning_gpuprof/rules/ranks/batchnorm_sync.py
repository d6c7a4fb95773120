"""Ranks exchange the statistics of each SyncBatchNorm, and the GPU waits for it.

## What it means
A SyncBatchNorm normalizes with mean and variance over the batches of all ranks. Each one gathers them from all ranks in
forward and reduces their gradients in backward. These are a few KiB: what counts is the latency of each collective,
which is the same for a small batch and a large one. Nothing can be computed meanwhile, because the next layer needs the
result. In forward, the host waits for it, too.

## How it is measured
The model has modules of `torch.nn.SyncBatchNorm`, and each step of the trace windows has at least half as many
all-gathers of at most 64 KiB per rank. Of these, and of as many small all-reduces as there are such modules, the time
counts in which nothing is computed.

Collectives also wait for late ranks: see `exposed-comm`. The lower bound is transfer only.

## When it is wrong
- With few samples per rank, as in detection or segmentation, the accuracy may need the statistics of all ranks.
- Other small all-gathers and all-reduces, such as those of metrics, may be counted.
- The GPU also idles until the host has caught up after each wait in forward. That is not counted: see `sync-points`.

## What to do
With 16 samples or more on each rank, BatchNorm without synchronization hardly changes the accuracy (Wu and He 2018,
Group Normalization): leave `sync_batchnorm=True` out. With fewer, use GroupNorm, which needs no other samples, or a
larger batch on each rank, so that there are fewer steps.
"""

from typing import Any

from lightning_gpuprof.rules.base import (
    Advice,
    BaseRule,
    Change,
    Finding,
    Metrics,
    NotApplicable,
    claims,
    counted,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.collective_times import collective_run

_LAYERS = 50
_NO_LAYERS: dict[str, Any] = {"model.sync_batchnorms": None}
_STEPS = 5
"""Of the windows of examples."""
_WITHOUT = Change(remove=("Trainer(..., sync_batchnorm=True)",), add=("Trainer(...)",))


def _synced(
    ms: float = 0.1, *, gathers: int = _LAYERS, kib: float = 32.0, exposed_ms: float | None = None, **run: Any
) -> dict[str, Any]:
    """50 modules, with so many all-gathers and all-reduces in each step of 50 ms."""
    exposed = {"exposed_ms": exposed_ms, "count": _STEPS * gathers}
    return {
        "run": {"model.sync_batchnorms": _LAYERS, "trainer.sync_batchnorm": True, **run},
        "collectives": (
            {"kind": "all_gather", "ms": ms, "mb": kib / 1024, **exposed},
            {"kind": "all_reduce", "ms": ms, "mb": kib / 1024 / 8, **exposed},
        ),
    }


class BatchnormSync(BaseRule):
    id = "batchnorm-sync"
    title = "Each SyncBatchNorm waits for all ranks"
    needs = "ranks"
    specialises = ("exposed-comm",)

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    least_gathers_ratio: float = threshold(0.5, source="heuristic: half of the modules are in use")
    most_kib: float = threshold(64.0, source="two values for each of 8,192 channels, in fp32")
    enough_samples: int = threshold(16, source="Wu and He 2018: with fewer, BatchNorm loses accuracy")

    examples = (
        fires(
            "50 modules take 0.2 ms each",
            "critical",
            "The statistics of 50 SyncBatchNorms are exchanged in each step, which takes 10.0 ms of each 50.0 ms step "
            "... Leave sync_batchnorm=True out: each rank has 32 samples",
            saves_ms=10.0,
            **_synced(),
        ),
        fires(
            "the model converts itself",
            "critical",
            "convert_sync_batchnorm",
            **_synced(**{"trainer.sync_batchnorm": False}),
        ),
        fires(
            "a rank has 4 samples",
            "critical",
            "GroupNorm ... batch_size above 4",
            **_synced(**{"loader.batch_size": 4}),
        ),
        quiet("they take 1 ms", **_synced(0.01)),
        quiet("computation covers them", **_synced(exposed_ms=0.001)),
        looks_alike("all-gathers are large", **_synced(kib=8 * 65.0)),
        looks_alike("few modules are in use", **_synced(1.0, gathers=20)),
        not_evaluated("nothing was traced", "no trace window", **_synced(), metrics={"windows": ()}),
        not_applicable("it has no SyncBatchNorm", "no SyncBatchNorm", **_synced(**_NO_LAYERS)),
        not_applicable("there is one rank", "one rank", **_synced(**{"trainer.world_size": 1})),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        layers = metrics.positive("model.sync_batchnorms")
        if layers is None:
            raise NotApplicable("the model has no SyncBatchNorm")
        if not metrics.is_distributed:
            raise NotApplicable("there is one rank")
        run = collective_run(metrics)
        if run is None:
            return None
        most_bytes = self.most_kib * 1024
        gathers = min(window.small("all_gather", most_bytes).per_step for window in run.windows)
        if gathers < self.least_gathers_ratio * layers:
            return None
        exposed, transfer = run.of_layers(("all_gather", "all_reduce"), layers, most_bytes)
        cost = metrics.cost(exposed.ms, transfer.lower_ms)
        if not cost.is_worth(self.least_ratio):
            return None
        return self.finding(
            subject="SyncBatchNorm",
            summary=f"The statistics of {counted(layers, 'SyncBatchNorm')} are exchanged in each step, which takes "
            f"{cost}, beside which nothing is computed.",
            advice=self._advice(metrics),
            evidence=(
                self.evidence("least_ratio", min(1.0, cost.ratio), "exchange of statistics, share of the step"),
                self.fact("small all-gathers per step", gathers),
                self.fact("ranks", run.ranks),
                self.fact("step time", run.period_ms, "ms"),
            ),
            cost=cost,
            confidence=0.7,
            explains=claims.COMMUNICATION,
        )

    def _advice(self, metrics: Metrics) -> Advice:
        samples = metrics.positive("loader.batch_size")
        by_trainer = metrics.condition("trainer.sync_batchnorm") is True
        without = "Leave sync_batchnorm=True out" if by_trainer else "Leave convert_sync_batchnorm out"
        if samples is None:
            return f"{without} if each rank has {self.enough_samples} samples or more. If not, use GroupNorm.", None
        if samples < self.enough_samples:
            return (
                "Use GroupNorm, which needs no statistics of other samples. Or, as the exchange takes as long for more "
                f"samples, raise batch_size above {samples} per rank.",
                None,
            )
        why = f"each rank has {samples} samples, enough for statistics of its own"
        return f"{without}: {why}.", _WITHOUT if by_trainer else None
