"""Real fits with planted sleeps: each is found in its phase, and the phases and parts add up."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from planted_runs import Naps, Planted, Sleepy, Stream, fit, phase_s, quiet_profiler
from torch.utils.data import DataLoader

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.model.report import Report

# Real times on a machine that others share.
pytestmark = pytest.mark.flaky(reruns=2)

SLEEP_S = 0.005
STEPS = 20


def assert_adds_up(report: Report) -> None:
    assert sum(report.wall.parts.values()) == pytest.approx(report.wall.total_s, rel=1e-6)
    assert abs(report.wall.parts["unexplained"]) <= 0.01 * report.wall.total_s
    assert sum(row.share for row in report.phases) == pytest.approx(1.0)
    journal_total = sum(row.total_s for row in report.phases)
    in_steps = report.wall.parts["train"]
    assert journal_total >= in_steps - 1e-6


def assert_found(report: Report, phase: str, *, slept_elsewhere_s: float = 0.0) -> None:
    """What was slept is in its phase and in no other: none of those takes half a sleep in the median step."""
    assert_adds_up(report)
    slept_s = Naps.total_s - slept_elsewhere_s
    assert slept_s > 0.5 * STEPS // 2 * SLEEP_S
    assert phase_s(report, phase) >= 0.999 * slept_s
    others = {row.phase: row.median_ms or 0.0 for row in report.phases if row.phase != phase}
    assert max(others.values()) < 0.5 * SLEEP_S * 1e3, others


@pytest.mark.parametrize(
    ("place", "phase"),
    [
        ("training_step", "forward"),
        ("backward", "backward"),
        ("step", "optimizer"),
        ("zero_grad", "zero_grad"),
        ("clip", "clip"),
        ("on_train_batch_start", "callbacks"),
        ("on_after_batch_transfer", "h2d"),
    ],
)
def test_a_sleep_is_found_in_its_phase(tmp_path: Path, place: str, phase: str) -> None:
    report = fit(tmp_path, Planted({place: SLEEP_S}))
    assert report.steps.count == STEPS
    assert_found(report, phase)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Sleepy(STEPS, SLEEP_S), batch_size=1),
        DataLoader(Sleepy(STEPS * 4, SLEEP_S / 4), batch_size=4),
        CombinedLoader({"a": DataLoader(Sleepy(STEPS, SLEEP_S), batch_size=1)}, "max_size"),
    ],
    ids=["sized", "batches", "combined"],
)
def test_a_slow_dataset_is_found_as_data_wait(tmp_path: Path, loader: Any) -> None:
    report = fit(tmp_path, loader=loader)
    assert report.steps.count == STEPS
    assert_found(report, "data_wait")


def test_an_unsized_stream_is_found_as_data_wait_though_its_first_fetch_is_before_the_first_step(
    tmp_path: Path,
) -> None:
    report = fit(tmp_path, loader=DataLoader(Stream(STEPS, SLEEP_S), batch_size=1))
    assert report.steps.count == STEPS
    assert_found(report, "data_wait", slept_elsewhere_s=2 * SLEEP_S)


class IterStep(pl.LightningModule):
    """Takes its batches from the iterator itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, dataloader_iter: Any) -> torch.Tensor:
        batch, _, _ = next(dataloader_iter)
        return self.layer(batch).square().mean()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_a_fetch_inside_training_step_is_data_wait(tmp_path: Path) -> None:
    report = fit(tmp_path, IterStep(), DataLoader(Sleepy(STEPS, SLEEP_S), batch_size=1))
    assert report.steps.count == STEPS
    assert_found(report, "data_wait")


class SlowCallback(pl.Callback):
    """Sleeps after every batch."""

    def on_train_batch_end(self, *args: Any) -> None:
        Naps.take(SLEEP_S)


def test_a_slow_callback_is_named_with_its_hook(tmp_path: Path) -> None:
    report = fit(tmp_path, callbacks=[SlowCallback()])
    assert_found(report, "callbacks")
    assert (report.callbacks[0].name, report.callbacks[0].hook) == ("SlowCallback", "on_train_batch_end")
    assert report.callbacks[0].total_s >= STEPS * SLEEP_S


class OnlyAtTheEnd(pl.Callback):
    """Overrides one hook, and that one by an inherited method."""

    def on_train_end(self, *args: Any) -> None:
        Naps.take(SLEEP_S)


class Inherits(OnlyAtTheEnd):
    """Nothing of its own."""


