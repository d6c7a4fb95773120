"""Steps wait for batches, and collate_fn takes a large part of the time to load one.

## What it means
`collate_fn` puts the samples of a batch together, in the process that made them. Stacking tensors is quick; padding in
Python, nested lists, dictionaries of numbers and conversions to tensors are not.

## How it is measured
Steps wait because batches are made too slowly (verdict `processing` of the input pipeline), and the calls of
`collate_fn`, timed where batches are made, take at least the threshold of a batch. The gain is at most its time over
the number of workers, and at most the wait.

## When it is wrong
- Large samples have to be copied: above 1 GB/s the advice is smaller samples, not another function.
- A `collate_fn` that also decodes or transforms does the dataset's work: its time is right, its name is not.
- Loaders that are not measured from inside: not evaluated.

## What to do
Return tensors of one shape, so that collating is one `torch.stack` per field; convert lists of numbers in the dataset;
pad with `torch.nn.utils.rnn.pad_sequence`; sort by length, so that there is less to pad.
"""

from lightning_gpuprof.model.loading import MIN_WAIT_RATIO, Starving
from lightning_gpuprof.rules.base import Finding, Metrics, decimal_size, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.starving import StarvingRule, cost_of_part, without_words

_DEFAULT_COLLATE = "default_collate"

_COPY_BYTES_PER_MS = 1e6
"""Collation that is faster than this does little but copy. Heuristic: 1 GB/s, a tenth of what one core copies."""


_PAD = {"items_ms": 10.0, "collate_ms": 30.0, "run": {"loader.collate_fn": "pad_batch"}}
_PADDED = {**_PAD, "saves_ms": 10.0}


def _default(batch_bytes: float) -> dict[str, object]:
    return {**_PAD, "run": {"loader.collate_fn": _DEFAULT_COLLATE, "batch.bytes": batch_bytes}}


class CollateHotspot(StarvingRule):
    id = "collate-hotspot"
    title = "collate_fn is slow"
    specialises = ("input-bound", "loader-cpu-bound", "loader-io-bound", "step-outliers", "cpu-contention")
    needs_workers = False

    least_part_ratio: float = threshold(0.25, source="heuristic: stacking tensors is a few percent")
    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires("padding takes 30 ms", "critical", "pad_batch (collate_fn) takes 75 % ... every 5.00 ms", **_PADDED),
        fires("collate_fn has little to copy", "critical", "one tensor ... to collate 4 kB", **_default(4e3)),
        fires("collate_fn copies 2 GB/s", "critical", "uint8 ... 60 MB, at 2 GB/s", **_default(6e7)),
        quiet("collate_fn takes less than a quarter of a batch", items_ms=30.1, collate_ms=9.9),
        quiet("steps do not wait", items_ms=6.0, collate_ms=6.0),
        looks_alike("the items are slow", items_ms=39.0, collate_ms=1.0),
        not_evaluated("batches were not timed", "not measured from inside", **_PAD, measured=False),
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        collate_ms = found.made.collate_ms or 0.0
        ratio = collate_ms / found.make_ms
        cost = cost_of_part(metrics, found, ratio)
        if ratio < self.least_part_ratio or not cost.is_worth():
            return None
        name = str(metrics.condition("loader.collate_fn") or "collate_fn")
        return self.of_starving(
            metrics,
            found,
            cost,
            subject=name,
            summary=f"{name}{'' if name == 'collate_fn' else ' (collate_fn)'} takes {percent(ratio)} of the time to "
            "load a batch.",
            advice=f"{_fix(metrics, name, collate_ms)} {without_words(found, name, ratio)}",
            evidence=(
                self.evidence("least_part_ratio", ratio, "collate_fn, share of loading a batch"),
                self.fact("collate_fn, mean of a batch", collate_ms, "ms"),
                self.fact("time to load a batch", found.make_ms, "ms"),
                self.waiting(found),
                self.fact("first batch", metrics.number("batch.bytes") or None, "bytes"),
                self.fact("num_workers", found.state.num_workers),
            ),
            confidence=0.9,
        )


def _fix(metrics: Metrics, name: str, collate_ms: float) -> str:
    moved = metrics.number("batch.bytes") or None
    if moved is not None and collate_ms > 0 and moved / collate_ms >= _COPY_BYTES_PER_MS:
        return (
            "Make samples smaller: return uint8 and normalise in on_after_batch_transfer, or crop in the dataset. "
            f"{name} spends its time copying {decimal_size(moved)}, at {decimal_size(1e3 * moved / collate_ms)}/s."
        )
    if name == _DEFAULT_COLLATE:
        amount = "" if moved is None else f" to collate {decimal_size(moved)}"
        return (
            "Return one tensor of a fixed shape per field from the dataset, not lists or dictionaries of numbers: each "
            f"field is then collated by one torch.stack. Now default_collate takes {millis(collate_ms)}{amount}."
        )
    return (
        f"Reduce {name} to one torch.stack or torch.nn.utils.rnn.pad_sequence per field, and do the rest of its work "
        "once before the run."
    )
