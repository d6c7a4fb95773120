"""What makes a program's fit a trial: set in its environment by ``gpuprof try``, asked for when a Trainer is made."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.trial import Event, Over, Plan, Skipped

TRIAL = "GPUPROF_TRIAL"
"""Environment variable: the folder with the plan, in which everything is written."""
PLAN_FILE = "plan.json"
EVENTS_FILE = "events.jsonl"
ATTACHED_FILE = "attached"
"""Is there once the program has made a Trainer."""
_CLASSES = (("lightning.pytorch", "Trainer"), ("pytorch_lightning", "Trainer"))


def attach(folder: Path) -> None:
    """Let the next fit of any Trainer be a trial, and the last thing that this program does.

    Args:
        folder: Has the plan.
    """
    (folder / ATTACHED_FILE).touch()
    for module, name in _CLASSES:
        trainer = getattr(sys.modules.get(module), name, None)
        if trainer is not None and not hasattr(trainer.fit, "__wrapped__"):
            trainer.fit = _in_trial(trainer.fit, folder)


def _in_trial(fit: Any, folder: Path) -> Any:
    @functools.wraps(fit)
    def trial_fit(trainer: Any, *args: Any, **kwargs: Any) -> None:
        from lightning_gpuprof.trial.harmless import make_harmless, profile
        from lightning_gpuprof.trial.training import InterleavedTrial, TrialOver, started

        plan = msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
        write = functools.partial(_append, folder / EVENTS_FILE)
        try:
            left_out = make_harmless(trainer, folder)
        except TrialError as error:
            write(Skipped(arm="", why=str(error)))
            raise TrialOver(0) from error

        if plan.profile_into:
            profile(trainer, plan)
            fit(trainer, *args, **kwargs)
            write(Over(steps=trainer.global_step, seconds=plan.seconds))
            raise TrialOver(0)

        def advance() -> None:
            trial = InterleavedTrial(trainer, plan, write)
            if trainer.is_global_zero:
                write(started(trainer, left_out))
            trial.run()

        trainer.fit_loop.advance = advance
        try:
            fit(trainer, *args, **kwargs)
        finally:
            if not isinstance(sys.exc_info()[1], Exception):
                raise TrialOver(0)  # ranks that were spawned have ended; nothing of the user's comes after a trial

    return trial_fit


def _append(path: Path, event: Event) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(event) + b"\n")
