"""A training that leaves nothing behind: its loggers, checkpoints and folders are replaced before it begins."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.capture.torch_tracer import other_profiler
from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.trial import Plan

_FILE_LOGGERS = ("TensorBoardLogger", "CSVLogger")
"""Loggers that write below one folder: they go on in a temporary one, since what they cost belongs to the step."""
_LEFT_OUT = {
    "GpuProfiler",
    "Checkpoint",
    "Timer",
    "EarlyStopping",
    "SaveConfigCallback",
    "BatchSizeFinder",
    "LearningRateFinder",
}
"""Callbacks that write, that end a training, or that run one of their own before it."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What of the user's program does not run."""

    loggers: tuple[str, ...]
    """Classes."""
    others: tuple[str, ...]
    """Callbacks, validation."""


def make_harmless(trainer: Any, folder: Path) -> LeftOut:
    """Take out whatever writes, and every callback by which the training would end.

    Args:
        trainer: Before its fit begins.
        folder: A temporary one.

    Returns:
        What of the user's program does not run.

    Raises:
        TrialError: The program runs under another profiler.
    """
    profiler = type(trainer.profiler).__name__
    if profiler != "PassThroughProfiler":
        raise TrialError(f"the training runs under {profiler}: take Trainer(profiler=...) out")
    if other := other_profiler(trainer.profiler, os.environ) or _python_profiler():
        raise TrialError(f"the program runs under {other}, which changes what a step takes: start it without")
    loggers = redirect_output(trainer, folder)
    kept, left_out = [], []
    for callback in trainer.callbacks:
        names = {base.__name__ for base in type(callback).__mro__}
        if not names & _LEFT_OUT:
            kept.append(callback)
        elif "GpuProfiler" not in names:
            left_out.append(type(callback).__name__)
    trainer.callbacks = kept
    trainer.save_checkpoint = do_nothing
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0
    return LeftOut(loggers=loggers, others=(*left_out, "validation"))


def redirect_output(trainer: Any, folder: Path) -> tuple[str, ...]:
    """Let nothing of Lightning's write where the user wants it.

    Args:
        trainer: Before anything of it runs.
        folder: A temporary one.

    Returns:
        Classes of the loggers that do not run, so that they send nothing.
    """
    left_out = []
    loggers = []
    for logger in trainer.loggers:
        kind = type(logger).__name__
        if kind in _FILE_LOGGERS:
            loggers.append(type(logger)(save_dir=str(folder / "logs"), **_written_as(logger)))
        else:
            dummy = logger if kind == "DummyLogger" else _dummy(trainer)
            vars(dummy).setdefault("in_place_of", kind)
            loggers.append(dummy)
            if dummy.in_place_of != "DummyLogger":
                left_out.append(dummy.in_place_of)
    trainer.loggers = loggers
    trainer._default_root_dir = str(folder)
    return tuple(left_out)


def _written_as(logger: Any) -> dict[str, Any]:
    """How often a logger writes belongs to what it costs."""
    if type(logger).__name__ == "CSVLogger":
        return {"flush_logs_every_n_steps": logger._flush_logs_every_n_steps}
    return dict(getattr(logger, "_kwargs", {}))


def _python_profiler() -> str:
    """Such as cProfile; empty if there is none."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    tool = None if monitoring is None else monitoring.get_tool(monitoring.PROFILER_ID)
    return "a Python profiler" if tool or sys.getprofile() is not None else ""


def do_nothing(*_: Any, **__: Any) -> None:
    """Stands in for what is not to happen."""


def is_tuning(trainer: Any) -> bool:
    """Whether this fit is a search of Lightning's Tuner, after which the program's own fit comes."""
    return any(getattr(callback, "_early_exit", False) for callback in trainer.callbacks)


def forget_exceptions(trainer: Any) -> None:
    """The end of a trial is no failure: neither callbacks nor the data module are told of it.

    It leaves the fit by :class:`~lightning_gpuprof.errors.TrialOver`.
    """
    trainer.callbacks = []
    if trainer.datamodule is not None:
        trainer.datamodule.on_exception = do_nothing


def keep_learning_rates(trainer: Any) -> None:
    """Learning rates stay: a schedule for so many steps would end, or raise, in a training without end."""
    trainer.strategy.lr_scheduler_configs = []


def profile(trainer: Any, plan: Plan) -> None:
    """Let the trainer run for some seconds with our profiler.

    Args:
        trainer: Harmless already.
        plan: For how long, and where the report goes.
    """
    from lightning_gpuprof.callback import GpuProfiler

    for callback in trainer.callbacks:
        if type(callback).__module__.partition(".")[0] not in ("lightning", "pytorch_lightning"):
            _leave_out_end(callback)
    callbacks = sys.modules[f"{lightning_package(trainer)}.callbacks"]
    endless = callbacks.LambdaCallback(on_train_start=_go_on)
    timer = callbacks.Timer(duration={"seconds": round(plan.seconds)})
    profiler = GpuProfiler(dirpath=plan.profile_into, reports=["json", "html"])
    trainer.callbacks = [endless, *trainer.callbacks, timer, profiler]


def _leave_out_end(owner: Any) -> None:
    """The user's training has not come to an end: what a callback or a model writes then is not for the profile."""
    owner.on_train_end = owner.on_fit_end = do_nothing


def _go_on(trainer: Any, module: Any) -> None:
    """The time alone ends the profile: a few steps say nothing, and an epoch may last."""
    _leave_out_end(module)
    keep_learning_rates(trainer)
    loop = trainer.fit_loop
    loop.max_epochs = loop.epoch_loop.max_steps = -1
    loop.min_epochs = loop.epoch_loop.min_steps = None


def lightning_package(trainer: Any) -> str:
    """The Lightning that the trainer is from: ``lightning.pytorch`` or ``pytorch_lightning``."""
    bases = [base.__module__ for base in type(trainer).__mro__ if base.__name__ == "Trainer"]
    return bases[-1].partition(".trainer")[0]


def _dummy(trainer: Any) -> Any:
    """Lightning's own logger that does nothing, of the Lightning that the trainer is from."""
    return sys.modules[f"{lightning_package(trainer)}.loggers.logger"].DummyLogger()
