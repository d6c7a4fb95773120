"""What makes a program's fit a trial: set in its environment by ``gpuprof try``, asked for when a Trainer is made."""

from __future__ import annotations

import faulthandler
import functools
import os
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from lightning_gpuprof.errors import TrialError, TrialOver
from lightning_gpuprof.model.trial import Differs, Event, Over, Plan, Skipped
from lightning_gpuprof.trial.at_start import set_arguments

if TYPE_CHECKING:
    from lightning_gpuprof.trial.harmless import LeftOut

PLAN_FILE = "plan.json"
EVENTS_FILE = "events.jsonl"
ATTACHED_FILE = "attached"
"""Is there once the program has made a Trainer."""
ALIVE_FILE = "alive"
"""Is locked as long as ``gpuprof try`` runs."""
STACKS_FILE = "stacks-{pid}.txt"
"""Where a hung process of a trial stands, all its threads; most recent call first."""
_RANK_OVER = 77
"""Exit code of a spawned rank at the end of the trial: by it the process that waits for a result knows."""
_MOST_WORDS = 160
"""Characters of an error of others."""
_CLASSES = (("lightning.pytorch", "Trainer"), ("pytorch_lightning", "Trainer"))


def attach(folder: Path) -> None:
    """Let the next fit of any Trainer be a trial, and the last thing that this program does; the folder has the plan.

    Raises:
        TrialOver: Lightning does not take the arguments that the plan has for the Trainer.
    """
    (folder / ATTACHED_FILE).touch()
    _end_with(folder)
    plan = _plan(folder)
    if plan.alone is not None:
        try:
            set_arguments(plan.alone)
        except Exception as error:  # Lightning refuses what cannot be, in errors of any kind
            _refuse(folder, error)
            raise TrialOver(0) from error
    for module, name in _CLASSES:
        trainer = getattr(sys.modules.get(module), name, None)
        if trainer is not None and not hasattr(trainer.fit, "__wrapped__"):
            trainer.fit = _in_trial(trainer.fit, folder)
            for other in ("validate", "test", "predict"):
                setattr(trainer, other, _before_trial(getattr(trainer, other), folder))


def _plan(folder: Path) -> Plan:
    return msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)


@functools.cache
def _end_with(folder: Path) -> None:
    """Let this process end as soon as ``gpuprof try`` is gone, though it was killed: its lock is free then."""
    try:
        alive = (folder / ALIVE_FILE).open("rb")
    except OSError:
        return

    def wait() -> None:
        import fcntl

        import psutil

        fcntl.flock(alive, fcntl.LOCK_SH)
        shutil.rmtree(folder, ignore_errors=True)
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        os._exit(1)

    threading.Thread(target=wait, name="gpuprof-try", daemon=True).start()


def _in_trial(fit: Any, folder: Path) -> Any:
    @functools.wraps(fit)
    def trial_fit(trainer: Any, *args: Any, **kwargs: Any) -> None:
        from lightning_gpuprof.trial.harmless import is_tuning, make_harmless, profile, redirect_output

        if is_tuning(trainer):
            redirect_output(trainer, folder)
            fit(trainer, *args, **kwargs)
            return
        plan = _plan(folder)
        try:
            left_out = make_harmless(trainer, folder)
        except TrialError as error:
            _refuse(folder, error)
            raise TrialOver(0) from error
        if plan.profile_into:
            profile(trainer, plan)
            fit(trainer, *args, **kwargs)
            _append(folder / EVENTS_FILE, Over(steps=trainer.global_step, seconds=plan.seconds))
            raise TrialOver(0)
        trainer.fit_loop.advance = _Epoch(trainer, plan, folder, left_out)
        if hasattr(trainer.strategy.launcher, "_wrapping_function"):
            trainer.strategy.launcher.launch = _Launch(trainer, folder)
        try:
            fit(trainer, *args, **kwargs)
        except Exception as error:
            if plan.alone is not None:
                _refuse(folder, error)
            raise
        finally:
            if not isinstance(sys.exc_info()[1], (Exception, SystemExit)):
                raise TrialOver(0)  # ranks that were spawned have ended; nothing of the user's comes after a trial

    return trial_fit


