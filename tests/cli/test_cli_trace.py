"""``gpuprof trace``: a trace in, its facts out."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
import torch

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


def out(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["trace", *map(str, words)]) == 0
    return capsys.readouterr().out


def another(trace: Path, name: str, **document: object) -> Path:
    path = trace.with_name(name)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, **document}))
    return path


def test_json_gives_the_facts_of_each_file_by_its_name(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = another(trace, "rank1.1.pt.trace.json", distributedInfo={"rank": 1})
    facts = json.loads(out(capsys, trace, second, "--json"))
    assert set(facts) == {trace.name, second.name}
    first = facts[trace.name]
    assert first["n_kernel"] == 2
    assert first["devices"]["0"]["busy_us"] == pytest.approx(60)
    assert first["devices"]["0"]["idle_us"] == pytest.approx(20)
    assert first["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert facts[second.name]["distributed"] == {"rank": 1}


def test_two_files_of_one_name_are_told_apart_by_their_folders(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / trace.name
    second.write_bytes(trace.read_bytes())
    assert set(json.loads(out(capsys, trace, second, "--json"))) == {str(trace), str(second)}


def test_the_summary_says_busy_and_idle_and_why(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, trace)
    assert "gemm<float>" in shown
    words = " ".join(shown.split())
    assert "GPU 0 is busy 75 % of 0.0800 ms (first to last kernel). Idle 25 %" in words
    assert "for no recorded reason" in words


def test_tables_are_printed_by_name(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, trace, "--table", "cuda_gpu_kern_sum")
    assert "cuda_gpu_kern_sum" in shown
    assert "is busy" not in shown
    assert len(out(capsys, trace, "--table", "all")) > len(shown)


def test_an_unknown_table_is_refused_with_the_names_of_all(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), "--table", "kernel"]) == 2
    error = capsys.readouterr().err
    assert "--table" in error
    assert "cuda_gpu_kern_sum" in error


def test_operators_are_analysed_as_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(out(capsys, trace, "--operators", "aten::mm"))[trace.name]
    assert [(row["operator"], row["occurrences"], row["total_us"]) for row in rows] == [("aten::mm", 1, 20)]
    assert main(["trace", str(trace), "--operators", "aten::mn"]) == 2
    assert "aten::mm" in capsys.readouterr().err


def test_everything_as_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(out(capsys, trace, "--analysis"))[trace.name]
    assert found["idle"]["devices"][0]["busy_us"] == 60
    assert found["problems"] == []


def test_two_traces_are_compared(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = another(trace, "after.json")
    slower.write_text(slower.read_text().replace('"dur": 30.0', '"dur": 45.0'))
    assert "slower" in out(capsys, trace, slower, "--compare")
    told = json.loads(out(capsys, trace, slower, "--compare", "--json"))
    assert max(row["change_us"] for row in told["kernels"]) == 30  # two of them, 15 longer each
    assert main(["trace", str(trace), "--compare"]) == 2
    assert "--compare must get two files" in capsys.readouterr().err


def test_ranks_of_one_job_are_held_against_each_other(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 2}) for n in (0, 1)]
    assert "2 ranks" in out(capsys, *ranks)
    assert "2 ranks" not in out(capsys, ranks[0], trace)
    told = json.loads(out(capsys, *ranks, "--analysis"))
    assert set(told) == {ranks[0].name, ranks[1].name, "ranks"}
    assert [row["rank"] for row in told["ranks"]["ranks"]] == [0, 1]
    assert "ranks" not in json.loads(out(capsys, ranks[0], trace, "--analysis"))


def test_ranks_of_one_job_have_a_page_together(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 2}) for n in (0, 1)]
    target = tmp_path / "ranks.html"
    assert "2 ranks" in out(capsys, *ranks, "--html", target)
    page = target.read_text()
    assert "<h1>2 ranks of one window</h1>" in page
    assert all(rank.name in page for rank in ranks)
    assert 'data-figure="heat"' in page
    assert main(["trace", str(trace), str(ranks[0]), "--html", str(tmp_path / "no.html")]) == 2
    told = capsys.readouterr()
    assert f"got {trace.name!r}. This trace names no rank." in told.err
    assert not told.out
    again = another(trace, "again.json", distributedInfo={"rank": 0, "world_size": 2})
    assert main(["trace", str(ranks[0]), str(again), "--html", str(tmp_path / "no.html")]) == 2
    assert "The traces name these ranks: 0, 0." in capsys.readouterr().err
    assert not (tmp_path / "no.html").exists()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--html", "t.html"),
        ("--csv", "tables"),
        ("--annotated", "a.json.gz"),
        ("--flame", "f.json"),
        ("--flame", "f.folded"),
    ],
)
def test_files_are_written_where_they_are_wanted(
    trace: Path, tmp_path: Path, option: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    out(capsys, trace, option, target)
    assert target.exists()
    assert main(["trace", str(trace), str(trace), option, str(target)]) == 2
    wanted = "one trace, or several ranks" if option == "--html" else "one file"
    assert f"{option} must get {wanted}" in capsys.readouterr().err
    assert main(["trace", str(trace), option, str(tmp_path / f"2{name}"), "--json"]) == 2
    assert f"{option} must not go with --json" in capsys.readouterr().err


def test_csv_has_the_tables_as_shown_and_all_rows_in_full(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out(capsys, trace, "--csv", tmp_path / "csv")
    analysis = json.loads(out(capsys, trace, "--analysis"))[trace.name]
    assert (tmp_path / "csv" / "kernels.csv").is_file()
    with (tmp_path / "csv" / "full" / "kernels.kernels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = analysis["kernels"]["kernels"]
    assert [row["name"] for row in rows] == [one["name"] for one in whole]
    assert [float(row["total_us"]) for row in rows] == [one["total_us"] for one in whole]


@pytest.mark.parametrize("option", ["--html", "--csv", "--annotated", "--flame"])
def test_a_trace_is_never_written_over(trace: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = another(trace, "other.json.gz")
    before = trace.read_bytes(), other.read_bytes()
    assert main(["trace", str(trace), option, str(trace)]) == 2
    assert option in capsys.readouterr().err
    if option in ("--html", "--flame"):
        assert main(["trace", str(trace), option, str(other)]) == 2
        assert f"{option} must end with" in capsys.readouterr().err
    assert (trace.read_bytes(), other.read_bytes()) == before


def test_a_place_that_cannot_be_written_is_an_error(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for option, name in (("--html", "x.html"), ("--csv", "x"), ("--annotated", "x.json"), ("--flame", "x.json")):
        assert main(["trace", str(trace), option, str(tmp_path / "file" / name)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("gpuprof: cannot "), error
        assert name in error
        assert "internal error" not in error


def test_a_folder_is_an_error_that_names_its_traces(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace.parent)]) == 2
    assert trace.name in capsys.readouterr().err


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


def test_without_a_gpu_nothing_can_be_measured(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert main(["trace", str(trace), "--measure"]) == 2
    assert "device must be a device that torch finds here" in capsys.readouterr().err