def test_hooks_that_a_callback_leaves_empty_are_not_timed_and_inherited_ones_are(tmp_path: Path) -> None:
    report = fit(tmp_path, callbacks=[Inherits()])
    assert_adds_up(report)
    own = [row for row in report.callbacks if row.name == "Inherits"]
    assert [row.hook for row in own] == ["on_train_end"]
    assert own[0].total_s >= SLEEP_S


def test_accumulated_batches_are_steps_and_share_an_optimizer_step(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    report = fit(tmp_path, Planted({"backward": SLEEP_S}), profiler=profiler, accumulate_grad_batches=4)
    assert (report.steps.count, report.steps.optimizer_steps) == (STEPS, STEPS // 4)
    assert_found(report, "backward")
    assert profiler.folder is not None
    steps = read_journal(profiler.folder / "rank0.jsonl").steps
    assert list(steps.global_step) == [batch // 4 for batch in range(STEPS)]


@pytest.mark.parametrize("place", ["training_step", "backward", "step"])
def test_manual_optimization_is_told_apart(tmp_path: Path, place: str) -> None:
    report = fit(tmp_path, Planted({place: SLEEP_S}, manual=True))
    phase = {"training_step": "forward", "backward": "backward", "step": "optimizer"}[place]
    assert_found(report, phase)


def test_a_step_that_returns_none_has_no_backward_but_counts(tmp_path: Path) -> None:
    report = fit(tmp_path, Planted({"backward": SLEEP_S}, none_every=2))
    assert report.steps.count == STEPS
    assert_found(report, "backward")


class Repeating(Planted):
    """LBFGS runs its closure several times within one step."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.parameters(), lr=1e-9, max_iter=3, tolerance_grad=0, tolerance_change=0)


def test_a_closure_that_repeats_adds_up(tmp_path: Path) -> None:
    report = fit(tmp_path, Repeating({"training_step": SLEEP_S}))
    assert report.steps.count == STEPS
    assert_adds_up(report)
    assert phase_s(report, "forward") >= 2 * STEPS * SLEEP_S
    assert phase_s(report, "optimizer") < phase_s(report, "forward")


def test_validation_is_a_part_of_its_own_and_leaves_the_training_phases_alone(tmp_path: Path) -> None:
    report = fit(
        tmp_path,
        Planted({"validation_step": SLEEP_S}),
        val_loader=DataLoader(Sleepy(10), batch_size=1),
        max_epochs=2,
        limit_val_batches=1.0,
        num_sanity_val_steps=2,
    )
    assert_adds_up(report)
    assert report.wall.parts["validation"] >= 2 * 10 * SLEEP_S
    assert report.wall.parts["sanity"] >= 2 * SLEEP_S
    assert phase_s(report, "validation") == pytest.approx(report.wall.parts["validation"])
    assert phase_s(report, "data_wait") < SLEEP_S * 5


class SlowSave(pl.Callback):
    """Makes every checkpoint slow."""

    def on_save_checkpoint(self, *args: Any) -> None:
        Naps.take(10 * SLEEP_S)


def test_checkpoints_are_a_part_of_their_own(tmp_path: Path) -> None:
    saver = pl.callbacks.ModelCheckpoint(every_n_train_steps=10, save_top_k=-1, dirpath=tmp_path / "ckpt")
    report = fit(tmp_path, callbacks=[SlowSave(), saver], enable_checkpointing=True)
    assert_adds_up(report)
    assert report.wall.parts["checkpoint"] >= 2 * 10 * SLEEP_S
    assert phase_s(report, "callbacks") < 5 * SLEEP_S


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
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[profiler],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(tmp_path),
        limit_val_batches=0,
    )
    trainer.fit(Planted(), DataLoader(Sleepy(STEPS), batch_size=1), ckpt_path=str(tmp_path / "ckpt" / "last.ckpt"))
    assert profiler.folder is not None
    steps = read_journal(profiler.folder / "rank0.jsonl").steps
    assert list(steps.batch) == list(range(STEPS, 2 * STEPS))
    assert list(steps.global_step) == list(range(STEPS, 2 * STEPS))


def test_limits_of_batches_and_steps_close_the_last_step(tmp_path: Path) -> None:
    assert fit(tmp_path, limit_train_batches=7).steps.count == 7
    assert fit(tmp_path, max_steps=5, max_epochs=-1).steps.count == 5
    assert fit(tmp_path, limit_train_batches=0).steps.count == 0
