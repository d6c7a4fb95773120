"""A fit with a logger computes its steps once: for the logger; the end of the run is added for the final report."""

import time
from collections.abc import Sequence
from pathlib import Path

import lightning.pytorch as pl
import msgspec
import pytest
from planted_runs import fit, quiet_profiler, single_rows

from lightning_gpuprof.analyze import metrics
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import make_report


class SlowEnd(pl.Callback):
    """Its teardown comes after the loggers were given the report."""

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        time.sleep(0.3)


def without_cost(report: Report) -> Report:
    """The report without what is only known to the process that made it."""
    return msgspec.structs.replace(report, overhead={k: v for k, v in report.overhead.items() if k != "report_s"})


def test_the_steps_of_a_fit_with_a_logger_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Journal] = []
    build = metrics.build

    def counting(journal: Journal, *others: Sequence[object]) -> object:
        built.append(journal)
        return build(journal, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(metrics, "build", counting)
    logger = pl.loggers.CSVLogger(tmp_path, name="csv", version=0)
    profiler = quiet_profiler(host=True, windows=[10], reports=None)
    report = fit(
        tmp_path, loader=single_rows(60), logger=logger, profiler=profiler, callbacks=[SlowEnd()], log_every_n_steps=10
    )
    assert len(built) == 1
    assert "gpuprof/final/wall_s" in Path(logger.experiment.metrics_file_path).read_text()
    assert report.wall.parts["teardown"] >= 0.3
    assert any(row.name == "SlowEnd" and row.total_s >= 0.3 for row in report.callbacks)
    assert profiler.folder is not None
    assert without_cost(make_report(profiler.folder)) == without_cost(report)
