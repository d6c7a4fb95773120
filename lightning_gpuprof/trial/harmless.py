"""A training that leaves nothing behind: its loggers, checkpoints and folders are replaced before it begins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.trial import Plan

_OF_FILES = ("TensorBoardLogger", "CSVLogger")
"""Loggers that write below one folder: they go on in a temporary one, since what they cost belongs to the step."""


def make_harmless(trainer: Any, folder: Path) -> tuple[str, ...]:
    """Take out whatever writes, and every limit by which the training would end.

    Args:
        trainer: Before its fit begins.
        folder: A temporary one.

    Returns:
        What of the user's program does not run, in words.

    Raises:
        TrialError: The training runs under another profiler.
    """
    profiler = type(trainer.profiler).__name__
    if profiler != "PassThroughProfiler":
        raise TrialError(f"the training runs under {profiler}: take Trainer(profiler=...) out")
    left_out = []
    loggers = []
    for logger in trainer.loggers:
        kind = type(logger).__name__
        if kind in _OF_FILES:
            loggers.append(type(logger)(save_dir=str(folder / "logs")))
        else:
            loggers.append(_dummy(trainer))
            left_out.append(f"{kind} (nothing is sent)")
    trainer.loggers = loggers
    kept = []
    for callback in trainer.callbacks:
        names = {base.__name__ for base in type(callback).__mro__}
        if "GpuProfiler" in names or names & {"Checkpoint", "Timer", "EarlyStopping", "SaveConfigCallback"}:
            if "GpuProfiler" not in names:
                left_out.append(type(callback).__name__)
        else:
            kept.append(callback)
    trainer.callbacks = kept
    trainer._default_root_dir = str(folder)
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0
    trainer.fit_loop.max_epochs = -1
    trainer.fit_loop.epoch_loop.max_steps = -1
    return (*left_out, "validation")


def without_schedulers(trainer: Any) -> None:
    """Learning rates stay: a schedule for so many steps would end, or raise, in a training without end."""
    trainer.strategy.lr_scheduler_configs = []


def profile(trainer: Any, plan: Plan) -> None:
    """Let the trainer run for some seconds with our profiler.

    Args:
        trainer: Harmless already.
        plan: For how long, and where the report goes.
    """
    from lightning_gpuprof.callback import GpuProfiler

    timer = sys.modules[f"{package_of(trainer)}.callbacks"].Timer(duration={"seconds": round(plan.seconds)})
    trainer.callbacks = [*trainer.callbacks, timer, GpuProfiler(dirpath=plan.profile_into, reports=["json", "html"])]


def package_of(trainer: Any) -> str:
    """The Lightning that the trainer is from: ``lightning.pytorch`` or ``pytorch_lightning``."""
    bases = [base.__module__ for base in type(trainer).__mro__ if base.__name__ == "Trainer"]
    return bases[-1].partition(".trainer")[0]


def _dummy(trainer: Any) -> Any:
    """Lightning's own logger that does nothing, of the Lightning that the trainer is from."""
    return sys.modules[f"{package_of(trainer)}.loggers.logger"].DummyLogger()
