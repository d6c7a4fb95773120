"""``gpuprof export``: a run's folder becomes tables that other programs read."""

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import sample_journals
from saved_runs import sample_report, save_run

from lightning_gpuprof.analyze.data_tables import journal_tables, report_tables
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.model.data_table import DataTable
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.data_files import write_tables

STEPS = 300


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run with a journal."""
    folder = tmp_path / "version_0" / "gpuprof"
    folder.mkdir(parents=True)
    sample_journals.write_journal(folder / "rank0.jsonl", STEPS, tick_ns=1000)
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_step_is_a_row_whose_phases_sum_to_its_period(run_folder: Path) -> None:
    assert main(["export", str(run_folder.parent)]) == 0
    steps = rows(run_folder / "export" / "steps.csv")
    journal = read_journal(run_folder / "rank0.jsonl")
    assert [int(row["batch"]) for row in steps] == journal.steps.batch.tolist()
    assert [float(row["period_ms"]) for row in steps] == pytest.approx(journal.steps.period_ns / 1e6)
    for row in steps:
        assert sum(float(row[f"{phase}_ms"]) for phase in PHASES) == pytest.approx(float(row["period_ms"]))
    assert {row["label"] for row in steps} >= {"warm-up", "steady"}


def test_json_names_what_was_written(run_folder: Path, tmp_path: Path, printed: Callable[..., str]) -> None:
    shown = printed("export", run_folder, "--output", tmp_path / "tables", "--json")
    written = {one["table"]: one for one in json.loads(shown)}
    assert {"steps", "phases", "callbacks", "devices", "host", "findings"} <= set(written)
    assert written["steps"]["rows"] == STEPS
    for one in written.values():
        assert one["file"] == str(tmp_path / "tables" / f"{one['table']}.csv")
        with Path(one["file"]).open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
        assert lines[0] == one["columns"]
        assert len(lines) == one["rows"] + 1


def test_samples_are_rows_of_their_table_and_what_was_not_measured_is_no_zero(run_folder: Path) -> None:
    journal = read_journal(run_folder / "rank0.jsonl")
    for at_s, values in ((1, {"power_w": 70.5, "utilization_ratio": None}), (2, {"power_w": 0.0, "sm_clock_mhz": 9.0})):
        journal.samples.append(Sample(source="nvml", subject="gpu0", t_ns=at_s * 10**9, values=values))
    (table,) = (one for one in journal_tables([journal]) if one.name == "devices")
    assert table.columns == {
        "rank": [0, 0],
        "time_s": [1.0, 2.0],
        "subject": ["gpu0", "gpu0"],
        "power_w": [70.5, 0.0],
        "sm_clock_mhz": [None, 9.0],
        "utilization_ratio": [None, None],
    }


def test_all_ranks_are_in_one_table_and_a_damaged_journal_is_told_of(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = (run_folder / "rank0.jsonl").read_bytes().replace(b'"rank":0', b'"rank":1', 1)
    (run_folder / "rank1.jsonl").write_bytes(second)
    (run_folder / "rank2.jsonl").write_bytes(b"no journal\n")
    assert main(["export", str(run_folder)]) == 0
    steps = rows(run_folder / "export" / "steps.csv")
    assert [row["rank"] for row in steps] == ["0"] * STEPS + ["1"] * STEPS
    assert "rank2.jsonl" in capsys.readouterr().err


def test_a_report_without_journal_gives_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_run(tmp_path / "run")
    assert main(["export", str(folder)]) == 0
    report = sample_report.full_report()
    findings = rows(folder / "export" / "findings.csv")
    assert [row["rule"] for row in findings] == [finding.rule for finding in report.findings]
    gains = [finding.gain for finding in report.findings]
    assert [row["speedup_max"] for row in findings] == [repr(gain.speedup_max) if gain else "" for gain in gains]
    assert not (folder / "export" / "steps.csv").exists()
    assert "no readable journal" in capsys.readouterr().err


def test_names_from_the_run_are_no_formulas_and_no_further_cells(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    report = sample_report.full_report()
    finding = msgspec.structs.replace(report.findings[0], subject='=1+1,"x"\nnext')
    json_report.write(msgspec.structs.replace(report, findings=(finding,)), folder / "report.json")
    assert main(["export", str(folder)]) == 0
    (row,) = rows(folder / "export" / "findings.csv")
    assert row["subject"] == '\'=1+1,"x"\nnext'


def test_parquet_without_pyarrow_is_refused_with_the_way_out(tmp_path: Path) -> None:
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(ArgumentError, match="pip install pyarrow"):
            write_tables([], tmp_path / "tables", "parquet")
        assert not (tmp_path / "tables").exists()
    else:
        pytest.skip("pyarrow is installed")


def test_parquet_keeps_types_and_missing_values(run_folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(["export", str(run_folder), "--format", "parquet"]) == 0
    steps = parquet.read_table(run_folder / "export" / "steps.parquet")
    assert steps.num_rows == STEPS
    assert str(steps.schema.field("period_ms").type) == "double"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="Name another folder"):
        write_tables([DataTable(name="t", columns={"a": [1]})], tmp_path / "file" / "tables", "csv")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(ReportError, match="Name a folder"):
        write_tables([DataTable(name="t", columns={"a": [1]})], tmp_path, "csv")
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_findings_have_the_step_that_is_expected_of_their_fix() -> None:
    report = sample_report.full_report()
    expected = Expected(whole_ms=20.0, step_ms=11.0, lower_ms=10.0, upper_ms=12.0)
    findings = (msgspec.structs.replace(report.findings[0], expected=expected), *report.findings[1:])
    tables = {table.name: table for table in report_tables(msgspec.structs.replace(report, findings=findings))}
    columns = tables["findings"].columns
    assert [columns[f"expected_{end}_ms"][0] for end in ("step", "lower", "upper")] == [11.0, 10.0, 12.0]


@pytest.fixture
def traced(run_folder: Path) -> Path:
    """A run with a trace window."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 10.0, "dur": 100.0},
        {
            "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20.5, "dur": 30.0,
            "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [4, 1, 1], "block": [64, 1, 1]},
        },
    ]  # fmt: skip
    (run_folder / "rank0.5.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    return run_folder


def test_single_events_of_the_windows_are_a_table(traced: Path) -> None:
    assert main(["export", str(traced), "--events"]) == 0
    step, kernel = rows(traced / "export" / "events_rank0.5.csv")
    assert (step["name"], step["category"], step["thread"], step["device"]) == ("ProfilerStep#7", "range", "1/1", "")
    assert (kernel["start_us"], kernel["duration_us"], kernel["category"]) == ("20.5", "30.0", "kernel")
    assert (kernel["device"], kernel["stream"]) == ("0", "7")


def test_windows_are_databases_that_gpuprof_trace_and_recipes_for_nsys_read(
    traced: Path, tmp_path: Path, printed: Callable[..., str], refused: Callable[..., str]
) -> None:
    (written,) = json.loads(printed("export", traced, "--format", "sqlite", "--output", tmp_path / "out", "--json"))
    assert written["file"] == str(tmp_path / "out" / "rank0.5.sqlite")
    recipe = """
        SELECT s.value, sum(k.end - k.start), max(k.gridX * k.blockX) FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value
    """
    with closing(sqlite3.connect(written["file"])) as database:
        assert database.execute(recipe).fetchall() == [("gemm", 30_000, 256)]
    assert json.loads(printed("trace", written["file"], "--json"))["rank0.5.sqlite"]["n_kernel"] == 1
    assert "gemm" in printed("trace", written["file"], "--table", "cuda_gpu_kern_sum")
    assert "--events must be left out for sqlite" in refused("export", traced, "--format", "sqlite", "--events")
    (traced / "rank0.5.pt.trace.json").unlink()
    assert "has no trace window" in refused("export", traced, "--format", "sqlite")
