"""A fit with a logger is computed and diagnosed once: for the logger; the end of the run is added for its report."""

import functools
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import lightning.pytorch as pl
import msgspec
import pytest
from planted_runs import fit, quiet_profiler, single_rows
from sample_journals import write_journal

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze import metrics
from lightning_gpuprof.end_of_run import finish_run, push_to_loggers
from lightning_gpuprof.model.journal import Notice
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import make_report
from lightning_gpuprof.rules import engine


class SlowEnd(pl.Callback):
    """Its teardown comes after the loggers were given the report."""

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        time.sleep(0.3)


class FailingEnd(pl.Callback):
    """Its teardown comes after the loggers were told that the run had finished."""

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        raise RuntimeError("no end")


def without_cost(report: Report) -> Report:
    """The report without what is only known to the process that made it: the whole run's time was still going on."""
    overhead = {name: cost for name, cost in report.overhead.items() if name != "report_s"}
    combined = report.combined and msgspec.structs.replace(report.combined, run_ms_per_step=0.0, run_speedup_max=0.0)
    return msgspec.structs.replace(report, overhead=overhead, combined=combined)


class Counted:
    """How often a fit's steps are computed and its rules are asked."""

    def __init__(self, at: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for module, name in (metrics, "build"), (metrics, "with_end"), (engine, "diagnose"):
            at.setattr(module, name, functools.partial(self._call, name, getattr(module, name)))

    def _call(self, name: str, counted: Callable[..., object], *args: object) -> object:
        self.calls.append(name)
        return counted(*args)


def logged_fit(folder: Path, profiler: GpuProfiler, end: pl.Callback) -> Report:
    """Of 60 steps, with a logger."""
    logger = pl.loggers.CSVLogger(folder, name="csv", version=0)
    report = fit(
        folder, loader=single_rows(60), logger=logger, profiler=profiler, callbacks=[end], log_every_n_steps=10
    )
    assert "gpuprof/final/wall_s" in Path(logger.experiment.metrics_file_path).read_text()
    return report


def test_a_fit_with_a_logger_is_computed_and_diagnosed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    profiler = quiet_profiler(host=True, windows=[10], reports=None)
    report = logged_fit(tmp_path, profiler, SlowEnd())
    assert counted.calls == ["build", "diagnose", "with_end"]
    assert report.wall.parts["teardown"] >= 0.3
    assert any(row.name == "SlowEnd" and row.total_s >= 0.3 for row in report.callbacks)
    assert profiler.folder is not None
    assert without_cost(make_report(profiler.folder)) == without_cost(report)


def test_a_run_that_fails_after_its_loggers_were_told_is_diagnosed_again_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    profiler = quiet_profiler(host=True, reports=None)
    with pytest.raises(RuntimeError, match="no end"):
        logged_fit(tmp_path, profiler, FailingEnd())
    assert counted.calls == ["build", "diagnose", "build", "diagnose", "with_end"]
    assert profiler.report is not None
    assert profiler.report.run["status"] == "interrupted: RuntimeError"
    assert any("the run was interrupted: RuntimeError" in caveat for caveat in profiler.report.validity.caveats)


def test_what_went_wrong_after_the_loggers_were_told_is_in_the_report(tmp_path: Path) -> None:
    write_journal(tmp_path / "rank0.jsonl", 60)
    told = push_to_loggers(
        tmp_path,
        kinds=[],
        notices=(),
        trainer_loggers=[],
        step=60,
        fence=lambda _: nullcontext(),
        late=lambda _: None,
        finished=True,
    )
    of_the_loggers, later = (
        finish_run(tmp_path, kinds=[], baseline=None, notices=notices, logged=told)
        for notices in ((), [Notice(part="journal", message="the disk is full")])
    )
    assert of_the_loggers.findings == told.diagnosis.findings
    assert (of_the_loggers.validity.ok, later.validity.ok) == (True, False)
    assert later.validity.caveats[0] == "journal: the disk is full"
