from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.epoch_boundary_idle import EpochBoundaryIdle

RULE = EpochBoundaryIdle()


def row(name: str, total_s: float, hook: str = "", part: Any = "epoch_gap") -> LedgerRow:
    return LedgerRow(part=part, phase="callbacks", name=name, hook=hook, total_s=total_s, share=0.1, count=3)


def planted(*gaps_s: float, ledger: tuple[LedgerRow, ...] | None = None, **changes: Any) -> Metrics:
    """Epochs of 5 s with gaps before them, of which 2 ms is ``iter(dataloader)``; the first has none."""
    gaps = (0.0, *(gaps_s or (1.0, 1.0, 1.0)))
    metrics = build(epochs=len(gaps), **changes)
    starts = tuple(replace(s, gap_s=gap + s.iterator_s) for s, gap in zip(metrics.epoch_starts, gaps, strict=True))
    wall = replace_wall(metrics, sum(gaps))
    default = (row("iter(dataloader): workers start", 0.1), row("Plots", 2.7, "on_train_epoch_end"), row("loop", 0.05))
    return replace(metrics, epoch_starts=starts, wall=wall, ledger=default if ledger is None else ledger)


def replace_wall(metrics: Metrics, gaps_s: float) -> Any:
    parts = {**metrics.wall.parts, "epoch_gap": gaps_s}
    return msgspec.structs.replace(metrics.wall, parts=parts, total_s=metrics.wall.total_s + gaps_s)


def test_it_names_the_hook_that_the_gaps_went_to() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.subject == "Plots.on_train_epoch_end"
    assert "3 gaps between epochs took 3 s of" in finding.summary.replace("3.00 s", "3 s")
    assert "Plots.on_train_epoch_end 98 %" in finding.summary
    assert "Run Plots.on_train_epoch_end every n-th epoch" in finding.advice
    assert "it takes 900 ms each time" in finding.advice
    assert finding.explains == claims.EPOCH_GAP
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3000 / 400)


def test_no_sampler_is_proposed_for_an_iterable_dataset() -> None:
    run = {"loader.sampler": "_InfiniteConstantSampler"}
    finding = RULE.check(planted(run=run, ledger=(row("fetch of the first batch", 2.9),)))
    assert finding is not None
    assert finding.advice.startswith("Let the dataset give its first batch sooner: it takes 1.00 s")
    assert "sampler" not in finding.advice


def test_loaders_that_are_made_anew_are_no_part_of_the_gap() -> None:
    made, hook = row("setup_data: loaders, first iter(dataloader)", 2.9), row("Plots", 1.0, "on_train_epoch_end")
    finding = RULE.check(planted(ledger=(made, hook)))
    assert finding is not None
    assert finding.subject == "Plots.on_train_epoch_end"
    assert "setup_data" not in finding.summary


@pytest.mark.parametrize(("owner", "epoch"), [("Plots", "trainer.current_epoch"), ("Net", "self.current_epoch")])
def test_a_hook_reads_the_epoch_where_it_can(owner: str, epoch: str) -> None:
    finding = RULE.check(planted(ledger=(row(owner, 2.7, "on_train_epoch_end"),)))
    assert finding is not None
    assert f"begin it with `if {epoch} % n: return`" in finding.advice
    assert "val_check_interval" not in finding.advice


def test_the_start_of_workers_is_left_to_its_own_rule() -> None:
    assert RULE.check(build(iterator_s=2.0)) is None


def test_one_long_gap_is_an_accident() -> None:
    assert RULE.check(planted(0.01, 5.0, 0.01)) is None


@pytest.mark.parametrize(("gap_s", "fires"), [(0.21, False), (0.23, True)])
def test_three_percent_of_the_run_decide(gap_s: float, fires: bool) -> None:
    assert (RULE.check(planted(gap_s, gap_s, gap_s)) is not None) is fires


def test_it_is_quiet_on_a_healthy_run_and_with_one_epoch() -> None:
    assert RULE.check(build()) is None
    assert RULE.check(build(epochs=1)) is None


def test_one_boundary_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="1 epoch boundary, 2 are needed"):
        RULE.check(planted(3.0))


def test_without_the_ledger_it_tells_the_time_alone() -> None:
    finding = RULE.check(planted(ledger=()))
    assert finding is not None
    assert finding.subject == "epoch end"
