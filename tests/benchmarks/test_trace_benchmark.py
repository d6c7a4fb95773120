import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trace_peers_environment
import trace_results
from trace_reading import Meter, Reading
from trace_results import FileResult, Run

# the benchmark, not the module of this name in the standard library: benchmarks/ comes first
import trace  # isort: skip

TINY = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 40, "args": {}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 5}
    | {"args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 50}
    | {"args": {"device": 0, "stream": 7, "correlation": 7}},
]
PLANTED = Reading(
    imports_s=0.2,
    work_s=0.5,
    cpu_s=0.4,
    peaks_mb={"imports": 40.0, "reading": 60.0},
    peak_mb=80.0,
    started_mb=0.0,
    parts_s={"reading: decode": 0.3, "analysis: idle": 0.198, "analysis: health": 0.002},
    bytes_json=None,
    problems=(),
)


def tiny_in(folder: Path) -> Path:
    path = folder / "tiny.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": TINY}).encode()))
    return path


def runs_of(*readings: Reading) -> list[Run]:
    return [Run(process_s=reading.work_s + 0.3, reading=reading) for reading in readings]


def file_of(runs: dict[str, list[Run]], json_mb: float) -> FileResult:
    results = trace_results.summarise(runs, json_mb, np.random.default_rng(0))
    return FileResult(file="planted", json_mb=json_mb, file_mb=3.0, rounds=2, results=results)


def test_a_tiny_trace_is_read_in_a_process_and_the_results_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, target = tmp_path / "traces", tmp_path / "new" / "trace.json"
    folder.mkdir()
    tiny_in(folder)
    options = ["--traces", str(folder), "--files", "tiny", "--rounds", "1", "--json", str(target)]
    assert trace.main([*options, "--readers", "ours"]) == 0
    text = target.read_text()
    (file,) = json.loads(text)["results"]
    (ours,) = file["results"]
    assert (ours["reader"], ours["failed"], ours["problems"]) == ("ours", "", [])
    assert ours["work_s"]["median"] > 0
    assert ours["peak_mb"]["median"] >= ours["peaks_mb"]["imports"] > 0
    assert {name.partition(": ")[0] for name in ours["parts_s"]} == {"reading", "join", "analysis"}
    assert sum(ours["parts_s"].values()) <= ours["work_s"]["median"]
    assert ours["parts_s"]["reading: decode"] > 0
    assert [one["command"] for one in file["commands"]] == ["gpuprof trace FILE --json", "gpuprof trace FILE"]
    assert all(one["process_s"]["median"] > 0 and one["hta_times"] is None for one in file["commands"])
    assert str(tmp_path) not in text
    assert "HTA's time" in capsys.readouterr().out


def test_others_are_multiples_of_ours_in_the_same_rounds() -> None:
    ours = runs_of(PLANTED, replace(PLANTED, work_s=1.0))
    hta = runs_of(replace(PLANTED, work_s=6.0, peak_mb=400.0), replace(PLANTED, work_s=12.0, peak_mb=400.0))
    found = file_of({"ours": ours, "hta": hta}, json_mb=60.0)
    own, other = found.results
    assert own.times_ours is None
    assert (other.times_ours.low, other.times_ours.high) == (pytest.approx(12), pytest.approx(12))
    assert other.memory_times_ours.median == pytest.approx(5)
    assert own.mb_per_s == pytest.approx(80)


def test_whole_processes_are_held_against_the_peers_in_the_same_rounds() -> None:
    hta = runs_of(replace(PLANTED, work_s=5.7), replace(PLANTED, work_s=11.7))  # and 0.3 s until it begins
    (command,) = trace_results.commands_of({"ours": [0.5, 1.0]}, hta, 60.0, np.random.default_rng(0))
    assert (command.hta_times.low, command.hta_times.high) == (pytest.approx(12), pytest.approx(12))
    assert command.mb_per_s == pytest.approx(80)
    found = replace(file_of({"ours": runs_of(PLANTED), "hta": hta}, json_mb=60.0), commands=(command,))
    (target,) = (one for one in trace_results.targets_of(found) if "whole" in one.what)
    assert (target.what, target.wanted, target.met) == ("HTA's whole process, x ours", 10.0, True)
    failed = [*hta[:1], Run(process_s=1.0, reading=None, failed="ended")]
    assert trace_results.commands_of({"ours": [0.5, 1.0]}, failed, 60.0, np.random.default_rng(0))[0].hta_times is None


