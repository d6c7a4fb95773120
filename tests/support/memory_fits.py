"""Fits on a fake device whose memory is ours to play."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from checked_screen import checked
from equipped import Equipped
from fake_allocator import MIB, FakeAllocator
from planted_runs import Sleepy
from quiet_trainer import trainer_in
from torch import nn
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.report import Report

ACTIVATIONS = 100 * MIB
GRADIENTS = 10 * MIB
STATE = 20 * MIB
WEIGHTS = 10 * MIB
TEMPORARY = 5 * MIB
RESTING = WEIGHTS + STATE + GRADIENTS
PEAK = RESTING + ACTIVATIONS + TEMPORARY
"""In the backward of the second step, when the optimizer's state is there."""


class Hungry(pl.LightningModule):
    """Allocates on the fake device what a model of that size would, where it would.

    Args:
        allocator: The device's.
        oom_at: Batch in which it wants more than there is.
        leak_bytes: Kept in each step.
        nap_s: Each step takes so long at least.
    """

    def __init__(
        self,
        allocator: FakeAllocator,
        *,
        oom_at: int = -1,
        leak_bytes: int = 0,
        nap_s: float = 0.004,
        manual: bool = False,
    ) -> None:
        super().__init__()
        self.automatic_optimization = not manual
        self.layer = nn.Linear(8, 1)
        self.allocator, self.oom_at, self.leak_bytes, self.nap_s = allocator, oom_at, leak_bytes, nap_s
        self.gradients: int | None = None
        self.state: int | None = None

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(self.nap_s)
        if self.leak_bytes:
            self.allocator.alloc(self.leak_bytes)
        activations = self.allocator.alloc(ACTIVATIONS)
        if batch_idx == self.oom_at:
            self.allocator.alloc(1 << 40)
        loss = self.layer(batch).square().mean()
        loss.register_hook(lambda grad: self.run_backward(activations))
        if self.automatic_optimization:
            return loss
        optimizer: Any = self.optimizers()
        self.optimizer_zero_grad(0, 0, optimizer)
        self.manual_backward(loss)
        optimizer.step()
        return None

    def run_backward(self, activations: int) -> None:
        temporary = self.allocator.alloc(TEMPORARY)
        if self.gradients is None:
            self.gradients = self.allocator.alloc(GRADIENTS)
        self.allocator.free(activations)
        self.allocator.free(temporary)

    def optimizer_zero_grad(self, *args: Any) -> None:
        args[-1].zero_grad()
        if self.gradients is not None:
            self.allocator.free(self.gradients)
            self.gradients = None

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.state is None:
            self.state = self.allocator.alloc(STATE)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer_of(profiler: GpuProfiler | None) -> pl.Trainer:
    return trainer_in(None, [] if profiler is None else [profiler])


def fit(folder: Path, model: Hungry, *, steps: int = 60, **options: Any) -> Report:
    profiler = profiler_of(folder, model.allocator, **options)
    trainer_of(profiler).fit(model, DataLoader(Sleepy(steps), batch_size=1))
    assert profiler.report is not None
    return checked(profiler.report)


def fit_until_out_of_memory(folder: Path, model: Hungry, **options: Any) -> tuple[Report, list[str]]:
    """The report, and the functions in the traceback of what was raised."""
    profiler = profiler_of(folder, model.allocator, **options)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1048576\.00 MiB") as caught:
        trainer_of(profiler).fit(model, DataLoader(Sleepy(60), batch_size=1))
    assert caught.value is model.allocator.raised
    assert profiler.report is not None
    return profiler.report, [entry.name for entry in caught.traceback]


def profiler_of(folder: Path, allocator: FakeAllocator | None, **options: Any) -> GpuProfiler:
    own: dict[str, Any] = {
        "windows": [],
        "nvml": False,
        "reports": ["json", "terminal", "html"],
        "dirpath": str(folder / "gpuprof"),
        **options,
    }
    return Equipped({} if allocator is None else {"allocator": lambda root_device: allocator}, **own)
