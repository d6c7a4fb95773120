"""Ctrl-C in any hook of a fit: it ends the run as without us, what was measured is kept, and nothing is left."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from left_behind import files_of_ours, what_is_left
from quiet_trainer import trainer_in
from unusual_loops import Model, loader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal

OF_BOTH = (
    "on_fit_start",
    "on_fit_end",
    "on_train_start",
    "on_train_end",
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_validation_epoch_start",
    "on_validation_epoch_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "on_save_checkpoint",
    "setup",
    "teardown",
)
OF_A_CALLBACK = (*OF_BOTH, "on_sanity_check_start", "on_sanity_check_end", "state_dict")
OF_A_MODULE = (
    *OF_BOTH,
    "prepare_data",
    "configure_callbacks",
    "configure_model",
    "configure_optimizers",
    "configure_gradient_clipping",
    "train_dataloader",
    "val_dataloader",
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
    "on_validation_model_eval",
    "on_validation_model_train",
    "training_step",
    "validation_step",
    "backward",
    "optimizer_step",
    "optimizer_zero_grad",
    "lr_scheduler_step",
)
BEFORE_US = {"LightningModule.prepare_data", "LightningModule.configure_callbacks"}
"""Called before any callback's ``setup``: there is no run yet."""

CASES = [f"Callback.{hook}" for hook in OF_A_CALLBACK] + [f"LightningModule.{hook}" for hook in OF_A_MODULE]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("ctrl_c_as_it_was")]


class WithData(Model):
    """Has loaders and a scheduler of its own."""

    def __init__(self) -> None:
        super().__init__(busy_s=0.0)

    def train_dataloader(self) -> Any:
        return loader(6)

    def val_dataloader(self) -> Any:
        return loader(2)

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def interrupting(base: type, hook: str) -> tuple[type, list[str]]:
    """A subclass whose hook is interrupted when it is called, and what will tell that it was."""
    called: list[str] = []

    def raises(self: object, *args: object, **kwargs: object) -> None:
        called.append(hook)
        raise KeyboardInterrupt

    return type(f"Interrupted{base.__name__}", (base,), {hook: raises}), called


def interrupted(case: str, folder: Path, *profilers: GpuProfiler) -> object:
    """Fits; gives how that ended."""
    owner, _, hook = case.partition(".")
    kind, called = interrupting(pl.Callback if owner == "Callback" else WithData, hook)
    own = [kind()] if owner == "Callback" else []
    model = WithData() if owner == "Callback" else kind()
    saves = pl.callbacks.ModelCheckpoint(dirpath=folder / "saved", every_n_train_steps=4)
    trainer = trainer_in(folder, [*profilers, *own, saves], enable_checkpointing=True, num_sanity_val_steps=1)
    try:
        trainer.fit(model)
    except BaseException as error:
        end: object = (type(error), str(error))
    else:
        end = None
    assert called, f"{case} is not called by this fit"
    assert what_is_left(trainer, model) == []
    return end


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_hook(case: str, tmp_path: Path) -> None:
    profiler = GpuProfiler(windows=[], nvml=False, reports=["json"], dirpath=str(tmp_path / "out"))
    assert interrupted(case, tmp_path / "with", profiler) == interrupted(case, tmp_path / "without")
    assert profiler._session is None
    assert files_of_ours() == set()
    if case in BEFORE_US:
        assert profiler.report is None
        return
    assert profiler.report.run["status"] == "interrupted: KeyboardInterrupt"
    wall = profiler.report.wall
    assert sum(wall.parts.values()) == pytest.approx(wall.total_s, rel=1e-6)
    assert sum(row.total_s for row in profiler.report.ledger) == pytest.approx(wall.total_s, rel=1e-6)
    journal = read_journal(tmp_path / "out" / "rank0.jsonl")
    assert (journal.footer.status, journal.dropped_lines) == ("interrupted: KeyboardInterrupt", 0)
