"""Training pauses between epochs, apart from validation and checkpoints.

## What it means
At the end of an epoch, hooks of callbacks and of the module run and metrics are computed, all on the main thread, while
a GPU idles.

## How it is measured
For every epoch but the first, the gap is the time from the last step of one epoch to the first of the next, without
validation and checkpoints (`validation-stall`, `checkpoint-stall`), the creation of loaders and `iter(dataloader)`
(`worker-startup`). All gaps together must pass 3 % of the wall time without setup and teardown. The lower bound is the
median gap times their number, so that no single gap decides. The gain is the whole gap; the ledger names the hooks.

## When it is wrong
- The work at the end of an epoch may be needed: the gain is what it costs, not what can be left out.
- A GPU that still works on the last step of the epoch is not idle in the first part of the gap.
- Fewer than two boundaries: not evaluated.

## What to do
Do the work every n epochs, make it cheaper, or move it to a thread. Use fewer and longer epochs for small datasets.
"""

from lightning_gpuprof.model.epochs import EpochGaps
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.loading import STREAM_SAMPLER
from lightning_gpuprof.model.numbers import counted, seconds
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Metrics, MissingSignal, measured, percent, severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_FIRST_FETCH = "fetch of the first batch"

_PLOTS, _NET = ("Plots", 2.7, "on_train_epoch_end"), ("Net", 2.7, "on_train_epoch_end")
_SET_UP = ("setup_data: first iter(dataloader)", 2.9, "")


def _where(*rows: tuple[str, float, str]) -> dict[str, object]:
    """Three gaps of an example, and where they went."""
    return {"gaps_s": (1.0, 1.0, 1.0), "gap_ledger": rows}


_GAPS = _where(("iter(dataloader): workers start", 0.1, ""), _PLOTS, ("loop", 0.05, ""))
_STREAM = {**_where((_FIRST_FETCH, 2.9, "")), "run": {"loader.sampler": STREAM_SAMPLER}, "lacks": "sampler"}


class EpochBoundaryIdle(BaseRule):
    id = "epoch-boundary-idle"
    title = "Time is lost between epochs"

    least_ratio: float = threshold(0.02, source="heuristic: 2 % of the run")
    least_boundaries: int = threshold(2, source="heuristic: one can be an accident")

    examples = (
        fires(
            "a callback takes 0.9 s after each epoch",
            "warning",
            "3 gaps between epochs take 3.00 s ... Plots.on_train_epoch_end (98 %) ... "
            "`if trainer.current_epoch % n: return` ... It takes 900 ms each time",
            lacks="val_check_interval",
            saves_ms=7.5,
            **_GAPS,
        ),
        fires("the module has the hook", "warning", "`if self.current_epoch % n: return`", **_where(_NET)),
        fires("the dataset is iterable", "warning", "return its first batch sooner: it takes 1.00 s", **_STREAM),
        fires("loaders are made as well", "warning", "end (100 %)", lacks="setup_data", **_where(_SET_UP, _PLOTS)),
        fires("the hooks are not known", "warning", "Find what runs", gaps_s=(1.0, 1.0, 1.0)),
        fires("the gaps are 3.2 % of the run", "info", "Find what", gaps_s=(0.23, 0.23, 0.23)),
        quiet("gaps are 2.9 %", gaps_s=(0.21, 0.21, 0.21)),
        quiet("there is one epoch", epochs=1),
        looks_alike("one gap is long", gaps_s=(0.01, 5.0, 0.01)),
        looks_alike("starting the workers takes 2 s", iterator_s=2.0),
        not_evaluated("there is one boundary", "1 epoch boundary, 2 are needed", epochs=2, gaps_s=(3.0,)),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        gaps = measured(metrics.epoch_gaps)
        if gaps is None:
            return None
        ratio, lower_ratio = gaps.whole_s / gaps.run_s, gaps.lower_s / gaps.run_s
        if ratio < self.least_ratio:
            return None
        if gaps.count < self.least_boundaries:
            raise MissingSignal(f"{counted(gaps.count, 'epoch boundary')}, {self.least_boundaries} are needed")
        cost = metrics.run_cost(gaps.whole_s, gaps.lower_s)
        if lower_ratio < self.least_ratio or not cost.certain.is_worth():
            return None
        where = ", ".join(f"{_name(row)} ({percent(part)})" for row, part in gaps.rows)
        return self.finding(
            severity=severity(lower_ratio, metrics.steps.steady_count),
            subject=_name(gaps.rows[0][0]) if gaps.rows else "epoch end",
            summary=f"{counted(gaps.count, 'gap')} between epochs take {seconds(gaps.whole_s)} in total, "
            f"{percent(ratio)} of the training time (setup excluded).{f' Most of it: {where}.' if where else ''}",
            advice=_advice(metrics, gaps),
            evidence=(
                self.evidence("least_ratio", ratio, "gaps between epochs, share of the training time"),
                self.fact("median gap", gaps.each_s, "s"),
                self.evidence("least_boundaries", gaps.count, "gaps"),
                *(self.fact(f"{_name(row)}, all epochs", row.total_s, "s") for row, _ in gaps.rows),
            ),
            cost=cost,
            confidence=0.9,
            explains=claims.EPOCH_GAP,
        )


def _name(row: LedgerRow) -> str:
    return f"{row.name}.{row.hook}" if row.hook else row.name


def _advice(metrics: Metrics, gaps: EpochGaps) -> str:
    iterable = metrics.condition("loader.sampler") == STREAM_SAMPLER
    longer = "more samples per pass over the dataset" if iterable else "a sampler with replacement and more samples"
    also = f"use fewer epochs, longer than {seconds(gaps.epoch_s)}: {longer}"
    if not gaps.rows:
        return f"Find what runs at the end of an epoch: it takes {seconds(gaps.each_s)} each time. Or {also}."
    row = gaps.rows[0][0]
    if row.hook:
        # a hook of a callback is handed the trainer; a module has it
        epoch = "self.current_epoch" if row.name == metrics.condition("model.class") else "trainer.current_epoch"
        return (
            f"Run {_name(row)} only every n-th epoch: begin it with `if {epoch} % n: return`. It takes "
            f"{seconds(row.total_s / max(1, row.count or 1))} each time. Or do its work in a background "
            f"thread. Or {also}."
        )
    if row.name == _FIRST_FETCH and iterable:
        when = f"{seconds(gaps.each_s)} at the start of each epoch"
        return f"Make the dataset return its first batch sooner: it takes {when}. Or {also}."
    return f"Make {row.name} between epochs cheaper: it takes {seconds(gaps.each_s)} each time. Or {also}."
