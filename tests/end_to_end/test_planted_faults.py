"""Faults planted in real fits: the report names the cause, where it is and what to change; fits without stay silent.

The faults are those of the truth matrix, so large that they are most of the time on a busy machine, too.
"""

import time
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from checked_screen import checked
from planted_runs import blamed, named
from truths.faults_of_data import (
    cheap_transforms,
    late_workers,
    lengths,
    rare_slow_items,
    slow_collate,
    slow_items,
    slow_transform,
    workers,
)
from truths.faults_of_loops import (
    checkpoints,
    csv_logger,
    many_values,
    slow_callback,
    slow_epoch_end,
    slow_logger,
    slow_scheduler,
    slow_validation_items,
    trainer,
    validation,
)
from truths.faults_of_steps import (
    burn_in_forward,
    changing_forward,
    compiled,
    garbage,
    many_parameters,
    sleep_in_forward,
)
from truths.fits import Fit, fit
from truths.setup import Setup, fault, set_up

from lightning_gpuprof import GpuProfiler, HostConfig
from lightning_gpuprof.model.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def report_of(planted: Fit, folder: Path) -> Report:
    torch.compiler.reset()
    setup = set_up(planted.kind, steps=planted.steps, folder=str(folder), seed=1)
    for plant in planted.faults:
        plant(setup)
    profiler = GpuProfiler(windows=[], nvml=False, host=HostConfig(interval_s=0.1), reports=["json"])
    setup.fit([profiler])
    assert profiler.report is not None
    return checked(profiler.report)


class Uploads(pl.callbacks.ModelCheckpoint):
    """Takes its time after what Lightning counts as saving."""

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        super()._save_checkpoint(trainer, filepath)
        time.sleep(0.3 if self._every_n_train_steps > 1 else 0.04)


@fault
def uploads(setup: Setup, every: int) -> None:
    setup.trainer["enable_checkpointing"] = True
    setup.callbacks.append(Uploads(dirpath=Path(setup.folder) / "ckpt", every_n_train_steps=every))


_LENGTHS = [round(4 * 1.4**power) for power in range(17)]
"""So far apart that another program, which makes some steps twice as long, leaves them in order."""
_SHAPES = lengths(8, 12, 16, 20, 24, 28, every=20)
FAULTS: tuple[tuple[Fit, str, str, str], ...] = (
    (fit("conv", slow_items(5), steps=60), "single-process-loading", "DataLoader(..., num_workers=", "input-bound"),
    (fit("conv", slow_items(6), workers(1), steps=60), "too-few-workers", "num_workers", "input-bound"),
    (fit("conv", slow_transform(2), steps=100), "transform-hotspot", "Jitter", ""),
    (fit("conv", slow_transform(2), workers(1), steps=100), "transform-hotspot", "Jitter", ""),
    (fit("conv", slow_collate(20), workers(1), steps=100), "collate-hotspot", "_collate", ""),
    (fit("conv", rare_slow_items(400, every_batches=30), steps=150), "step-outliers", "waiting for data", ""),
    (fit("recurrent", lengths(*_LENGTHS), steps=150), "dynamic-shapes", "drop_last=True", ""),
    (fit("conv", late_workers(300, epochs=4), steps=96), "worker-startup", "persistent_workers=True", ""),
    (fit("mlp", slow_callback(40), steps=80), "callback-slow", "on_train_batch_end", "loop-bound"),
    (fit("mlp", uploads(1), steps=80), "callback-slow", "Uploads.on_train_batch_end", "loop-bound"),
    (fit("mlp", uploads(10), steps=80), "step-outliers", "Uploads.on_train_batch_end", "loop-bound"),
    (fit("mlp", many_values(200), csv_logger(every=1), steps=80), "logging-overhead", "", ""),
    (fit("mlp", slow_logger(20), steps=80), "logging-overhead", "SlowLogger ... SlowLogger takes ... per write", ""),
    (fit("mlp", slow_scheduler(20), steps=80), "lr-scheduler-cost", "", ""),
    (fit("mlp", slow_epoch_end(300, epochs=5), steps=150), "epoch-boundary-idle", "on_train_epoch_end", ""),
    (fit("mlp", validation(40, ms=20, every=40), steps=80), "validation-stall", "", "outside-steps"),
    (fit("mlp", slow_validation_items(20, ms=3, epochs=3), steps=60), "val-input-bound", "num_workers=", ""),
    (fit("mlp", checkpoints(20, ms=200), steps=80), "checkpoint-stall", "", ""),
    (fit("mlp", sleep_in_forward(30), steps=80), "blocked-in-step", "costs.py:", "host-bound"),
    (fit("mlp", garbage(50), steps=300), "gc-pauses", "garbage collector", ""),
    (fit("mlp", many_parameters(1000), steps=60), "optimizer-slow", "1,006 parameter tensors ... fused=True", ""),
    (fit("transformer", compiled(dynamic=False), _SHAPES, steps=160), "recompiles", "dynamic=True", ""),
    (fit("conv", compiled(prints=True), steps=60), "graph-breaks", ".py:", ""),
    (
        fit("transformer", trainer(detect_anomaly=True), steps=60),
        "debug-apis-on",
        "Anomaly detection takes",
        "",
    ),
)
"""A fit, the rule that names its fault, what it says, and the verdict where it is known on any machine."""


