"""A trainer that is tried writes nothing where the user would find it, and nothing of the user's ends it."""

import cProfile
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    EarlyStopping,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    Timer,
)
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.errors import TrialError, TrialOver
from lightning_gpuprof.model.trial import Plan
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.trial.arms import asked
from lightning_gpuprof.trial.harmless import (
    forget_exceptions,
    is_tuning,
    lightning_package,
    make_harmless,
    profile,
    redirect_output,
)
from lightning_gpuprof.trial.switches import switched


class Own(Callback):
    """Of the user."""

    def on_train_end(self, *_: Any) -> None:
        """A result of the user's."""
        raise AssertionError("the training has not come to its end")


class OwnModel(BoringModel):
    """Of the user."""

    def on_train_end(self) -> None:
        """A result of the user's."""
        raise AssertionError("the training has not come to its end")

    on_fit_end = on_train_end


class OwnCheckpoint(ModelCheckpoint):
    """Likewise, and it writes."""


class OwnLogger(CSVLogger):
    """Takes another argument than the folder."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)


def made(folder: Path, **options: Any) -> Trainer:
    """A user's trainer."""
    return Trainer(accelerator="cpu", default_root_dir=folder / "root", max_epochs=3, **options)


def test_callbacks_that_write_or_end_the_training_are_left_out(tmp_path: Path) -> None:
    kinds = [EarlyStopping("x"), Timer(), OwnCheckpoint(), LearningRateFinder(), BatchSizeFinder(), GpuProfiler()]
    trainer = made(tmp_path, callbacks=[Own(), LearningRateMonitor(), *kinds], enable_progress_bar=False)
    left_out = make_harmless(trainer, tmp_path / "folder")
    assert [type(one) for one in trainer.callbacks if "ModelSummary" not in type(one).__name__] == [
        Own,
        LearningRateMonitor,
    ]
    assert set(left_out.others) == {
        *("EarlyStopping", "Timer", "OwnCheckpoint", "LearningRateFinder", "BatchSizeFinder", "validation"),
    }


def test_loggers_write_elsewhere_or_not_at_all(tmp_path: Path) -> None:
    loggers = [
        TensorBoardLogger(tmp_path / "tb", max_queue=3),
        CSVLogger(tmp_path / "csv", flush_logs_every_n_steps=7),
        WandbLogger(offline=True, save_dir=tmp_path),
        OwnLogger(tmp_path / "own"),
    ]
    trainer = made(tmp_path, logger=loggers)
    left_out = redirect_output(trainer, tmp_path / "folder")
    assert left_out == ("WandbLogger", "OwnLogger")
    kinds = [type(one).__name__ for one in trainer.loggers]
    assert kinds == ["TensorBoardLogger", "CSVLogger", "DummyLogger", "DummyLogger"]
    assert all(str(one.save_dir).startswith(str(tmp_path / "folder")) for one in trainer.loggers[:2])
    assert trainer.loggers[0]._kwargs == {"max_queue": 3}
    assert trainer.loggers[1]._flush_logs_every_n_steps == 7
    assert trainer.default_root_dir == str(tmp_path / "folder")
    assert redirect_output(trainer, tmp_path / "folder") == left_out, "once more changes nothing"
    assert [type(one).__name__ for one in trainer.loggers] == kinds
    for setting in ("logger=False", "without=WandbLogger", "without=OwnLogger"):
        with pytest.raises(TrialError, match="loggers do not run in a trial"):
            switched(asked([setting])[0], trainer)


def test_no_checkpoint_is_written_by_hand_either(tmp_path: Path) -> None:
    trainer = made(tmp_path, logger=False)
    make_harmless(trainer, tmp_path / "folder")
    trainer.save_checkpoint(tmp_path / "mine.ckpt")
    assert not (tmp_path / "mine.ckpt").exists()


def test_limits_of_the_user_stay_for_who_reads_them(tmp_path: Path) -> None:
    trainer = made(tmp_path, max_steps=70, logger=False)
    make_harmless(trainer, tmp_path)
    assert (trainer.max_epochs, trainer.max_steps) == (3, 70)


def test_the_profile_of_the_first_seconds_is_no_end_of_the_users_training(tmp_path: Path) -> None:
    limits = {"max_steps": 2, "min_epochs": 10_000, "limit_train_batches": 4}
    trainer = made(tmp_path, callbacks=[Own()], logger=False, enable_progress_bar=False, **limits)
    make_harmless(trainer, tmp_path / "folder")
    profile(trainer, Plan(arms=(), seconds=3, profile_into=str(tmp_path / "profile")))
    trainer.fit(OwnModel())
    assert [path.name for path in tmp_path.iterdir()] == ["profile"]
    [report] = (tmp_path / "profile").glob("**/report.json")
    assert json_report.read(report).steps.count > 2, "the time ends it, no limit of the user's"


def test_the_end_of_a_trial_is_no_failure_of_the_users(tmp_path: Path) -> None:
    told: list[object] = []

    class Ends(Callback):
        def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
            forget_exceptions(trainer)
            raise TrialOver(0)

        def on_exception(self, *_: Any) -> None:
            told.append(self)

    class Data(BoringDataModule):
        def on_exception(self, exception: BaseException) -> None:
            told.append(self)

    with pytest.raises(TrialOver):
        made(tmp_path, callbacks=[Ends()], logger=False).fit(BoringModel(), datamodule=Data())
    assert told == []


def test_another_profiler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="under SimpleProfiler: take"):
        make_harmless(made(tmp_path, profiler="simple"), tmp_path)


def test_a_profiler_around_the_training_is_refused(tmp_path: Path) -> None:
    with torch.profiler.profile(), pytest.raises(TrialError, match=r"under a torch profiler .*: start it without"):
        make_harmless(made(tmp_path), tmp_path)
    python = cProfile.Profile()
    python.enable()
    try:
        with pytest.raises(TrialError, match="under a Python profiler"):
            make_harmless(made(tmp_path), tmp_path)
    finally:
        python.disable()


def test_a_search_of_the_tuner_is_known(tmp_path: Path) -> None:
    finder = LearningRateFinder()
    trainer = made(tmp_path, callbacks=[finder])
    assert not is_tuning(trainer)
    finder._early_exit = True  # as the Tuner does
    assert is_tuning(trainer)


def test_a_trainer_of_a_subclass_is_of_its_own_lightning(tmp_path: Path) -> None:
    class Mine(Trainer):
        pass

    assert lightning_package(Mine(accelerator="cpu", logger=False)) == "lightning.pytorch"
