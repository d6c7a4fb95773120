"""Steps wait for batches, and one transform dominates the time to load a batch.

## What it means
If one of the transforms of a sample takes more than half of the time to load a batch, making that one cheaper is worth
more than anything else in the dataset.

## How it is measured
Steps wait because batches are made too slowly (verdict `processing` of the input pipeline). Where batches are made,
each transform of a `Compose` and each region marked with `lightning_gpuprof.annotate` is timed; its share of the whole
batch, items and collation, must pass the threshold. Of parts that lie inside each other, the inner one is named. The
gain is at most the part's time over the number of workers, and at most the wait.

## When it is wrong
- A part can rarely be removed as a whole: the gain is a bound.
- Times are wall times: on too few CPUs, all transforms that compute grow alike.
- Work outside of transforms and marked regions has no name. Without any of these the check does not apply.

## What to do
Do what gives the same result each time once before training. Apply what is random to the whole batch, in
`LightningModule.on_after_batch_transfer`. Keep files that it waits for in memory.
"""

from collections.abc import Sequence

from lightning_gpuprof.model.input_pipeline import InputPart
from lightning_gpuprof.model.loading import MIN_WAIT_RATIO, Starving
from lightning_gpuprof.rules.base import Finding, Metrics, NotApplicable, listed, percent, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.input.starving import StarvingRule, cost_of_part, without_words

_GPU = {"device.type": "cuda"}


def _of(**transforms: float) -> dict[str, object]:
    return {"transforms": transforms, "worker_cpus": 1.9}


_BLUR = _of(Blur=0.72, Crop=0.2, Flip=0.08)


class TransformHotspot(StarvingRule):
    id = "transform-hotspot"
    title = "One transform dominates batch loading"
    specialises = ("input-bound", "loader-cpu-bound", "loader-io-bound", "step-outliers", "cpu-contention")
    needs_workers = False

    least_part_ratio: float = threshold(0.50, source="heuristic: more than all other parts together")
    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires("the transform takes 28 ms", "critical", "`Blur` takes 70 % ... batch of 32 ... every 5.96 ms", **_BLUR),
        fires("the transform waits for files", "critical", "mostly waits", **{**_BLUR, "worker_cpus": 0.02}),
        fires("there are no workers", "critical", "`Blur` takes", **_BLUR, workers=0, saves_ms=28.1),
        fires("batches come in bursts", "critical", "arrive in bursts", **_BLUR, burst=0.4),
        fires("the GPU idles for a tenth", "info", "on the GPU", **_BLUR, run=_GPU, device_idle=0.1, saves_ms=2.0),
        fires("what the GPU does is not known", "warning", "on the GPU", **_BLUR, run=_GPU),
        fires("the transform is in a region", "critical", "`Blur`, inside `augment`", **_of(augment=0.95, Blur=0.8)),
        quiet("the GPU is busy at that time", **_BLUR, run=_GPU, device_idle=0.02),
        quiet("several share the time", **_of(Blur=0.4, Crop=0.35, Flip=0.25)),
        quiet("steps do not wait", **_BLUR, items_ms=12.0),
        quiet("the wait may be what a fetch costs", **_BLUR, items_ms=24.0),
        looks_alike("batches are ready, but come late", **_BLUR, verdict="transfer"),
        not_applicable("no part has a name", "lightning_gpuprof.annotate", items_ms=39.0),
        not_evaluated("batches were not timed", "not measured from inside", **_BLUR, measured=False),
        not_evaluated("few batches were", "3 batches were measured", **_BLUR, verdict="not-enough-data"),
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        parts = _parts(metrics, found)
        if not parts:
            mark = "mark the code with lightning_gpuprof.annotate"
            raise NotApplicable(f"the dataset has no list of transforms to time; {mark}")
        items_ratio = (found.made.items_ms or 0.0) / found.make_ms
        part, around = _innermost(parts, least=self.least_part_ratio / items_ratio if items_ratio > 0 else 2.0)
        ratio = (part.share or 0.0) * items_ratio
        cost = cost_of_part(metrics, found, ratio)
        if ratio < self.least_part_ratio or not cost.is_worth():
            return None
        inside = f", inside {listed([f'`{one.name}`' for one in around])}," if around else ""
        return self.of_starving(
            metrics,
            found,
            cost,
            subject=part.name,
            summary=f"`{part.name}`{inside} takes {percent(ratio)} of the time to load a batch.",
            advice=f"{_fix(metrics, found, part.name)} {without_words(found, f'`{part.name}`', ratio)}",
            evidence=(
                self.evidence("least_part_ratio", ratio, f"{part.name}, share of loading a batch"),
                self.fact(f"{part.name}, mean of a call", part.mean_ms, "ms"),
                self.fact("calls that were measured", part.calls),
                self.fact("time to load a batch", found.make_ms, "ms"),
                self.waiting(found),
                self.fact("num_workers", found.state.num_workers),
            ),
            confidence=0.9,
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


def _fix(metrics: Metrics, found: Starving, name: str) -> str:
    if found.state.cpu_bound is False:
        return f"`{name}` mostly waits: keep what it reads in memory or on a local disk, or use more workers."
    size = metrics.batch_size
    batch = "the whole batch" if size is None else f"the whole batch of {size}"
    where = ", on the GPU" if found.state.on_gpu else ""
    return (
        f"Apply `{name}` once before the run and store the result. If it is random, apply it to {batch} instead, in "
        f"LightningModule.on_after_batch_transfer{where}."
    )