@pytest.mark.parametrize(("planted", "rule", "words", "verdict"), FAULTS, ids=[f"{row[1]} {row[2]}" for row in FAULTS])
def test_a_planted_fault_is_named(planted: Fit, rule: str, words: str, verdict: str, tmp_path: Path) -> None:
    report = report_of(planted, tmp_path)
    finding = named(report, rule)
    for part in words.split(" ... "):
        assert part in f"{finding.subject} {finding.summary} {finding.advice}"
    if verdict:
        assert report.verdict.kind == verdict
        assert (report.findings[0].rule, finding.severity) == (rule, "critical")


def test_a_step_that_turns_slow_half_way(tmp_path: Path) -> None:
    report = report_of(fit("mlp", changing_forward(0, 30), steps=400), tmp_path)
    # Which of them is a matter of how even the machine is; the rule's examples and `make truth` have no others.
    told = {f.rule for f in report.findings if f.severity != "info"}
    assert told & {"phase-change", "step-drift", "blocked-in-step"}


def test_workers_that_wait_and_workers_that_compute_are_told_apart(tmp_path: Path) -> None:
    waiting = report_of(fit("conv", slow_items(20), workers(2), steps=60), tmp_path / "waiting")
    assert "for something other than a CPU or a disk" in named(waiting, "loader-io-bound").summary
    computing = report_of(fit("conv", slow_items(10, burns=True), workers(2), steps=60), tmp_path / "computing")
    assert {f.rule for f in computing.findings} & {"loader-cpu-bound", "too-few-workers"}  # by the number of CPUs
    rules = [{f.rule for f in report.findings} for report in (waiting, computing)]
    assert ("loader-cpu-bound" in rules[0], "loader-io-bound" in rules[1]) == (False, False)


NEVER = {
    "dynamic-shapes",
    "gc-pauses",
    "grad-clip-cost",
    "lr-scheduler-cost",
    "recompiles",
    "graph-breaks",
    "debug-apis-on",
    "cpu-oversubscription",
    "host-leak",
    "sanity-check-cost",
}
"""Rules that must not speak in fits without a fault, not even as information, whatever else the machine does."""
_LONG = burn_in_forward(30)


@pytest.mark.parametrize(
    "healthy",
    [
        fit("mlp", steps=300),
        fit("mlp", trainer(accumulate_grad_batches=4), steps=300),
        fit("mlp", trainer(gradient_clip_val=1.0), steps=300),
        fit("mlp", compiled(), steps=300),
        fit("recurrent", lengths(160), workers(1), validation(4, epochs=2), steps=160),
        *(fit("conv", _LONG, cheap_transforms(), workers(number), steps=60) for number in (0, 2)),
        *(fit("conv", _LONG, slow_items(0.1), workers(number), steps=60) for number in (0, 2)),
    ],
)
def test_a_fit_without_a_fault_is_not_blamed(healthy: Fit, tmp_path: Path) -> None:
    report = report_of(healthy, tmp_path)
    assert {f.rule for f in report.findings} & NEVER == set()
    assert blamed(report) <= {"python-overhead"}  # the long step is a loop in Python
