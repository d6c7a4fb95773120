"""Small real fits with sleeps of known size planted at a place of choice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from checked_screen import checked
from quiet_trainer import trainer_in
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.report import Report


class Naps:
    """Sleeps, and knows how long it really took: a busy machine wakes late."""

    total_s = 0.0

    @classmethod
    def take(cls, seconds: float) -> None:
        begin = time.perf_counter()
        time.sleep(seconds)
        cls.total_s += time.perf_counter() - begin


class Sleepy(Dataset[torch.Tensor]):
    """Random rows; each item may sleep."""

    def __init__(self, size: int, item_s: float = 0.0) -> None:
        self.size = size
        self.item_s = item_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.item_s:
            Naps.take(self.item_s)
        return torch.full((8,), float(index))


class Planted(pl.LightningModule):
    """A small model whose hooks sleep as told.

    Args:
        sleeps: Hook name → seconds. ``backward`` sleeps within the backward pass, ``step`` within the optimizer.
    """

    lr = 1e-3
    """For tuners to set; the optimizer does not read it."""

    def __init__(self, sleeps: dict[str, float] | None = None) -> None:
        super().__init__()
        self.sleeps = sleeps or {}
        self.layer = nn.Linear(8, 1)

    def nap(self, name: str) -> None:
        if name in self.sleeps:
            Naps.take(self.sleeps[name])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.nap("training_step")
        loss = self.layer(batch).square().mean()
        if "backward" in self.sleeps:
            loss.register_hook(lambda grad: self.nap("backward"))
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.nap("validation_step")
        self.log("val_loss", self.layer(batch).square().mean())

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.nap("on_train_batch_start")

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.nap("on_after_batch_transfer")
        return batch

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        self.nap("zero_grad")
        optimizer.zero_grad()

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.nap("clip")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-9)
        if "step" in self.sleeps:
            optimizer.register_step_pre_hook(lambda *_: self.nap("step"))
        return optimizer


class Computing(Planted):
    """A model with work of a few milliseconds a step."""

    def __init__(self, sleeps: dict[str, float] | None = None, width: int = 1100) -> None:
        super().__init__(sleeps)
        self.layer = nn.Sequential(  # type: ignore[assignment]
            nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )


def trainer_for(folder: Path, callbacks: list[pl.Callback], **options: Any) -> pl.Trainer:
    """Without validation."""
    return trainer_in(folder, callbacks, **{"limit_val_batches": 0, **options})


def fit(
    folder: Path,
    model: pl.LightningModule | None = None,
    loader: Any = None,
    *,
    profiler: GpuProfiler | None = None,
    callbacks: list[pl.Callback] | None = None,
    val_loader: Any = None,
    before: Callable[[pl.Trainer], None] | None = None,
    **options: Any,
) -> Report:
    """Run a fit with the profiler and return its report, which is checked."""
    profiler = profiler or quiet_profiler()
    Naps.total_s = 0.0
    trainer = trainer_for(folder, [profiler, *(callbacks or [])], **options)
    if before is not None:
        before(trainer)
    loader = DataLoader(Sleepy(20), batch_size=1) if loader is None else loader
    trainer.fit(model or Planted(), loader, val_loader)
    assert profiler.report is not None
    return checked(profiler.report)


def quiet_profiler(**options: Any) -> GpuProfiler:
    return GpuProfiler(**{"windows": [], "nvml": False, "host": False, "reports": ["json"], **options})


def named(report: Report, rule: str) -> Finding:
    found = [f for f in report.findings if f.rule == rule]
    assert found, f"{rule} is not among {[f.rule for f in report.findings]}; {report.not_evaluated}"
    return found[0]


OF_THE_MACHINE = {"cpu-contention", "phase-change", "slow-first-steps", "step-drift", "step-outliers"}
"""What may be critical in a healthy run where other programs take the CPUs."""


def blamed(report: Report) -> set[str]:
    """Critical findings that call for a change of the run itself: none in a healthy one, however busy the machine."""
    return {f.rule for f in report.findings if f.severity == "critical"} - OF_THE_MACHINE


def loader(size: int = 40) -> DataLoader[torch.Tensor]:
    """Batches of two rows."""
    return DataLoader(Sleepy(size), batch_size=2)


def single_rows(size: int = 40) -> DataLoader[torch.Tensor]:
    """Batches of one row."""
    return DataLoader(Sleepy(size), batch_size=1)


class Failing(Planted):
    """Raises in a batch of choice."""

    def __init__(self, at_batch: int, error: BaseException) -> None:
        super().__init__()
        self.at_batch = at_batch
        self.error = error

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == self.at_batch:
            raise self.error
        return super().training_step(batch, batch_idx)


class ProfilesItself(Planted):
    """Starts torch.profiler in a step of choice."""

    at_batch = 0
    events = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx != self.at_batch:
            return super().training_step(batch, batch_idx)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            loss = super().training_step(batch, batch_idx)
        self.events = len(own.events())
        return loss
