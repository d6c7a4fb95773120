"""Whether zero_grad leaves gradients is looked at once, and nothing stays in the steps after that."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from quiet_trainer import trainer_in

from lightning_gpuprof import GpuProfiler


class Clearing(BoringModel):
    """Clears its gradients as it is told; a parameter that the optimizer does not have keeps its own."""

    def __init__(self, to_none: bool) -> None:
        super().__init__()
        self.to_none = to_none
        self.beside = torch.nn.Parameter(torch.ones(2))
        self.contexts: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tap: Any = self.trainer.profiler
        self.contexts.append(tap.profile("[LightningModule]Clearing.optimizer_zero_grad"))
        found: Any = super().training_step(batch, batch_idx)
        return found["loss"] + self.beside.sum()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=self.to_none)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


def conditions_of(folder: Path, model: pl.LightningModule, **settings: Any) -> dict[str, Any]:
    profiler = GpuProfiler(dirpath=str(folder / "gpuprof"), windows=[], reports=[], nvml=False, host=False)
    trainer_in(folder, [profiler], **{"limit_train_batches": 40, "limit_val_batches": 0, **settings}).fit(model)
    assert profiler.report is not None
    return dict(profiler.report.run)


@pytest.mark.parametrize(("to_none", "kept"), [(True, 0), (False, 2)])
def test_the_optimizer_s_gradients_that_are_left_are_counted(tmp_path: Path, to_none: bool, kept: int) -> None:
    model = Clearing(to_none)
    assert conditions_of(tmp_path, model)["model.gradients_kept"] == kept
    before, after = model.contexts[0], model.contexts[-1]
    assert type(before).__name__ == "_Counted"
    assert type(after).__name__ != "_Counted"


def test_steps_that_accumulate_gradients_do_not_count(tmp_path: Path) -> None:
    assert conditions_of(tmp_path, Clearing(True), accumulate_grad_batches=4)["model.gradients_kept"] == 0


def test_manual_optimization_is_not_looked_at(tmp_path: Path) -> None:
    class Manual(BoringModel):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad(set_to_none=False)
            self.manual_backward(self.layer(batch).sum())
            optimizer.step()

    assert "model.gradients_kept" not in conditions_of(tmp_path, Manual())
