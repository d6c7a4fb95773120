"""Conditions from the trainer to the report: the first batch, the hash, runs that may not be compared."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Planted, Sleepy, trainer_for
from python_process import run_python
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.conditions import HASH_NAME
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.html import render_html

PROGRAM = """
import sys
import lightning.pytorch as pl
from pathlib import Path
from torch.utils.data import DataLoader
from planted_runs import Planted, Sleepy, trainer_for
from lightning_gpuprof import GpuProfiler
pl.seed_everything(int(sys.argv[2]))
profiler = GpuProfiler(dirpath=sys.argv[1], reports=["json"], windows=[])
loader = DataLoader(Sleepy(40), batch_size=4, num_workers=int(sys.argv[3]))
trainer_for(Path(sys.argv[1]), [profiler]).fit(Planted(), loader)
"""


def run_of(folder: Path, *, seed: int = 1, workers: int = 0) -> dict[str, Any]:
    run_python("-c", PROGRAM, folder, str(seed), str(workers))
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())["run"]
    return found


@pytest.mark.slow
def test_equal_runs_in_two_processes_have_equal_hashes_and_others_do_not(tmp_path: Path) -> None:
    first, second = run_of(tmp_path / "a"), run_of(tmp_path / "b", seed=2)
    other = run_of(tmp_path / "c", workers=1)
    assert first[HASH_NAME] == second[HASH_NAME] != other[HASH_NAME]
    assert first["run_id"] != second["run_id"]


def fitted(folder: Path, *, batch_size: int = 4, stage: str = "fit", callbacks: tuple[pl.Callback, ...] = ()) -> Report:
    profiler = GpuProfiler(dirpath=str(folder / "run"), reports=["json"], windows=[])
    trainer = trainer_for(folder, [profiler, *callbacks], limit_val_batches=1.0)
    loader = DataLoader(Sleepy(40 * batch_size), batch_size=batch_size)
    if stage == "fit":
        trainer.fit(Planted(), loader, DataLoader(Sleepy(8), batch_size=4))
    else:
        trainer.validate(Planted(), loader, verbose=False)
    assert profiler.report is not None
    return profiler.report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return fitted(tmp_path_factory.mktemp("plain"))


def test_the_calls_that_make_what_fit_is_given_are_known(report: Report) -> None:
    run = report.run
    assert run["loader.built_by"] == "DataLoader(Sleepy(40 * batch_size), batch_size=batch_size)"
    assert run["val_loader.built_by"] == "DataLoader(Sleepy(8), batch_size=4)"
    (line,) = (
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.startswith("    loader =")
    )
    assert str(run["loader.built_at"]).endswith(f"test_conditions_of_runs.py:{line}")


@pytest.mark.parametrize("stage", ["fit", "validate"])
def test_the_first_batch_is_in_the_report_and_the_hook_is_gone(tmp_path: Path, stage: str) -> None:
    class Looks(pl.Callback):
        hooks: ClassVar[list[object]] = []

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            self.hooks.append(trainer.callbacks[0].on_train_batch_start)

        on_validation_batch_end = on_train_batch_end

    report = fitted(tmp_path, stage=stage, callbacks=(Looks(),))
    assert report.run["batch.shapes"] == "[4, 8]"
    assert report.run["batch.dtypes"] == "float32"
    assert set(Looks.hooks) == {None}
    assert "val_loader.batch_size" not in report.run or stage == "fit"


def test_the_list_that_keeps_something_of_each_step_is_in_the_report_also_of_an_interrupted_run(tmp_path: Path) -> None:
    class Keeps(pl.Callback):
        def __init__(self) -> None:
            self.losses: list[Any] = []

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.losses.append(outputs["loss"])
            if batch_idx == 29:
                raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        fitted(tmp_path, callbacks=(Keeps(),))
    run = json.loads((tmp_path / "run" / "report.json").read_text())["run"]
    assert (run["kept.in"], run["kept.items"], run["kept.kind"]) == ("Keeps.losses", 30, "tensors")


def test_a_profiler_that_waits_for_its_first_batch_can_be_copied(tmp_path: Path) -> None:
    class Copies(pl.Callback):
        copies: ClassVar[list[GpuProfiler]] = []

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            ours = trainer.callbacks[0]
            assert callable(ours.on_train_batch_start)
            self.copies += [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]

    fitted(tmp_path, callbacks=(Copies(),))
    assert ["on_train_batch_start" in vars(copied) for copied in Copies.copies] == [False, False]


def test_a_batch_that_cannot_be_described_harms_nothing(tmp_path: Path) -> None:
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("not for you")

    class Takes(Planted):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch[1]).square().mean()

        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
            return batch

    profiler = GpuProfiler(dirpath=str(tmp_path / "run"), reports=["json"], windows=[])
    trainer = trainer_for(tmp_path, [profiler])
    trainer.fit(
        Takes(), DataLoader([(0, torch.ones(8))] * 30, batch_size=2, collate_fn=lambda rows: (Odd(), rows[0][1]))
    )
    assert trainer.global_step == 15
    assert profiler.report.steps.count == 15


def test_runs_of_another_batch_size_are_not_comparable_unasked(report: Report, tmp_path: Path) -> None:
    other = fitted(tmp_path, batch_size=8)
    refused = compare(report, other)
    assert refused.outcome == "not comparable"
    assert "loader.batch_size: 4 -> 8" in refused.training.why
    assert compare(report, other, allow=("batch",)).training.measure == "samples/s"


def test_reading_conditions_has_its_price_in_the_report(report: Report) -> None:
    assert report.overhead["conditions_s"]
    assert str(report.run[HASH_NAME]) in render_html(report)
    assert len(report.run) > 90
