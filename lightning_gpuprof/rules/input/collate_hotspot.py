"""Finds that putting samples together to a batch holds a large part of the making of it."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.loading import LEAST_WAIT_RATIO
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import condition, threshold
from lightning_gpuprof.rules.input.starving import Starving, StarvingRule, pace_words
from lightning_gpuprof.rules.wording import millis, percent

_DEFAULT_COLLATE = "default_collate"

_COPY_BYTES_PER_MS = 1e6
"""Collation that is faster than this does little but copy. Heuristic: 1 GB/s, a tenth of what one core copies."""


@dataclass(frozen=True, kw_only=True)
class CollateHotspot(StarvingRule):
    """Steps wait for batches, and collate_fn takes a large part of the time that a batch needs to be made.

    ## What it means

    After its samples are there, a batch is put together by `collate_fn`, in the same process. Stacking tensors is a
    copy and quick; padding in Python, nested lists, dictionaries of numbers, or conversions to tensors are not.

    ## How it is measured

    Steps wait for batches for certain and because these are made too slowly (verdict `processing` of the input
    pipeline). In the processes that make batches, the calls of `collate_fn` are timed; their share of making a batch
    must pass the threshold. If collation went away, a batch would come sooner by its time c divided by the number n of
    workers: R = min(W, c / n). The bound by which findings are ranked is collation's share of the wait.

    ## When it is wrong

    - Large samples must be copied into a batch in any case: where collation moves more than 1 GB/s the text says so,
      and smaller samples help rather than another function.
    - A `collate_fn` that also decodes or transforms does the work of the dataset: its time is right, its name is not.
    - With a dataset that returns whole batches (`__getitems__`, `batch_size=None`) there is little to collate.
    - Loaders that are not measured from inside: not evaluated.

    ## What to do

    Return tensors of one shape from the dataset, so that collation is one `torch.stack` a field; convert lists of
    numbers to one tensor each in the dataset; pad with `torch.nn.utils.rnn.pad_sequence`; sort by length, so that there
    is less to pad.

    ## Example

    A `collate_fn` of 30 ms for 8 samples of 1 ms each: "pad_batch (collate_fn) takes 78 % of the 38.4 ms in which a
    batch is made (30.1 ms a batch, 3.76 ms a sample)."
    """

    id = "collate-hotspot"
    specialises = ("input-bound", "loader-cpu-bound", "loader-io-bound", "step-outliers")
    needs_workers = False

    least_part_ratio: float = threshold(0.25, source="catalogue, heuristic: stacking tensors is a few percent")
    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge the calls of collate_fn."""
        collate_ms = found.made.collate_ms or 0.0
        ratio = collate_ms / found.make_ms
        saved = found.gain_without(ratio)
        if ratio < self.least_part_ratio or saved is None:
            return None
        function = condition(metrics, "loader.collate_fn")
        name = function if isinstance(function, str) else "collate_fn"
        size = metrics.loader.batch_size if metrics.loader is not None else None
        each = f", {millis(collate_ms / size)} a sample" if size else ""
        return self.finding(
            severity=found.severity(metrics.steps.steady_count),
            subject=name,
            summary=(
                f"{name}{'' if name == 'collate_fn' else ' (collate_fn)'} takes {percent(ratio)} of the "
                f"{millis(found.make_ms)} in which a batch is made ({millis(collate_ms)} a batch{each}), and "
                f"{found.words}."
            ),
            advice=f"{_cure(metrics, name, collate_ms)} Without it {pace_words(found, without=ratio)}.",
            evidence=(
                self.evidence("least_part_ratio", ratio, "collate_fn, share of making a batch"),
                Evidence(name="collate_fn, mean of a batch", value=collate_ms, unit="ms"),
                Evidence(name="time to make a batch", value=found.make_ms, unit="ms"),
                self.evidence("least_ratio", *found.waiting),
                *_size(metrics),
                Evidence(name="num_workers", value=found.state.num_workers),
            ),
            gain=saved,
            confidence=0.9,
            explains=found.explains,
        )


def _batch_bytes(metrics: Metrics) -> float | None:
    found = condition(metrics, "batch.bytes")
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) and found > 0 else None


def _amount(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.3g} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.3g} kB"


def _size(metrics: Metrics) -> list[Evidence]:
    found = _batch_bytes(metrics)
    return [] if found is None else [Evidence(name="first batch", value=found, unit="bytes")]


def _cure(metrics: Metrics, name: str, collate_ms: float) -> str:
    moved = _batch_bytes(metrics)
    if moved is not None and collate_ms > 0 and moved / collate_ms >= _COPY_BYTES_PER_MS:
        return (
            f"{name} moves {_amount(moved)} at {moved / collate_ms / 1e6:.2g} GB/s, which is mostly copying: make "
            "the samples smaller (uint8 rather than float32, normalised on the device), or crop before collating."
        )
    amount = "" if moved is None else f" for a batch of {_amount(moved)}"
    if name == _DEFAULT_COLLATE:
        return (
            f"default_collate needs {millis(collate_ms)}{amount}: it goes through nested lists, dictionaries and "
            "numbers one by one. Return one tensor of a fixed shape per field from the dataset, so that it is one "
            "torch.stack each."
        )
    return (
        f"{name} needs {millis(collate_ms)}{amount}: make its work per sample part of the dataset once before "
        "training, and leave one torch.stack (or torch.nn.utils.rnn.pad_sequence) per field to it."
    )
