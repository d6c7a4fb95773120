"""The input pipeline of real fits, in the report."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Planted, Sleepy, fit, quiet_profiler
from torch.utils.data import DataLoader

from lightning_gpuprof.sinks.fix import fix_of

pytestmark = pytest.mark.filterwarnings("ignore")


def forked(size: int, item_s: float = 0.0, **options: Any) -> DataLoader[torch.Tensor]:
    options = {"num_workers": 1, "multiprocessing_context": "fork", **options}
    return DataLoader(Sleepy(size, item_s), batch_size=2, **options)


def test_slow_items_in_a_worker_are_processing_and_found_by_the_rule(tmp_path: Path) -> None:
    report = fit(tmp_path, loader=forked(160, item_s=0.01))
    assert report.input.verdict == "processing"
    worker = report.input.workers[0]
    assert (worker.process, worker.batches) == ("worker0", 80)
    assert worker.item_mean_ms is not None
    assert worker.item_mean_ms >= 10
    found = next(f for f in report.findings if f.rule == "too-few-workers")
    assert any(e.name == "time in its items" for e in found.evidence)


class Pairs(Planted):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(torch.cat([batch["a"], batch["b"]]), batch_idx)


def test_of_a_dict_of_loaders_the_slowest_is_judged_and_those_of_validation_left_alone(tmp_path: Path) -> None:
    loaders = {"a": forked(60), "b": DataLoader(Sleepy(40, item_s=0.01), batch_size=2)}
    report = fit(tmp_path, Pairs(), loaders, val_loader=forked(8), limit_val_batches=1.0, max_epochs=2)
    processes = [(worker.loader, worker.process) for worker in report.input.workers]
    assert processes == [(0, "worker0"), (1, "process")]
    assert report.input.workers[0].batches == 60
    assert [report.run[f"loader.{name}"] for name in ("num_workers", "0.num_workers", "1.num_workers")] == [1, 1, 0]
    found = next(f for f in report.findings if f.rule == "single-process-loading")
    assert found.change.before == {"num_workers": 0}
    assert found.change.which == "the slowest of 2 loaders, ['b']"
    assert "['b']" in fix_of(found, report.run).effect


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    report = fit(tmp_path, loader=forked(20), profiler=quiet_profiler(input_pipeline=False))
    assert report.input is None


def test_a_validation_on_its_own_is_measured(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    trainer = pl.Trainer(
        accelerator="cpu", default_root_dir=tmp_path, callbacks=[profiler], logger=False, enable_progress_bar=False
    )
    trainer.validate(Planted(), forked(60), verbose=False)
    assert profiler.report.input.workers[0].batches == 30
