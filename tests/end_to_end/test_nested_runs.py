"""Runs inside of runs, two profilers, regions without end: what is measured stays what the trainer counted."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder
from quiet_trainer import trainer_in
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler, annotate
from lightning_gpuprof.model.report import Report


class Model(pl.LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.lr = 0.01

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.layer(batch).sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.layer(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def batches(count: int) -> DataLoader[Any]:
    return DataLoader([torch.ones(4) for _ in range(count)], batch_size=1)  # type: ignore[arg-type]


def trainer_with(folder: Path, *callbacks: pl.Callback, epochs: int = 3) -> pl.Trainer:
    return trainer_in(folder, callbacks, max_epochs=epochs)


def report_of(profiler: GpuProfiler) -> Report:
    assert profiler.report is not None
    return profiler.report


class SearchAgain(LearningRateFinder):
    """Searches at the start of the second epoch, as Lightning's documentation shows it."""

    def on_fit_start(self, *args: object, **kwargs: object) -> None:
        return

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 1:
            self.lr_find(trainer, pl_module)


def test_a_learning_rate_search_in_the_middle_is_no_training(tmp_path: Path) -> None:
    profiler = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])
    search = SearchAgain(num_training_steps=15, update_attr=True)
    trainer = trainer_with(tmp_path, profiler, search)
    trainer.fit(Model(), batches(20))
    report = report_of(profiler)
    assert (trainer.global_step, report.steps.count, report.steps.optimizer_steps) == (60, 60, 60)
    assert report.series["batch"] == [float(batch) for batch in range(60)]
    assert abs(sum(report.wall.parts.values()) - report.wall.total_s) < 1e-6


def test_a_trainer_inside_a_fit_does_not_end_the_fit_s_measurement(tmp_path: Path) -> None:
    profiler = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])

    class ValidatesElsewhere(Model):
        def on_train_epoch_end(self) -> None:
            if self.current_epoch == 0:
                trainer_with(tmp_path, profiler).validate(Model(), batches(4), verbose=False)

    with pytest.warns(RuntimeWarning, match="a validate of another trainer inside of this run"):
        trainer_with(tmp_path, profiler).fit(ValidatesElsewhere(), batches(10))
    report = report_of(profiler)
    assert (report.run["stage"], report.run["status"], report.steps.count) == ("fit", "finished", 30)


@pytest.mark.filterwarnings("ignore:gpuprof. nested")
def test_a_trainer_inside_a_fit_with_the_same_profiler_takes_nothing_from_the_fit(tmp_path: Path) -> None:
    profiler = GpuProfiler(reports=["json"])

    class Inner(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer_with(tmp_path / "inner", profiler, epochs=1).fit(Model(), batches(2))

    trainer_with(tmp_path / "outer", profiler, Inner(), epochs=1).fit(Model(), batches(5))
    report = report_of(profiler)
    assert report.steps.count == 5
    assert report.run["batch.shapes"] == "[1, 4]"


def test_options_of_a_second_profiler_are_told_to_be_unused(tmp_path: Path) -> None:
    first = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])
    second = GpuProfiler(windows=[3])
    with pytest.warns(RuntimeWarning, match="two GpuProfilers are in this trainer"):
        trainer_with(tmp_path, first, second, epochs=1).fit(Model(), batches(8))
    assert report_of(first).steps.count == 8
    assert second.report is None


def test_names_that_count_steps_do_not_fill_the_memory(tmp_path: Path) -> None:
    class Counting(Model):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            with annotate(f"step {self.global_step}"):
                return super().training_step(batch, batch_idx)

    profiler = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])
    trainer_with(tmp_path, profiler, epochs=1).fit(Counting(), batches(450))
    names = {row.name for row in report_of(profiler).ledger if " > " in row.name}
    assert "training_step > other regions" in names
    assert 100 < len(names) <= 401


def test_a_region_that_recurs_into_itself_does_not_fill_the_memory(tmp_path: Path) -> None:
    def down(name: str, depth: int) -> None:
        with annotate(name):
            if depth:
                down(name, depth - 1)

    class Recurring(Model):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            for name in "abc":
                down(name, 200)
            return super().training_step(batch, batch_idx)

    profiler = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])
    trainer_with(tmp_path, profiler, epochs=1).fit(Recurring(), batches(10))
    names = {row.name for row in report_of(profiler).ledger if " > " in row.name}
    assert "training_step > other regions" in names
    assert len(names) <= 401


def test_a_region_in_compiled_code_is_left_out_and_the_graph_stays_whole(tmp_path: Path) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, batch: Tensor) -> Tensor:
            with annotate("inside"):
                result: Tensor = self.layer(batch)
            return result

    class Compiled(Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.compile(Inside(), fullgraph=True, backend="eager")  # type: ignore[assignment]

        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            with annotate("around"):
                return super().training_step(batch, batch_idx)

    profiler = GpuProfiler(dirpath=str(tmp_path / "out"), reports=["json"], windows=[])
    trainer_with(tmp_path, profiler, epochs=1).fit(Compiled(), batches(10))
    names = {row.name for row in report_of(profiler).ledger}
    assert "training_step > around" in names
    assert not any("inside" in name for name in names)
    assert report_of(profiler).steps.count == 10
