"""Faults planted in real fits: the report names the cause, where it is and what to change; healthy fits stay silent."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Computing, Planted, Sleepy, blamed, fit, named
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.report import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def run(folder: Path, model: pl.LightningModule | None = None, loader: Any = None, **options: Any) -> Report:
    """A model that hardly computes, so that what is planted is most of the time on a busy machine too."""
    return fit(
        folder,
        model or Planted(),
        DataLoader(Sleepy(80 * 8), batch_size=8) if loader is None else loader,
        profiler=GpuProfiler(windows=[], nvml=False, reports=["json"]),
        **options,
    )


def test_a_healthy_run_is_bound_by_its_own_work_and_not_blamed(tmp_path: Path) -> None:
    report = run(tmp_path, Computing())
    assert blamed(report) == set()
    assert report.verdict.kind in ("compute-bound", "host-bound", "mixed")  # on a busy machine it waits for a CPU


def test_a_healthy_run_with_workers_and_validation_is_not_blamed(tmp_path: Path) -> None:
    loader = DataLoader(Sleepy(80 * 16), batch_size=16, num_workers=1, persistent_workers=True)
    report = run(
        tmp_path,
        Computing(),
        loader=loader,
        max_epochs=2,
        val_loader=DataLoader(Sleepy(64), batch_size=16),
        limit_val_batches=1.0,
    )
    assert blamed(report) == set()


def test_slow_items_in_the_training_process(tmp_path: Path) -> None:
    report = run(tmp_path, loader=DataLoader(Sleepy(60 * 8, 0.005), batch_size=8))
    assert report.verdict.kind == "input-bound"
    assert report.findings[0].rule == "single-process-loading"
    assert "DataLoader(..., num_workers=" in report.findings[0].advice
    assert report.findings[0].gain.speedup_max > 1.5


def test_too_few_workers(tmp_path: Path) -> None:
    loader = DataLoader(Sleepy(60 * 8, 0.006), batch_size=8, num_workers=1, persistent_workers=True)
    report = run(tmp_path, loader=loader)
    assert report.verdict.kind == "input-bound"
    assert "num_workers" in named(report, "too-few-workers").advice


class SlowCallback(pl.Callback):
    """Sleeps after each batch."""

    def on_train_batch_end(self, *args: Any) -> None:
        time.sleep(0.04)


def test_a_sleep_in_another_callback_is_that_callback(tmp_path: Path) -> None:
    report = run(tmp_path, callbacks=[SlowCallback()])
    assert report.verdict.kind == "loop-bound"
    assert report.findings[0].rule == "callback-slow"
    assert "SlowCallback" in report.findings[0].subject
    assert "on_train_batch_end" in report.findings[0].summary + report.findings[0].subject


def test_validation_that_takes_most_of_the_run(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        Planted({"validation_step": 0.02}),
        val_loader=DataLoader(Sleepy(40 * 4), batch_size=4),
        limit_val_batches=1.0,
        val_check_interval=40,
    )
    assert report.verdict.kind == "outside-steps"
    assert named(report, "validation-stall").severity == "critical"


class SlowSave(pl.Callback):
    """Makes checkpoints slow."""

    def on_save_checkpoint(self, *args: Any) -> None:
        time.sleep(0.2)


def test_checkpoints_that_stall_the_training(tmp_path: Path) -> None:
    saver = pl.callbacks.ModelCheckpoint(every_n_train_steps=20, save_top_k=1, dirpath=tmp_path / "ckpt")
    report = run(tmp_path, callbacks=[SlowSave(), saver], enable_checkpointing=True)
    assert named(report, "checkpoint-stall").severity == "critical"


class Uploads(pl.callbacks.ModelCheckpoint):
    """Takes its time after what Lightning counts as saving."""

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        super()._save_checkpoint(trainer, filepath)
        time.sleep(0.3 if self._every_n_train_steps > 1 else 0.04)


@pytest.mark.parametrize(("every", "rule"), [(10, "step-outliers"), (1, "callback-slow")])
def test_a_sleep_in_a_checkpoint_callback_is_that_callback(tmp_path: Path, every: int, rule: str) -> None:
    saver = Uploads(every_n_train_steps=every, save_top_k=1, dirpath=tmp_path / "ckpt")
    report = run(tmp_path, callbacks=[saver], enable_checkpointing=True)
    assert report.verdict.kind == "loop-bound"
    assert report.findings[0].rule == rule
    assert report.findings[0].subject == "Uploads.on_train_batch_end"


class Stalling(Dataset[torch.Tensor]):
    """Every 240th item takes 0.4 s: 2 % of the steps hold most of the time."""

    def __len__(self) -> int:
        return 150 * 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 240 == 120:
            time.sleep(0.4)
        return torch.zeros(8)


def test_rare_stalls_are_outliers(tmp_path: Path) -> None:
    report = run(tmp_path, loader=DataLoader(Stalling(), batch_size=8))
    assert "data_wait" in named(report, "step-outliers").summary


def test_a_sleep_inside_training_step_is_named_with_its_line(tmp_path: Path) -> None:
    report = run(tmp_path, Planted({"training_step": 0.03}))
    assert report.verdict.kind == "host-bound"
    finding = named(report, "blocked-in-step")
    assert finding.severity == "critical"
    assert "planted_runs.py:" in finding.subject + finding.summary + finding.advice


class Chatty(Computing):
    """Logs two hundred values a step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        for number in range(200):
            self.log(f"value_{number}", loss, prog_bar=False)
        return loss


def test_logging_too_much_each_step(tmp_path: Path) -> None:
    report = run(tmp_path, Chatty(width=200), logger=pl.loggers.CSVLogger(tmp_path), log_every_n_steps=1)
    assert "logging-overhead" in [f.rule for f in report.findings]


def slow_to_start(worker: int) -> None:
    time.sleep(0.3)


def test_workers_that_start_anew_each_epoch(tmp_path: Path) -> None:
    loader = DataLoader(
        Sleepy(24 * 8),
        batch_size=8,
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=False,
        worker_init_fn=slow_to_start,
    )
    report = run(tmp_path, loader=loader, max_epochs=4)
    assert "persistent_workers=True" in named(report, "worker-startup").advice
