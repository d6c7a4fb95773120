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
            for other in ("validate", "test", "predict"):
                setattr(trainer, other, _before_trial(getattr(trainer, other), folder))


def _in_trial(fit: Any, folder: Path) -> Any:
    @functools.wraps(fit)
    def trial_fit(trainer: Any, *args: Any, **kwargs: Any) -> None:
        from lightning_gpuprof.trial.harmless import is_tuning, make_harmless, profile, without_writing
        from lightning_gpuprof.trial.training import TrialOver

        if is_tuning(trainer):
            without_writing(trainer, folder)
            fit(trainer, *args, **kwargs)
            return
        plan = msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
        try:
            left_out = make_harmless(trainer, folder)
        except TrialError as error:
            _append(folder / EVENTS_FILE, Skipped(arm="", why=str(error)))
            raise TrialOver(0) from error
        if plan.profile_into:
            profile(trainer, plan)
            fit(trainer, *args, **kwargs)
            _append(folder / EVENTS_FILE, Over(steps=trainer.global_step, seconds=plan.seconds))
            raise TrialOver(0)
        trainer.fit_loop.advance = _Epoch(trainer, plan, folder, left_out)
        try:
            fit(trainer, *args, **kwargs)
        finally:
            if not isinstance(sys.exc_info()[1], Exception):
                raise TrialOver(0)  # ranks that were spawned have ended; nothing of the user's comes after a trial

    return trial_fit


def _before_trial(method: Any, folder: Path) -> Any:
    """What the program does before its fit writes nothing either."""

    @functools.wraps(method)
    def harmless(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from lightning_gpuprof.trial.harmless import without_writing

        without_writing(trainer, folder)
        return method(trainer, *args, **kwargs)

    return harmless


class _Epoch:
    """In the place of the fit loop's epoch: the trial. Ranks that are spawned get it with their trainer."""

    def __init__(self, trainer: Any, plan: Plan, folder: Path, left_out: tuple[str, ...]) -> None:
        self._trainer = trainer
        self._plan = plan
        self._folder = folder
        self._left_out = left_out

    def __call__(self) -> None:
        from lightning_gpuprof.trial.training import InterleavedTrial, started

        write = functools.partial(_append, self._folder / EVENTS_FILE)
        try:
            trial = InterleavedTrial(self._trainer, self._plan, write)
        except TrialError as error:
            write(Skipped(arm="", why=str(error)))
            raise
        if self._trainer.is_global_zero:
            write(started(self._trainer, self._left_out))
        trial.run()


def _append(path: Path, event: Event) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(event) + b"\n")
