"""``gpuprof trace``: a trace in, its facts out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_gpuprof.cli.main import main

EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 0.0, "dur": 100.0},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.0, "dur": 20.0},
    {
        "ph": "X", "cat": "kernel", "name": "gemm<float>", "pid": 0, "tid": 7, "ts": 10.0, "dur": 30.0,
        "args": {"device": 0, "stream": 7, "correlation": 1},
    },
    {
        "ph": "X", "cat": "kernel", "name": "gemm<float>", "pid": 0, "tid": 7, "ts": 60.0, "dur": 30.0,
        "args": {"device": 0, "stream": 7, "correlation": 2},
    },
]  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.1.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    return path


def test_json_gives_the_facts_of_each_file(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), str(trace), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts) == 2
    assert facts[0]["kernels"] == 2
    assert facts[0]["devices"][0]["busy_us"] == pytest.approx(60)
    assert facts[0]["devices"][0]["idle_us"] == pytest.approx(20)


def test_the_table_shows_busy_and_idle(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace)]) == 0
    shown = capsys.readouterr().out
    assert "gemm<float>" in shown
    assert "75.0 %" in shown


def test_a_file_that_is_no_trace_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.pt.trace.json"
    bad.write_text("nonsense")
    assert main(["trace", str(bad)]) == 2
    assert capsys.readouterr().err.startswith("gpuprof: ")


def test_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(tmp_path / "missing.json")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gpuprof: ")
    assert "internal error" not in error
