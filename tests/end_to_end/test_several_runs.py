"""Several runs with one profiler: tuners before the training, trainers that share it."""

import warnings
from pathlib import Path

import lightning.pytorch as pl
import pytest
from planted_runs import Planted, fit, loader, quiet_profiler, trainer_for

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture import output_folder
from lightning_gpuprof.cli.source import run_folder
from lightning_gpuprof.pipeline import load_report

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def test_a_learning_rate_finder_before_the_training_is_set_up_and_no_step(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(3, 4))
    finder = pl.callbacks.LearningRateFinder(num_training_steps=12)
    report = fit(tmp_path, Planted(), loader(), profiler=profiler, callbacks=[finder])
    assert report.steps.count == 20
    assert (report.windows[0].start_step, report.windows[0].problem) == (3, "")
    assert profiler.folder is not None
    assert list(read_journal(profiler.folder / "rank0.jsonl").steps.batch) == list(range(20))


def test_a_tuner_of_its_own_leaves_the_run_that_follows_alone(tmp_path: Path) -> None:
    profiler = quiet_profiler(reports=["terminal"])
    trainer = trainer_for(tmp_path, [profiler])
    model = Planted()
    pl.tuner.Tuner(trainer).lr_find(model, loader(), num_training=10)
    trainer.fit(model, loader())
    assert profiler.report.steps.count == 20


def test_two_trainers_may_share_a_profiler(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    for name in ("a", "b"):
        trainer_for(tmp_path / name, [profiler]).fit(Planted(), loader())
        assert profiler.report.steps.count == 20
    assert (tmp_path / "a" / "gpuprof").is_dir()
    assert (tmp_path / "b" / "gpuprof").is_dir()


def test_a_folder_of_checkpoints_holds_nothing_of_ours_and_nobody_is_warned(tmp_path: Path) -> None:
    checkpoints, profiler = tmp_path / "out", quiet_profiler()
    checkpoints.mkdir()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Checkpoint directory .* not empty")
        report = fit(
            checkpoints,
            loader=loader(4),
            profiler=profiler,
            callbacks=[pl.callbacks.ModelCheckpoint(dirpath=checkpoints)],
            enable_checkpointing=True,
        )
    assert [file.suffix for file in checkpoints.iterdir()] == [".ckpt"]
    assert profiler.folder == tmp_path / "out-gpuprof"
    assert load_report(checkpoints) == load_report(profiler.folder)  # named by its log folder as any other run
    assert run_folder(checkpoints) == profiler.folder
    assert report.steps.count == 2


def test_a_run_is_recorded_in_its_log_folder_where_there_is_no_place_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work := tmp_path / "work").mkdir()
    checkpoint = pl.callbacks.ModelCheckpoint(dirpath=work)
    trainer = trainer_for(work, [checkpoint], enable_checkpointing=True)
    assert output_folder.target_folder(None, "fit", trainer) == tmp_path / "work-gpuprof"
    assert output_folder.target_folder(None, "test", trainer) == tmp_path / "work-gpuprof-test"
    assert output_folder.target_folder(str(work / "mine"), "fit", trainer) == work / "mine"
    monkeypatch.chdir(work)  # a program has no business outside of the folder that it works in
    assert output_folder.target_folder(None, "fit", trainer) == work / "gpuprof"
    elsewhere = trainer_for(work, [pl.callbacks.ModelCheckpoint()], enable_checkpointing=True)
    assert output_folder.target_folder(None, "fit", elsewhere) == work / "gpuprof"


def test_a_run_whose_root_is_no_folder_of_this_machine_is_recorded_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profiler = quiet_profiler(reports=["json"])
    trainer = trainer_for(tmp_path, [profiler], default_root_dir="memory://run", max_steps=3)
    trainer.fit(Planted(), loader())
    assert profiler.folder == tmp_path / "gpuprof"
    assert [path.name for path in tmp_path.iterdir()] == ["gpuprof"]