def _before_trial(method: Any, folder: Path) -> Any:
    """What the program does before its fit writes nothing either."""

    @functools.wraps(method)
    def harmless(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from lightning_gpuprof.trial.harmless import redirect_output

        redirect_output(trainer, folder)
        return method(trainer, *args, **kwargs)

    return harmless


class _Launch:
    """In the place of ``launch`` of a launcher that spawns ranks: it waits for no result of a trial that is over."""

    def __init__(self, trainer: Any, folder: Path) -> None:
        self._trainer = trainer
        self._events = folder / EVENTS_FILE

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from lightning_gpuprof.trial.harmless import forget_exceptions

        launcher = self._trainer.strategy.launcher
        try:
            return type(launcher).launch(launcher, *args, **kwargs)
        except Exception as error:
            if getattr(error, "exit_code", None) != _RANK_OVER and not self._is_over():
                raise
            forget_exceptions(self._trainer)
            raise TrialOver(0) from None

    def _is_over(self) -> bool:
        """Whether the last block ended: then ranks leave in any order, and gloo may abort the last one."""
        return self._events.is_file() and b'{"type":"over"' in self._events.read_bytes()


class _Epoch:
    """In the place of the fit loop's epoch: the trial. Ranks that are spawned get it with their trainer."""

    def __init__(self, trainer: Any, plan: Plan, folder: Path, left_out: LeftOut) -> None:
        self._trainer = trainer
        self._pid = os.getpid()
        self._plan = plan
        self._folder = folder
        self._left_out = left_out

    def __call__(self) -> None:
        from lightning_gpuprof.trial.conditions import differences, settings_of
        from lightning_gpuprof.trial.training import InterleavedTrial

        write = functools.partial(_append, self._folder / EVENTS_FILE)
        now = settings_of(self._trainer) if self._plan.conditions else {}
        differs = bool(differences(self._plan.conditions, now))
        if self._plan.conditions and self._trainer.world_size > 1:
            differs = self._trainer.strategy.broadcast(differs)  # that of rank 0: other ranks may have another GPU
        if differs:
            if self._trainer.is_global_zero:
                write(Differs(conditions=now))
            self._end()
        try:
            trial = InterleavedTrial(self._trainer, self._plan, write)
        except TrialError as error:
            _refuse(self._folder, error)
            self._end()
        if self._trainer.is_global_zero:
            write(trial.started(self._left_out))
        stacks = (self._folder / STACKS_FILE.format(pid=os.getpid())).open("w")
        faulthandler.dump_traceback_later(self._plan.seconds + self._plan.patience_s / 2, file=stacks)
        try:
            trial.run()
        except TrialOver:
            self._end()

    def _end(self) -> NoReturn:
        from lightning_gpuprof.trial.harmless import forget_exceptions

        forget_exceptions(self._trainer)
        raise TrialOver(0 if os.getpid() == self._pid else _RANK_OVER) from None


def _refuse(folder: Path, error: Exception) -> None:
    """Say why nothing is tried in this process."""
    text = str(error).strip()
    if type(error).__name__ == "ProcessRaisedException":  # of a spawned rank, whose traceback it holds
        text = text.splitlines()[-1]
    elif not isinstance(error, TrialError):
        text = f"{type(error).__name__}: {text}"
    line = text.partition("\n")[0]
    why = line if len(line) <= _MOST_WORDS else f"{line[:_MOST_WORDS].rpartition(' ')[0]} ..."
    _append(folder / EVENTS_FILE, Skipped(arm="", why=why, failed=not isinstance(error, TrialError)))


def _append(path: Path, event: Event) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(event) + b"\n")
