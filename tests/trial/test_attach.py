"""A trial that its plan is not for ends on all ranks, or on none; what ranks do when it is over is no failure."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import multiprocessing

from lightning_gpuprof.errors import TrialOver
from lightning_gpuprof.model.trial import Over, Plan
from lightning_gpuprof.trial import attach, conditions, training
from lightning_gpuprof.trial.harmless import LeftOut


class Trial:
    """One that has begun."""

    def __init__(self, *_: object) -> None:
        raise KeyError("begun")


@pytest.mark.parametrize(("of_rank_0", "ends"), [("A100", KeyError), ("T4", TrialOver)])
@pytest.mark.parametrize("own", ["A100", "T4"])
def test_rank_0_says_for_all_whether_settings_differ(
    of_rank_0: str, ends: type[BaseException], own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def broadcast(value: bool) -> bool:
        asked.append(value)
        return of_rank_0 != "A100"

    trainer: Any = SimpleNamespace(
        world_size=2, is_global_zero=False, strategy=SimpleNamespace(broadcast=broadcast), callbacks=[], datamodule=None
    )
    monkeypatch.setattr(conditions, "settings_of", lambda _: {"device.name": own})
    monkeypatch.setattr(training, "InterleavedTrial", Trial)
    plan = Plan(arms=(), seconds=1.0, conditions={"device.name": "A100"})
    with pytest.raises(ends):
        attach._Epoch(trainer, plan, tmp_path, LeftOut(loggers=(), others=()))()
    assert asked == [own != "A100"], "each rank takes part"


def abort(_: int) -> None:
    """As gloo does where the other rank has left."""
    os.kill(os.getpid(), signal.SIGABRT)


class Launcher:
    """Of a rank that is aborted."""

    def launch(self) -> None:
        multiprocessing.start_processes(abort, nprocs=1, start_method="fork")


@pytest.mark.parametrize(("over", "ends"), [(True, TrialOver), (False, multiprocessing.ProcessExitedException)])
def test_a_rank_that_is_aborted_is_no_failure_once_the_trial_is_over(
    over: bool, ends: type[BaseException], tmp_path: Path
) -> None:
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=Launcher()), callbacks=[], datamodule=None)
    if over:
        attach._append(tmp_path / attach.EVENTS_FILE, Over(steps=9, seconds=1.0))
    with pytest.raises(ends):
        attach._Launch(trainer, tmp_path)()
