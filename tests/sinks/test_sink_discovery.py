"""Sinks are found by their kind: our own, and those of other packages by their entry points."""

from importlib import metadata
from pathlib import Path

import pytest
import sample_report

from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.config import SINKS, parse_reports
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import write_reports


class Verdict:
    """A sink as another package has it."""

    label = "verdict"

    def write_report(self, report: Report, folder: Path) -> Path:
        (folder / "verdict.txt").write_text(report.verdict.kind)
        return folder / "verdict.txt"

    def write_comparison(self, comparison: Comparison, folder: Path) -> Path:
        return folder


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages that have a sink each."""
    points = metadata.EntryPoints(
        metadata.EntryPoint(name=made.__name__.lower(), value=f"{made.__module__}:{made.__name__}", group=SINKS)
        for made in (Verdict, Broken)
    )
    monkeypatch.setattr(metadata, "entry_points", lambda **of: points.select(**of))


def test_own_sinks_write_their_files(tmp_path: Path) -> None:
    written = write_reports(sample_report.full_report(), tmp_path, ("terminal", "tensorboard", "html", "json"))
    assert written == {"HTML": str(tmp_path / "report.html"), "JSON": str(tmp_path / "report.json")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.usefixtures("others")
def test_a_sink_of_another_package_is_found_by_its_name(tmp_path: Path) -> None:
    kinds = parse_reports(["verdict", "json"])
    assert kinds == ("json", "verdict")
    report = sample_report.full_report()
    assert list(write_reports(report, tmp_path, kinds)) == ["JSON", "verdict"]
    assert (tmp_path / "verdict.txt").read_text() == report.verdict.kind


@pytest.mark.usefixtures("others")
def test_a_broken_or_absent_sink_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="terminal, tensorboard, html, json, broken, verdict"):
        parse_reports(["pdf"])
    with pytest.raises(ReportError, match="the sink broken cannot be loaded: RuntimeError: no licence"):
        write_reports(sample_report.full_report(), tmp_path, parse_reports(["broken"]))
    with pytest.raises(ReportError, match="no installed package has a sink pdf"):
        write_reports(sample_report.full_report(), tmp_path, ("pdf",))
