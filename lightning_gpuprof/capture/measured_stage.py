"""What all parts of a stage under measurement share: its trainer, its clock and its journal."""

from typing import Any

import msgspec

from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.stage_journal import StageJournal
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.config import Options
from lightning_gpuprof.model.phases import Stage

_LOADERS: dict[Stage, str] = {
    "fit": "train_dataloader",
    "validate": "val_dataloaders",
    "test": "test_dataloaders",
    "predict": "predict_dataloaders",
}
"""Attribute of the trainer that holds the loaders of a stage."""


class MeasuredStage(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call of ``fit``, ``validate``, ``test`` or ``predict`` under measurement."""

    trainer: Any
    stage: Stage
    options: Options
    clock: StepClock
    tap: ProfilerTap
    journal: StageJournal

    @property
    def is_fit(self) -> bool:
        """Whether there are optimizer steps."""
        return self.stage == "fit"

    @property
    def fence(self) -> Fence:
        """Keeps failures in."""
        return self.journal.fence

    @property
    def device(self) -> Any:
        """The trainer's root device."""
        return self.trainer.strategy.root_device

    @property
    def loaders(self) -> object:
        """The loaders of the stage, once the trainer has them: one, or a collection."""
        return getattr(self.trainer, _LOADERS[self.stage])
