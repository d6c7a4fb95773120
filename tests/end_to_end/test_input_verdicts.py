"""Faults planted in the input of real fits: the finding names the transform, the function or the kind of wait."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Planted, blamed, fit, named
from torch.utils.data import DataLoader, Dataset, default_collate

from lightning_gpuprof import GpuProfiler, HostConfig
from lightning_gpuprof.model.report import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def work(seconds: float) -> None:
    """Use so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Crop:
    """A transform that computes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        work(self.seconds)
        return sample


class Blur(Crop):
    """A slow one."""


class Compose:
    """Transforms one after the other, as torchvision's."""

    def __init__(self, *transforms: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.transforms = list(transforms)

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Rows(Dataset[torch.Tensor]):
    """Rows that are transformed; some of them wait."""

    def __init__(self, size: int, transform: Any = None, *, every: int = 1, wait_s: float = 0.0) -> None:
        self.size = size
        self.transform = transform or Compose()
        self.every = every
        self.wait_s = wait_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_s and index % self.every == 0:
            time.sleep(self.wait_s)
        row: torch.Tensor = self.transform(torch.full((8,), float(index)))
        return row


def pad_batch(samples: list[torch.Tensor]) -> torch.Tensor:
    work(0.02)
    batch: torch.Tensor = default_collate(samples)
    return batch


class Working(Planted):
    """Steps of 3 ms of work."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        work(0.003)
        return super().training_step(batch, batch_idx)


class SlowEnd(Working):
    """Sleeps at the end of each epoch."""

    def on_train_epoch_end(self) -> None:
        time.sleep(0.3)


def run(folder: Path, loader: Any, model: pl.LightningModule | None = None, **options: Any) -> Report:
    profiler = GpuProfiler(windows=[], nvml=False, host=HostConfig(interval_s=0.1), reports=["json"])
    return fit(folder, model or Working(), loader, profiler=profiler, **options)


def loader(dataset: Dataset[torch.Tensor], workers: int, **options: Any) -> DataLoader[torch.Tensor]:
    return DataLoader(dataset, batch_size=8, num_workers=workers, persistent_workers=workers > 0, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_transform_that_takes_most_of_a_batch_is_named(tmp_path: Path, workers: int) -> None:
    dataset = Rows(100 * 8, Compose(Crop(0.0003), Blur(0.0020), Crop(0.0003)))
    report = run(tmp_path, loader(dataset, workers))
    finding = named(report, "transform-hotspot")
    assert finding.subject == "Blur"
    # Where other programs use the CPUs, the gain of more workers may be more certain: then that is what leads.
    assert "critical" in {other.severity for other in report.findings if other.explains == finding.explains}


def test_a_slow_collate_fn_is_named(tmp_path: Path) -> None:
    report = run(tmp_path, loader(Rows(100 * 8, Compose(Crop(0.0005))), 1, collate_fn=pad_batch))
    assert named(report, "collate-hotspot").subject == "pad_batch"
    assert "transform-hotspot" not in {f.rule for f in report.findings}


def test_workers_that_wait_are_not_blamed_for_computing(tmp_path: Path) -> None:
    report = run(tmp_path, loader(Rows(60 * 8, wait_s=0.02), 2), Planted())
    assert "for something other than a CPU or a disk" in named(report, "loader-io-bound").summary
    assert "loader-cpu-bound" not in {f.rule for f in report.findings}


def test_workers_that_compute_are_not_blamed_for_waiting(tmp_path: Path) -> None:
    report = run(tmp_path, loader(Rows(60 * 8, Compose(Crop(0.005), Blur(0.005))), 2), Planted())
    rules = {f.rule for f in report.findings}
    assert "loader-io-bound" not in rules
    assert rules & {"loader-cpu-bound", "too-few-workers"}  # by the number of CPUs


def test_slow_ends_of_epochs_are_named(tmp_path: Path) -> None:
    report = run(tmp_path, loader(Rows(30 * 8), 0), SlowEnd(), max_epochs=5)
    finding = named(report, "epoch-boundary-idle")
    assert finding.subject == "SlowEnd.on_train_epoch_end"


def test_validation_that_waits_for_its_batches(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        loader(Rows(60 * 8), 0),
        max_epochs=3,
        val_loader=loader(Rows(20 * 8, wait_s=0.003), 0),
        limit_val_batches=1.0,
    )
    assert "Load validation batches in workers: DataLoader(..., num_workers=" in named(report, "val-input-bound").advice


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wait_s", [0.0, 0.001])
def test_a_loader_that_keeps_up_is_silent(tmp_path: Path, workers: int, wait_s: float) -> None:
    class Long(Working):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            work(0.03)
            return super().training_step(batch, batch_idx)

    dataset = Rows(60 * 8, Compose(Crop(1e-5)), every=8, wait_s=wait_s)
    report = run(tmp_path, loader(dataset, workers), Long())
    assert blamed(report) <= {"python-overhead"}  # the step is a loop in Python
