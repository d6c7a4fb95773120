"""Real fits: steps are counted as Lightning counts them; slots, steps and segments follow each other without a hole."""

import itertools
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from planted_runs import Naps, Planted, Sleepy, fit, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.sinks import method_tables

SLEEP_S = 0.005
STEPS = 20


class OnlyAtTheEnd(pl.Callback):
    """Overrides one hook, and that one by an inherited method."""

    def on_train_end(self, *args: Any) -> None:
        Naps.take(SLEEP_S)


class Inherits(OnlyAtTheEnd):
    """Nothing of its own."""


def test_hooks_that_a_callback_leaves_empty_are_not_timed_and_inherited_ones_are(tmp_path: Path) -> None:
    report = fit(tmp_path, callbacks=[Inherits()])
    own = [row for row in report.callbacks if row.name == "Inherits"]
    assert [row.hook for row in own] == ["on_train_end"]
    assert own[0].total_s >= SLEEP_S


def test_accumulated_batches_are_steps_and_share_an_optimizer_step(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    report = fit(tmp_path, profiler=profiler, accumulate_grad_batches=4)
    assert (report.steps.count, report.steps.optimizer_steps) == (STEPS, STEPS // 4)
    assert profiler.folder is not None
    steps = read_journal(profiler.folder / "rank0.jsonl").steps
    assert list(steps.global_step) == [batch // 4 for batch in range(STEPS)]


def test_samples_are_what_the_user_counts_in_the_first_batch(tmp_path: Path) -> None:
    counted: list[int] = []

    def tokens(batch: Any) -> int:
        counted.append(len(batch))
        return 512

    loader = DataLoader(Sleepy(60), batch_size=2)
    report = fit(tmp_path, loader=loader, profiler=quiet_profiler(samples=tokens, price_per_gpu_hour=2.5))
    assert counted == [2]
    assert report.steps.samples_per_s is not None
    assert report.steps.period_ms is not None
    assert report.steps.samples_per_s == pytest.approx(512e3 / report.steps.period_ms.mean)
    answers = dict(method_tables.lines(report))
    assert answers["cost"] == "price_per_gpu_hour has no effect: no GPU was used"


def test_a_count_of_no_samples_is_said_and_rows_are_counted(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="samples= returned 0 for the first batch: rows are counted instead"):
        report = fit(tmp_path, loader=DataLoader(Sleepy(60), batch_size=2), profiler=quiet_profiler(samples=no_samples))
    assert report.steps.samples_per_s is not None
    assert report.steps.period_ms is not None
    assert report.steps.samples_per_s == pytest.approx(2e3 / report.steps.period_ms.mean)


def no_samples(batch: Any) -> int:
    return 0


def test_the_time_of_a_step_is_the_sum_of_its_slots(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    fit(tmp_path, profiler=profiler, max_epochs=3)
    assert profiler.folder is not None
    journal = read_journal(profiler.folder / "rank0.jsonl")
    total = sum(journal.steps.charged.values())
    assert (total == journal.steps.period_ns).all()
    edges = [(s.start_ns, s.end_ns) for s in journal.segments]
    edges += list(zip(journal.steps.start_ns, journal.steps.start_ns + journal.steps.period_ns, strict=True))
    edges.sort()
    assert edges[0][0] == journal.header.start_ns
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    for segment in journal.segments:
        assert sum(segment.charged.values()) == segment.end_ns - segment.start_ns


def test_resuming_goes_on_with_the_counters(tmp_path: Path) -> None:
    saver = pl.callbacks.ModelCheckpoint(dirpath=tmp_path / "ckpt", save_last=True)
    fit(tmp_path, callbacks=[saver], enable_checkpointing=True)
    profiler = quiet_profiler()
    trainer = trainer_for(tmp_path, [profiler], max_epochs=2)
    trainer.fit(Planted(), DataLoader(Sleepy(STEPS), batch_size=1), ckpt_path=str(tmp_path / "ckpt" / "last.ckpt"))
    assert profiler.folder is not None
    steps = read_journal(profiler.folder / "rank0.jsonl").steps
    assert list(steps.batch) == list(range(STEPS, 2 * STEPS))
    assert list(steps.global_step) == list(range(STEPS, 2 * STEPS))
