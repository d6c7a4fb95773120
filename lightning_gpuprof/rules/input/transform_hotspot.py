"""Finds that one transform, or one marked region of the dataset, holds most of the making of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.input_pipeline import InputPart
from lightning_gpuprof.model.loading import LEAST_WAIT_RATIO
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, possible, threshold
from lightning_gpuprof.rules.input.starving import Starving, StarvingRule, pace_words
from lightning_gpuprof.rules.wording import listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class TransformHotspot(StarvingRule):
    """Steps wait for batches, and one transform takes most of the time that a batch needs to be made.

    ## What it means

    A batch is made of samples, and each sample goes through a list of transforms. If one of them takes more than half
    of the time, making that one cheaper is worth more than anything else in the dataset.

    ## How it is measured

    Steps wait for batches for certain and because these are made too slowly (verdict `processing` of the input
    pipeline, see `input-bound` and `too-few-workers` for the wait). In the processes that make batches, the time of
    each transform of a `Compose` and of each region marked with `lightning_gpuprof.annotate` is measured. The share is
    that of the whole making of a batch, items and collation; it must pass the threshold. Where two parts together take
    more than all of the time of the items, one lies in the other: the inner one is named.

    If the part went away, a batch would come sooner by its time p over the number n of workers: R = min(W, p / n). The
    bound by which findings are ranked is the part's share of the wait.

    ## When it is wrong

    - A part can rarely be removed as a whole: the gain is a bound.
    - Times are wall times in the process. On CPUs that are too few, all transforms that compute grow alike, and one
      that sleeps or reads does not.
    - Work that is not in a list of transforms and not marked has no name: it is what the parts leave of the time.
    - No transform and no region in the dataset: not evaluated. So are loaders that are not measured from inside.

    ## What to do

    What gives the same result each time: do it once before training and keep the result. What is random: for the whole
    batch at once, in `LightningModule.on_after_batch_transfer`, on a GPU if there is one. What waits for files: keep
    them in memory. Else more workers (`too-few-workers`) where CPUs are free.

    ## Example

    One worker, 8 samples of 5 ms, of which `Blur` takes 3.5 ms: "Blur takes 70 % of the 40.4 ms in which a batch is
    made (3.50 ms a call, 28.2 ms a batch)."
    """

    id = "transform-hotspot"
    specialises = ("input-bound", "loader-cpu-bound", "loader-io-bound", "step-outliers")
    needs_workers = False

    least_part_ratio: float = threshold(0.50, source="heuristic: more than all other parts together")
    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge the most expensive part of making items."""
        parts = _parts(metrics, found)
        if not parts:
            raise MissingSignal(
                "no list of transforms and no marked region was seen in the dataset; "
                "lightning_gpuprof.annotate marks one"
            )
        items_ratio = (found.made.items_ms or 0.0) / found.make_ms
        part, around = _innermost(parts, least=self.least_part_ratio / items_ratio if items_ratio > 0 else 2.0)
        ratio = (part.share or 0.0) * items_ratio
        saved = found.gain_without(ratio)
        if ratio < self.least_part_ratio or saved is None:
            return None
        part_ms = ratio * found.make_ms
        inside = f", inside of {listed([one.name for one in around])}," if around else ""
        return self.finding(
            severity=found.severity(metrics.steps.steady_count),
            subject=part.name,
            summary=(
                f"{part.name}{inside} takes {percent(ratio)} of the {millis(found.make_ms)} in which a batch is made "
                f"({_each(part)}{millis(part_ms)} a batch), and {found.words}."
            ),
            advice=_advice(metrics, found, part, ratio=ratio),
            evidence=(
                self.evidence("least_part_ratio", ratio, f"{part.name}, share of making a batch"),
                *_timed(part),
                Evidence(name="time to make a batch", value=found.make_ms, unit="ms"),
                self.evidence("least_ratio", *found.waiting),
                Evidence(name="num_workers", value=found.state.num_workers),
            ),
            gain=saved,
            confidence=0.9,
            explains=found.explains,
        )


def _parts(metrics: Metrics, found: Starving) -> list[InputPart]:
    """Those of the loader that is judged, most expensive first."""
    parts = metrics.input.parts if metrics.input is not None else ()
    own = [p for p in parts if p.loader == found.made.loader and p.share is not None and possible(p.share)]
    return sorted(own, key=lambda p: -(p.share or 0.0))


def _innermost(parts: Sequence[InputPart], *, least: float) -> tuple[InputPart, list[InputPart]]:
    """The smallest part that must lie in all larger ones, as they take more than the whole together, and these."""
    chosen = 0
    while (
        chosen + 1 < len(parts)
        and (parts[chosen + 1].share or 0.0) >= least
        and (parts[chosen].share or 0.0) + (parts[chosen + 1].share or 0.0) > 1.02
    ):
        chosen += 1
    return parts[chosen], list(parts[:chosen])


def _each(part: InputPart) -> str:
    return "" if part.mean_ms is None else f"{millis(part.mean_ms)} a call, "


def _timed(part: InputPart) -> list[Evidence]:
    if part.mean_ms is None or part.calls is None:
        return []
    return [
        Evidence(name=f"{part.name}, mean of a call", value=part.mean_ms, unit="ms"),
        Evidence(name="calls that were measured", value=part.calls),
    ]


def _advice(metrics: Metrics, found: Starving, part: InputPart, *, ratio: float) -> str:
    state = found.state
    size = metrics.loader.batch_size if metrics.loader is not None else None
    batch = "the whole batch" if size is None else f"the whole batch of {size}"
    where = ", on the GPU" if state.on_gpu else ""
    if state.cpu_bound is False:
        how = (
            f"{part.name} mostly waits rather than computes: keep what it reads in memory or on a local disk, or let "
            "more workers wait at the same time"
        )
    else:
        how = (
            f"do {part.name} once before training and keep the result; if it is random, do it for {batch} at once in "
            f"LightningModule.on_after_batch_transfer{where}; or replace it by a cheaper one"
        )
    return f"Start with {part.name}: {how}. Without it {pace_words(found, without=ratio)}."
