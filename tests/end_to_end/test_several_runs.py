"""Several runs with one profiler: tuners before the training, trainers that share it."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
import pytest
from planted_runs import Planted, fit, loader, quiet_profiler, trainer_for

from lightning_gpuprof.analyze.journal import read_journal

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def test_a_learning_rate_finder_before_the_training_is_set_up_and_no_step(tmp_path: Path) -> None:
    class Tunable(Planted):
        lr = 1e-3

    profiler = quiet_profiler(windows=(3, 4))
    finder = pl.callbacks.LearningRateFinder(num_training_steps=12)
    report = fit(tmp_path, Tunable(), loader(), profiler=profiler, callbacks=[finder])
    assert report.steps.count == 20
    assert (report.windows[0].start_step, report.windows[0].problem) == (3, "")
    assert profiler.folder is not None
    assert list(read_journal(profiler.folder / "rank0.jsonl").steps.batch) == list(range(20))


def test_a_tuner_of_its_own_leaves_the_run_that_follows_alone(tmp_path: Path) -> None:
    class Tunable(Planted):
        lr = 1e-3

    profiler = quiet_profiler(reports=["terminal"])
    trainer = trainer_for(tmp_path, [profiler])
    model = Tunable()
    pl.tuner.Tuner(trainer).lr_find(model, loader(), num_training=10)
    trainer.fit(model, loader())
    assert profiler.report is not None
    assert profiler.report.steps.count == 20


def test_two_trainers_may_share_a_profiler(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    for name in ("a", "b"):
        trainer_for(tmp_path / name, [profiler]).fit(Planted(), loader())
        assert profiler.report is not None
        assert profiler.report.steps.count == 20
    assert (tmp_path / "a" / "gpuprof").is_dir()
    assert (tmp_path / "b" / "gpuprof").is_dir()
