"""A hook around the batch transfer takes a noticeable part of every step.

## What it means
`on_before_batch_transfer`, `transfer_batch_to_device` and `on_after_batch_transfer` of the LightningModule or its
DataModule run on the main thread, between the fetch of a batch and `training_step`: training waits for them.

## How it is measured
The exclusive time of each overridden hook as a share of untraced steady steps, with its lower bound; of a hook that
works only every few batches, its part of the total time without outliers. The finding names the slowest hook and the
line at which the main thread was most often seen. The gain is its time per step. On a GPU only the part counts in which
the GPU idles; without a trace window it is information.

## When it is wrong
- The copy to a GPU is a part of an overridden `transfer_batch_to_device`: there the gain has no lower bound.
- On a GPU, a hook that reads a tensor's value (`.item()`, `.cpu()`) waits for the GPU: see `sync-points`.
- Work that moves to the DataLoader workers needs CPUs there.

## What to do
Prepare samples in the Dataset or in `collate_fn`, where DataLoader workers do it during the step; on a GPU keep
`on_after_batch_transfer` to operators on whole batches.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.metrics import HookShare
from lightning_gpuprof.model.signals import ordinary_ratio
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, claims, listed, percent, threshold, usable
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import idle_evidence

_BEFORE, _MOVES, _AFTER = "on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"
_SITE = "train.py:41 on_after_batch_transfer"
_SAID = f"50.0 ms of each 100 ms step (50 %), mostly in {in_words(_SITE)}"
_GPU = {"device.type": "cuda"}


def _hook(ms: float, name: str = _AFTER, **more: object) -> dict[str, object]:
    """A run of an example: steps of 50 ms and the hook."""
    hooks = {("Net", name): ms, ("Data", _BEFORE): 0.05}
    return {"times_ms": {"h2d": ms + 0.1}, "hooks": hooks, "sites": {"h2d": [(_SITE, 9)]}, **more}


class TransferHookSlow(BaseRule):
    id = "transfer-hook-slow"
    title = "A hook around the batch transfer is slow"
    specialises = ("blocked-in-step", "h2d-pageable")

    least_ratio: float = threshold(0.05, source="torch-tb-profiler: DataLoader above 5 %; here the move of the batch")

    examples = (
        fires("a hook takes 50 of 100 ms", "critical", _SAID, saves_ms=50, **_hook(50)),
        fires("the hook is before the transfer", "critical", "Move the work of on_before", **_hook(50, _BEFORE)),
        fires("the hook is after the transfer to a GPU", "info", "no loop over samples", **_hook(50, run=_GPU)),
        fires("the hook is the transfer", "critical", f"return super().{_MOVES}(batch, device", **_hook(50, _MOVES)),
        fires("the hook takes 2.8 of 52.8 ms", "info", "5.3 %", **_hook(2.8)),
        quiet("the hook takes 2.6 of 52.6 ms", **_hook(2.6)),
        quiet("no hook is overridden"),
        looks_alike("the GPU is busy beside it", **_hook(50, run=_GPU, idle_ratio=0.0)),
        not_evaluated("five steps are steady", "5 steady steps", steady=5),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        hooks = (
            (ordinary_ratio(metrics, one.share, "h2d"), one) for one in metrics.transfer_hooks if usable(one.share)
        )
        known = sorted(hooks, key=lambda hook: hook[0], reverse=True)
        if not known:
            return None
        (ratio, slowest), *rest = known
        most_ratio = metrics.host_limit.by_phase.get("h2d")
        taken_ms = max(slowest.share.median_ms, ratio * step_ms)
        cost = metrics.cost(taken_ms, ratio * step_ms, most_ratio=most_ratio)
        if not cost.is_worth(self.least_ratio):
            return None
        copies = slowest.hook == _MOVES and not metrics.is_cpu_only
        name = f"{slowest.owner}.{slowest.hook}"
        others = [f"{one.hook} {percent(max(one.share.median_ratio, of_step))}" for of_step, one in rest]
        seen = f", mostly in {in_words(slowest.site)}" if slowest.site else ""
        also = f" Other hooks: {listed(others)}." if others else ""
        return self.finding(
            severity=cost.severity,
            subject=name,
            summary=f"{name} takes {cost}{seen}.{also}",
            advice=_advice(slowest, on_cpu=bool(metrics.is_cpu_only)),
            evidence=(
                self.evidence("least_ratio", cost.ratio, f"{slowest.hook} share of the step"),
                self.fact(f"{slowest.hook} per step", taken_ms, "ms"),
                idle_evidence(metrics, "h2d"),
            ),
            cost=cost.uncertain if copies else cost,
            confidence=0.9 if metrics.is_cpu_only else 0.75,
            explains=claims.BATCH_COPIES if copies else claims.BATCH_TRANSFER,
        )


def _advice(slowest: HookShare, *, on_cpu: bool) -> str:
    beside = "into the Dataset or collate_fn, where DataLoader workers do it during the step"
    if slowest.hook == _MOVES:
        return (
            f"{_MOVES} should do nothing but move the batch: return super().{_MOVES}(batch, device, dataloader_idx). "
            f"Move everything else {beside}."
        )
    if slowest.hook == _AFTER and not on_cpu:
        return (
            f"In {slowest.hook}, use only operators on the whole batch on the GPU: no loop over samples, no .item(), "
            f".cpu() or numpy. Move what needs the CPU {beside}."
        )
    return f"Move the work of {slowest.hook} {beside}."