def test_what_was_wanted_is_held_against_ours_with_the_same_analyses() -> None:
    ours = runs_of(replace(PLANTED, work_s=2.0), replace(PLANTED, work_s=2.0))
    alike = runs_of(PLANTED, replace(PLANTED, work_s=1.0))
    hta = runs_of(replace(PLANTED, work_s=6.0, peak_mb=400.0), replace(PLANTED, work_s=12.0, peak_mb=400.0))
    found = file_of({"ours": ours, "ours-as-hta": alike, "hta": hta}, json_mb=60.0)
    time, memory, speed = trace_results.targets_of(found)
    assert (time.what, time.met, time.low) == ("HTA's time, x ours for the same", True, pytest.approx(12))
    assert (memory.met, memory.measured) == (False, pytest.approx(5))
    assert (speed.met, speed.measured) == (False, pytest.approx(30))


def test_more_is_wanted_of_a_big_file_and_nothing_is_said_to_be_met_that_was_not_measured() -> None:
    found = file_of({"ours": runs_of(replace(PLANTED, peak_mb=399.0), replace(PLANTED, peak_mb=399.0))}, json_mb=620.0)
    targets = {target.what: (target.wanted, target.met) for target in trace_results.targets_of(found)}
    assert targets == {
        "HTA's time, x ours for the same": (15, None),
        "HTA's memory, x ours for the same": (10, None),
        "MB of JSON a second, all analyses without stacks": (150, True),
        "peak memory, MB": (400, True),
    }


def test_a_reader_that_failed_once_has_no_numbers_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    failed = Run(process_s=1.0, reading=None, failed="ended with -9: without a word")
    found = file_of({"ours": runs_of(PLANTED, PLANTED), "hta": [*runs_of(PLANTED), failed]}, json_mb=60.0)
    assert found.results[1].failed == "ended with -9: without a word"
    assert found.results[1].work_s is None
    trace.show([found], trace_results.targets_of(found), trace.wide_console())
    assert "hta: ended with -9: without a word" in capsys.readouterr().out


def test_stages_add_up_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = trace_results.as_table_of_stages(file_of({"ours": runs_of(PLANTED, PLANTED)}, json_mb=60.0), ["ours"])
    assert table is not None
    trace.wide_console().print(table)
    shown = capsys.readouterr().out
    for row in ("analysis", "idle", "below 1%", "end of the reading"):
        assert row in shown
    assert "200   40%" in shown  # both analyses
    assert "health" not in shown


def test_a_peer_is_asked_in_its_own_environment_and_its_failure_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "python", lambda: Path(sys.executable))
    run = trace.in_a_process("hta", tiny_in(tmp_path))
    assert run.reading is None
    assert "ModuleNotFoundError: No module named 'hta'" in run.failed


def test_ours_failing_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(
        RuntimeError, match=r"(ours, broken: ended with 1: .*TraceError|gpuprof trace broken\.json: .*truncated)"
    ):
        trace.measure(broken, "broken", ["ours"], rounds=1, seed=0, console=trace.wide_console())


def test_peers_that_are_not_installed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace_peers_environment, "FOLDER", tmp_path)
    monkeypatch.setattr(trace_peers_environment, "_READY", tmp_path / ".ready")
    assert trace.able(["ours", "hta", "tracelens"], trace.wide_console()) == ["ours"]
    shown = capsys.readouterr().out
    assert "hta is left out" in shown
    assert "tracelens is left out" in shown


def test_memory_and_failures_of_a_process_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter()
    meter.imported()
    held = np.ones(40_000_000, np.uint8)

    def broken() -> None:
        raise KeyError("stream")

    meter.attempt("queue", broken)
    meter.finish(bytes_json=len(held))
    reading = Reading.parse(capsys.readouterr().out)
    assert (reading.problems, reading.bytes_json) == (("queue: KeyError: 'stream'",), 40_000_000)
    assert reading.peak_mb - reading.started_mb >= reading.peaks_mb["imports"]
    assert reading.peak_mb > 40


def test_a_grown_trace_is_removed(tmp_path: Path) -> None:
    tool = tmp_path / "grow_trace.py"
    tool.write_text("import sys; open(sys.argv[2], 'w').write('[]')")
    with trace.grown_trace(tmp_path / "any.json.gz", tool, 1) as path:
        assert path.name.endswith(".json.gz")
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert not path.parent.exists()


def test_without_the_recorded_traces_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "TRACES", tmp_path / "absent")
    assert trace.main(["--json", str(tmp_path / "trace.json")]) == 0
    assert "nothing to read" in capsys.readouterr().out
    assert not (tmp_path / "trace.json").exists()
