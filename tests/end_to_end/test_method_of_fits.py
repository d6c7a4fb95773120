"""Real fits with a target: a planted callback can reach it, a healthy run has nothing to gain and no alarm."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from planted_runs import Computing, Planted, Sleepy, blamed, fit
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import make_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Slow(pl.Callback):
    """Sleeps longer than a step takes."""

    def on_train_batch_end(self, *arguments: Any) -> None:
        time.sleep(0.1)


def run(folder: Path, model: pl.LightningModule, target: float | str, *callbacks: pl.Callback) -> Report:
    return fit(
        folder,
        model,
        DataLoader(Sleepy(120 * 16), batch_size=16),
        profiler=GpuProfiler(
            windows=[],
            nvml=False,
            reports=["json"],
            target=target,
            thresholds={"input-bound": {"least_ratio": 0.3}},
        ),
        callbacks=callbacks,
    )


def test_a_target_is_within_reach_of_what_was_planted(tmp_path: Path) -> None:
    report = run(tmp_path, Planted(), "1.2x", Slow())
    assert report.verdict.kind == "loop-bound"
    assert report.target.reachable is True
    assert "callback-slow" in report.target.rules
    assert report.method is not None
    operation = next(level for level in report.method.levels if level.name == "operation")
    assert not operation.unfolded
    assert report.combined.saved_ms_per_step >= 50


def test_a_healthy_run_has_no_alarm_and_a_report_made_later_says_the_same(tmp_path: Path) -> None:
    report = run(tmp_path, Computing(), "3x")
    assert blamed(report) == set()
    assert report.verdict.kind in ("compute-bound", "host-bound", "mixed")  # on a busy machine it waits for a CPU
    assert report.target.reachable is False
    again = make_report(tmp_path)
    assert again.target == report.target
    assert again.method == report.method
    assert again.run["gpuprof.threshold.input-bound.least_ratio"] == 0.3
