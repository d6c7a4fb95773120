"""Validation takes a noticeable part of the run, and most of it is waiting for batches.

## What it means
The validation loader is often forgotten when the training loader is tuned: it has no workers, or starts them again for
each validation.

## How it is measured
The time of the fetches inside validation must pass 5 % of the wall time without setup and teardown, and half of
validation. What any fetch may cost (1 ms without workers, 3 ms with them) is taken off per batch. The gain is the rest,
spread over the training steps. What a GPU does at that time is not measured: there it is at most a warning.

## When it is wrong
- The validation loader is not measured from inside: which part of a batch is slow is not known.
- Several validation loaders, or an unknown number of batches: not evaluated.
- With fewer than two usable CPUs, a loader without workers is left alone.

## What to do
As for the training loader: workers, `persistent_workers=True`, cheaper batches.
"""

from lightning_gpuprof.model.loading import RECEIVE_GUARD_MS, SINGLE_GUARD_MS
from lightning_gpuprof.model.numbers import cpus, millis, percent, seconds
from lightning_gpuprof.model.signals import require_possible, validation_loader
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Finding, Metrics, MissingSignal, Value, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import wait_severity

_ALIVE, _TWO = "val_loader.persistent_workers", {"val_loader.num_workers": 2}
_LOADER = {"val_loader.count": 1, "val_loader.num_workers": 0, "val_loader.batch_size": 8}
_LOADER |= {"val_loader.dataset_length": 160, _ALIVE: False}
_WAITS = {"validation": (4, 5.0), "val_wait_s": 4.5, "run": _LOADER}


def _of(loader: dict[str, int]) -> dict[str, object]:
    return {**_WAITS, "run": {**_LOADER, **loader}}


class ValInputBound(BaseRule):
    id = "val-input-bound"
    title = "Validation waits for its batches"
    specialises = ("validation-stall",)

    least_ratio: float = threshold(0.05, source="torch-tb-profiler: DataLoader above 5 %, here of the run")
    least_part_ratio: float = threshold(0.50, source="heuristic: most of validation")

    examples = (
        fires("no workers", "warning", "4.50 s of its 5.00 s ... num_workers=2, persistent", saves_ms=11.25, **_WAITS),
        fires("its workers restart for each run", "warning", "Keep the 2 validation workers alive", **_of(_TWO)),
        fires("they stay alive", "warning", "Make a validation batch cheaper", **_of({**_TWO, _ALIVE: True})),
        quiet("fetches are less than half of it", **{**_WAITS, "val_wait_s": 2.4}),
        quiet("they are a twentieth of the run", **{**_WAITS, "validation": (4, 1.5), "val_wait_s": 1.1}),
        looks_alike("many fetches are cheap", **_of({"val_loader.dataset_length": 36_000})),
        not_evaluated("its parts are not known", "where the time of validation went", **_WAITS, metrics={"ledger": ()}),
        not_evaluated("there are several", "there are several", **_of({"val_loader.count": 2})),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        total_s = metrics.run_s
        runs, validation_s = metrics.validation.count, metrics.validation.total_s
        require_possible("the time of validation", validation_s)
        if runs == 0 or validation_s < self.least_ratio * total_s:
            return None
        if not metrics.ledger:
            raise MissingSignal("where the time of validation went was not measured")
        wait_s = sum(r.total_s for r in metrics.ledger if r.part == "validation" and r.phase == "data_wait")
        if wait_s < self.least_ratio * total_s or wait_s < self.least_part_ratio * validation_s:
            return None
        workers, batches = validation_loader(metrics)
        price_ms, usable = RECEIVE_GUARD_MS if workers else SINGLE_GUARD_MS, metrics.cpu.usable_cpus
        certain_s = min(wait_s, total_s) - runs * batches * price_ms / 1e3
        cost = metrics.run_cost(min(wait_s, total_s), certain_s)
        if certain_s < self.least_ratio * total_s or not cost.certain.is_worth():
            return None
        if workers == 0 and usable < 2:
            return None
        idle_ratio = 1.0 if metrics.is_cpu_only else None
        return self.finding(
            severity=wait_severity(idle_ratio, certain_s / total_s, metrics.steps.steady_count),
            subject=str(metrics.condition("val_loader.dataset") or "validation loader"),
            summary=f"Validation waits {seconds(wait_s)} of its {seconds(validation_s)} for batches: "
            f"{percent(wait_s / total_s)} of the run, {millis(wait_s * 1e3 / (runs * batches))} per batch.",
            advice=_advice(metrics, workers=workers),
            evidence=(
                self.evidence("least_ratio", wait_s / total_s, "fetches of validation, share of the run"),
                self.evidence(
                    "least_part_ratio", min(1.0, wait_s / validation_s), "fetches of validation, share of validation"
                ),
                self.fact("validation runs", runs),
                self.fact("batches of a run, at most", batches),
                self.fact("num_workers of validation", workers),
                self.fact("usable CPUs", usable, "CPUs"),
            ),
            cost=cost,
            confidence=0.7 if metrics.is_cpu_only else 0.5,
            explains=claims.VALIDATION,
        )


def _advice(metrics: Metrics, *, workers: int) -> Advice:
    usable = metrics.cpu.usable_cpus
    trained = metrics.num_workers
    before: dict[str, Value] = {"num_workers": workers}
    if workers == 0:
        wanted = max(1, min(trained or 2, int(usable)))
        arguments: dict[str, Value] = {"num_workers": wanted, "persistent_workers": True}
        change = Change(call="DataLoader", arguments=arguments, before=before, inside="val_dataloader")
        like = ", and the training loader has as many workers" if trained == wanted else ""
        return f"Load validation batches in workers: {change.added[0]}. Why {wanted}: {cpus(usable)}{like}.", change
    if metrics.condition("val_loader.persistent_workers") is False:
        arguments = {**before, "persistent_workers": True}
        change = Change(call="DataLoader", arguments=arguments, before=before, inside="val_dataloader")
        return (
            f"Keep the {workers} validation workers alive between runs: {change.added[0]}. If it still waits, make its "
            "batches cheaper."
        ), change
    return (
        "Make a validation batch cheaper (decode and resize once before the run, keep samples in memory), or use more "
        f"than {workers} workers: the training workers are idle during validation."
    ), None
