"""``report.json`` on its way out and back."""

import json
from pathlib import Path

import pytest
import sample_report

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.report import SCHEMA_VERSION, Report
from lightning_gpuprof.sinks import json_report


@pytest.mark.parametrize(
    "report", [sample_report.full_report(), sample_report.minimal_report(), sample_report.hostile_report()]
)
def test_a_report_comes_back_as_it_was(report: Report, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    json_report.write(report, target)
    assert json_report.read(target) == report
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_not_measured_is_null_in_the_file() -> None:
    data = json.loads(json_report.encode(sample_report.minimal_report()))
    assert data["steps"]["period_ms"] is None
    assert data["steps"]["samples_per_s"] is None


def test_a_newer_report_with_other_fields_is_refused_for_its_version(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "something": "else"}))
    with pytest.raises(ReportError, match=r"newer version.*pip install -U lightning-gpuprof"):
        json_report.read(target)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{", b'{"schema_version": 1}', b'{"schema_version": "1"}', b"\xff\xfe"),
        pytest.param(b'{"schema_version": ' + b"[" * 100_000, id="deep nesting"),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_the_way_out(content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(content)
    with pytest.raises(ReportError, match=r"is not a report: .*gpuprof report"):
        json_report.read(target)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        json_report.read(tmp_path / "report.json")


def test_a_failed_write_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "gone" / "report.json"
    with pytest.raises(ReportError, match=r"cannot write .*report\.json"):
        json_report.write(sample_report.minimal_report(), target)
    assert list(tmp_path.iterdir()) == []


def test_a_write_replaces_the_report_before_it(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    json_report.write(sample_report.full_report(), target)
    json_report.write(sample_report.minimal_report(), target)
    assert json_report.read(target) == sample_report.minimal_report()
