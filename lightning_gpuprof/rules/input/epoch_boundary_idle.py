"""Finds that a noticeable part of the run passes between the last step of an epoch and the first of the next."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.loading import STREAM_SAMPLER
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import counted, percent, seconds
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    require_possible,
    run_ms_per_step,
    run_s,
    severity,
    threshold,
    worthwhile,
)

_OWN_NAME = "GpuProfiler"
_NAMED_RATIO = 0.10
_LOADERS = ("iter(dataloader)", "setup_data")
"""Begins of rows with time that is no part of the gap, as measured here."""
_FIRST_FETCH = "fetch of the first batch"


@dataclass(frozen=True, kw_only=True)
class EpochBoundaryIdle(BaseRule):
    """Between the epochs no step runs for a noticeable part of the time, beside validation and checkpoints.

    ## What it means

    At the end of an epoch, hooks of callbacks and of the module run, and metrics are computed. All of that is on the
    main thread, and a GPU has nothing to do meanwhile.

    ## How it is measured

    For every epoch but the first: the time from the end of the last step to the start of the first, without validation
    and checkpoints (`validation-stall`, `checkpoint-stall`) and without the making of loaders and `iter(dataloader)`,
    in which workers are started (`worker-startup`). The time of all gaps must pass 2 % of the wall time without set-up
    and tear-down, and the least worthwhile gain, which is 3 % of it. No single boundary may hold it alone: the bound is
    the median gap times their number. The ledger names the hooks that it went to. The gain is the whole gap.

    ## When it is wrong

    - What an epoch's end computes may be wanted: the gain is what it costs, not what can be left out.
    - A GPU that still works on the last step of the epoch is not idle in the first part of the gap.
    - Fewer than two boundaries: not evaluated.

    ## What to do

    Do it less often (every n epochs), make it cheaper, or hand it to a thread; fewer and longer epochs for small
    datasets.

    ## Example

    `on_train_epoch_end` of the module takes 0.5 s after epochs of 1.1 s: "7 gaps between epochs took 3.51 s of 13.0 s
    (27 %), 501 ms each: SlowEnd.on_train_epoch_end 100 %."
    """

    id = "epoch-boundary-idle"
    title = "Time passes between epochs without a step"

    least_ratio: float = threshold(0.02, source="catalogue: 2 % of the run")
    least_boundaries: int = threshold(2, source="catalogue: one can be an accident")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the gaps between all epochs."""
        starts = metrics.epoch_starts[1:]
        if not starts:
            return None
        total_s = run_s(metrics)
        for start in starts:
            require_possible("the time of an epoch start", start.gap_s, start.iterator_s)
        gaps_s = [max(0.0, start.gap_s - start.iterator_s) for start in starts]
        whole_s = min(sum(gaps_s), total_s)
        lower_s = min(whole_s, median(gaps_s) * len(gaps_s))
        ratio, lower_ratio = whole_s / total_s, lower_s / total_s
        if ratio < self.least_ratio:
            return None
        if len(starts) < self.least_boundaries:
            raise MissingSignal(f"{counted(len(starts), 'epoch boundary')}, {self.least_boundaries} are needed")
        run_step_ms = run_ms_per_step(metrics)
        per_step_ms = whole_s * 1e3 / metrics.steps.count
        if lower_ratio < self.least_ratio or not worthwhile(lower_s * 1e3 / metrics.steps.count, run_step_ms):
            return None
        rows = _rows(metrics)
        held_s = sum(row.total_s for row in rows)
        named = [(row, row.total_s / held_s) for row in rows if held_s > 0 and row.total_s >= _NAMED_RATIO * held_s]
        where = ", ".join(f"{_name(row)} {percent(part)}" for row, part in named)
        return self.finding(
            severity=severity(lower_ratio, metrics.steps.steady_count),
            subject=_name(named[0][0]) if named else "epoch end",
            summary=(
                f"{counted(len(gaps_s), 'gap')} between epochs took {seconds(whole_s)} of {seconds(total_s)} "
                f"({percent(ratio)}), {seconds(median(gaps_s))} each{': ' if where else ''}{where}."
            ),
            advice=_advice(
                named,
                module=str(condition(metrics, "model.class") or ""),
                iterable=condition(metrics, "loader.sampler") == STREAM_SAMPLER,
                each_s=median(gaps_s),
                epoch_s=median(start.steps_s for start in starts),
            ),
            evidence=(
                self.evidence("least_ratio", ratio, "gaps between epochs, share of the wall time"),
                Evidence(name="median gap", value=median(gaps_s), unit="s"),
                Evidence(name="gaps", value=len(gaps_s), limit=self.least_boundaries),
                *(Evidence(name=f"{_name(row)}, all epochs", value=row.total_s, unit="s") for row, _ in named),
            ),
            gain=gain(per_step_ms, lower_s * 1e3 / metrics.steps.count, run_step_ms),
            confidence=0.9,
            explains=claims.EPOCH_GAP,
        )


def _rows(metrics: Metrics) -> list[LedgerRow]:
    """Where the gaps went, largest first, without the making of loaders, the start of workers and this profiler."""
    return sorted(
        (
            row
            for row in metrics.ledger
            if row.part == "epoch_gap" and not row.name.startswith(_LOADERS) and row.name != _OWN_NAME
        ),
        key=lambda row: -row.total_s,
    )


def _name(row: LedgerRow) -> str:
    return f"{row.name}.{row.hook}" if row.hook else row.name


def _advice(named: list[tuple[LedgerRow, float]], *, module: str, iterable: bool, each_s: float, epoch_s: float) -> str:
    longer = "more samples in each pass over the dataset" if iterable else "a sampler with replacement and more samples"
    also = f"use fewer, longer epochs ({longer}): now one takes {seconds(epoch_s)}"
    if not named:
        return f"Look at what happens at the end of an epoch ({seconds(each_s)} each time), or {also}."
    row = named[0][0]
    if row.hook:
        # A hook of a callback is handed the trainer; a module has it.
        epoch = "self.current_epoch" if row.name == module else "trainer.current_epoch"
        return (
            f"Run {_name(row)} every n-th epoch: begin it with `if {epoch} % n: return`. Or make it cheaper, or hand "
            f"its work to a thread: it takes {seconds(row.total_s / max(1, row.count or 1))} each time. Or {also}."
        )
    if row.name == _FIRST_FETCH and iterable:
        return (
            f"Let the dataset give its first batch sooner: it takes {seconds(each_s)} at the start of each epoch. "
            f"Or {also}."
        )
    return f"Look at {row.name} between the epochs ({seconds(each_s)} each time), or {also}."
