"""``gpuprof trace``: a trace in, its facts out."""

import csv
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from python_process import run_python
from rank_windows import write_windows
from recorded_traces import TRACES
from sample_journals import write_journal
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.trace.analyses.communication.rank_window import file_beside

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


def another(trace: Path, name: str, **document: object) -> Path:
    path = trace.with_name(name)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, **document}))
    return path


def test_json_gives_the_facts_of_each_file_by_its_name(trace: Path, printed: Callable[..., str]) -> None:
    second = another(trace, "rank1.1.pt.trace.json", distributedInfo={"rank": 1})
    facts = json.loads(printed("trace", trace, second, "--json"))
    assert set(facts) == {trace.name, second.name}
    first = facts[trace.name]
    assert first["n_kernel"] == 2
    assert first["devices"]["0"]["busy_us"] == pytest.approx(60)
    assert first["devices"]["0"]["idle_us"] == pytest.approx(20)
    assert first["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert facts[second.name]["distributed"] == {"rank": 1}


def test_two_files_of_one_name_are_told_apart_by_their_folders(
    trace: Path, tmp_path: Path, printed: Callable[..., str]
) -> None:
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / trace.name
    second.write_bytes(trace.read_bytes())
    assert set(json.loads(printed("trace", trace, second, "--json"))) == {str(trace), str(second)}


def test_the_summary_says_busy_and_idle_and_why_and_tables_are_further_down(
    trace: Path, printed: Callable[..., str], refused: Callable[..., str]
) -> None:
    shown = printed("trace", trace)
    assert "Tables: --all." in shown
    assert "rules need a run: Trainer(callbacks=[GpuProfiler()])" in shown
    assert "gemm<float>" not in shown
    words = " ".join(shown.split())
    assert "GPU 0 is busy 75 % of 0.0800 ms (first to last kernel). Idle 25 %" in words
    assert "for no recorded reason" in words
    whole = printed("trace", trace, "--all")
    assert "gemm<float>" in whole
    assert "--all" not in whole
    write_journal(trace.parent / "rank0.jsonl", 30)
    assert f"rules need the run's journal: gpuprof report {trace.parent}" in " ".join(printed("trace", trace).split())
    assert "--all must not be combined with --table" in refused("trace", trace, "--all", "--table", "idle")


def test_tables_are_printed_by_name(trace: Path, printed: Callable[..., str]) -> None:
    shown = printed("trace", trace, "--table", "cuda_gpu_kern_sum")
    assert "cuda_gpu_kern_sum" in shown
    assert "is busy" not in shown
    assert len(printed("trace", trace, "--table", "all")) > len(shown)


def test_only_rows_with_a_text_are_printed(tmp_path: Path, printed: Callable[..., str]) -> None:
    kernels = [{**EVENTS[2], "name": f"kernel_{n}<float>", "ts": 10.0 * n, "dur": 90.0 - n} for n in range(80)]
    trace = another(tmp_path / "t", "many.pt.trace.json", traceEvents=[*EVENTS[:2], *kernels])
    shown = printed("trace", trace, "--table", "kernels,idle", "--grep", "KERNEL_79")
    assert "kernel_79" in shown  # far below the first rows
    assert "kernel_78" not in shown
    assert "1 of 80 rows" in shown
    assert "No row contains the text." in shown


def test_modules_are_searched_beyond_the_rows_that_are_shown(tmp_path: Path, printed: Callable[..., str]) -> None:
    modules = [{**EVENTS[1], "name": f"nn.Module: net.{n}", "ts": 100.0 * n, "dur": 90.0 - n} for n in range(60)]
    trace = another(tmp_path / "t", "many.pt.trace.json", traceEvents=[*modules, *EVENTS])
    shown = printed("trace", trace, "--table", "modules", "--grep", "net.57")
    assert "1 of 60 rows searched" in shown
    assert "net.57" in shown


def test_a_text_to_look_for_needs_a_table(trace: Path, refused: Callable[..., str]) -> None:
    assert "--grep must be given with --table, got 'gemm'" in refused("trace", trace, "--grep", "gemm")


def test_what_ncu_measured_is_in_the_table_of_kernels(
    trace: Path, tmp_path: Path, printed: Callable[..., str], refused: Callable[..., str]
) -> None:
    counters = tmp_path / "ncu.csv"
    counters.write_text('"ID","Kernel Name","lts__t_sector_hit_rate.pct"\n"","","%"\n"0","gemm<float>","12.5"\n')
    shown = printed("trace", trace, "--ncu", counters)
    assert "L2 hits" in shown
    assert "12.5 %" in shown
    (row,) = json.loads(printed("trace", trace, "--ncu", counters, "--analysis"))[trace.name]["kernels"]["kernels"]
    assert row["measured"]["l2_hit_ratio"] == 0.125
    assert "Print it with: ncu --csv --page raw" in refused("trace", trace, "--ncu", trace)
    assert "not be combined with --json" in refused("trace", trace, "--ncu", counters, "--json")
    assert "Operators under the roofline" not in printed("trace", trace, "--ncu", counters, "--table", "kernels")
    assert "L2 hits" not in printed("trace", trace, "--ncu", counters, "--table", "roofline")
    assert "Add kernels to --table" in refused("trace", trace, "--ncu", counters, "--table", "idle")


def test_kernels_that_ncu_proves_to_be_limited_by_latency_are_a_finding(
    tmp_path: Path, printed: Callable[..., str]
) -> None:
    steps = GpuTrace()
    for _ in range(3):
        with steps.step():
            for _ in range(20):
                steps.kernel(400.0, op="aten::mm", name="gemm<float>")
    trace, counters = tmp_path / "rank0.1.pt.trace.json", tmp_path / "ncu.csv"
    trace.write_text(json.dumps(steps.document()))
    names = ("sm__throughput", "gpu__compute_memory_throughput")
    columns = ",".join(f"{name}.avg.pct_of_peak_sustained_elapsed" for name in names)
    for compute, limited in ((20, True), (70, False)):
        counters.write_text(f"Kernel Name,{columns}\n,%,%\ngemm<float>,{compute},30\n")
        shown = printed("trace", trace, "--ncu", counters, "--all")
        assert ("latency-bound-kernels" in shown) is limited
    assert "latency-bound-kernels" not in printed("trace", trace, "--all")


def test_an_unknown_table_is_refused_with_the_names_of_all(trace: Path, refused: Callable[..., str]) -> None:
    error = refused("trace", trace, "--table", "kernel")
    assert "--table" in error
    assert "cuda_gpu_kern_sum" in error


def test_a_runs_folder_stands_for_its_only_trace(
    trace: Path, tmp_path: Path, printed: Callable[..., str], refused: Callable[..., str]
) -> None:
    folder = tmp_path / "version_0" / "gpuprof"
    folder.mkdir(parents=True)
    moved = trace.rename(folder / trace.name)
    for given in (folder, folder.parent):
        assert list(json.loads(printed("trace", given, "--json"))) == [trace.name]
    other = another(moved, "rank1.1.pt.trace.json")
    assert f"be one of this folder's 2 traces, got '{folder}'. {moved}, {other}" in refused("trace", folder)


def test_another_file_is_said_to_be_no_trace(tmp_path: Path, refused: Callable[..., str]) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import time, sys\n")
    assert "is not a trace" in refused("trace", script)


def test_an_unknown_operator_is_named_with_its_argument_and_some_that_exist(
    trace: Path, refused: Callable[..., str]
) -> None:
    said = refused("trace", trace, "--operators", "zzz")
    assert "--operators must name operators in the trace, got 'zzz'. Some in the trace: aten::mm" in said


def test_operators_are_analysed_as_json(trace: Path, refused: Callable[..., str], printed: Callable[..., str]) -> None:
    rows = json.loads(printed("trace", trace, "--operators", "aten::mm"))[trace.name]
    assert [(row["operator"], row["occurrences"], row["total_us"]) for row in rows] == [("aten::mm", 1, 20)]
    assert "aten::mm" in refused("trace", trace, "--operators", "aten::mn")


def test_everything_as_json(trace: Path, printed: Callable[..., str]) -> None:
    found = json.loads(printed("trace", trace, "--analysis"))[trace.name]
    assert found["idle"]["devices"][0]["busy_us"] == 60
    assert found["problems"] == []


def test_two_traces_are_compared(trace: Path, refused: Callable[..., str], printed: Callable[..., str]) -> None:
    slower = another(trace, "after.json")
    slower.write_text(slower.read_text().replace('"dur": 30.0', '"dur": 45.0'))
    assert "slower" in printed("trace", trace, slower, "--compare")
    found = json.loads(printed("trace", trace, slower, "--compare", "--json"))
    assert max(row["change_us"] for row in found["kernels"]) == 30  # two of them, 15 longer each
    assert "--compare must be given two files" in refused("trace", trace, "--compare")


def test_ranks_of_one_job_are_held_against_each_other(trace: Path, printed: Callable[..., str]) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 2}) for n in (0, 1)]
    text = printed("trace", *ranks)
    assert text.startswith("2 ranks\n")
    assert "What each rank is bound by" in text
    assert f"Details of rank 0: gpuprof trace {ranks[0]}\n" in text
    assert str(ranks[1]) not in text
    whole = printed("trace", *ranks, "--all")
    assert [line for line in whole.splitlines() if line in ("2 ranks", *map(str, ranks))] == [
        "2 ranks",
        *map(str, ranks),
    ]
    found = json.loads(printed("trace", *ranks, "--analysis"))
    assert set(found) == {ranks[0].name, ranks[1].name, "ranks"}
    assert [row["rank"] for row in found["ranks"]["ranks"]] == [0, 1]
    assert "ranks" not in json.loads(printed("trace", ranks[0], trace, "--analysis"))


def test_traces_that_are_no_ranks_of_one_job_are_each_printed(trace: Path, printed: Callable[..., str]) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 2}) for n in (0, 1)]
    again = another(trace, "again.json", distributedInfo={"rank": 1, "world_size": 2})
    for files in ((ranks[0], trace), (trace, trace), (*ranks, again), (trace, ranks[0])):
        lines = printed("trace", *files).splitlines()
        assert [line for line in lines if line.endswith(".json")] == list(dict.fromkeys(map(str, files)))
        assert not {"2 ranks", "3 ranks"} & set(lines)
    assert "2 ranks" not in printed("trace", *ranks, "--table", "idle")


@pytest.mark.parametrize("good", [1, 2])
def test_a_trace_that_cannot_be_read_loses_none_of_those_before_it(
    trace: Path, capsys: pytest.CaptureFixture[str], good: int
) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 3}) for n in range(good)]
    cut = trace.with_name("cut.json")
    cut.write_text("{")
    assert main(["trace", *map(str, [*ranks, cut])]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("2 ranks\n" if good == 2 else f"{ranks[0]}\n")
    assert "cut.json" in err


def test_recorded_ranks_are_compared_first_and_nothing_asks_to_trace_them(
    tmp_path: Path, printed: Callable[..., str]
) -> None:
    files = [TRACES / f"v100_dlrm_8rank_{rank}.json.gz" for rank in range(8)]
    if not files[0].is_file():
        pytest.skip("no recorded traces beside the repository")
    asks = "pass their windows to `gpuprof trace`"
    assert asks in " ".join(printed("trace", files[0]).split())
    text, page = printed("trace", *files), tmp_path / "ranks.html"
    assert text.splitlines()[3].startswith("Rank 7 waits least")
    assert len(text.splitlines()) < 70
    assert re.search(r"\n +7 +host-bound +The host launches kernels too slowly, up to [\d.]+x", text)
    assert text.index("Rank 7 waits") < text.index(f"Details of rank 7: gpuprof trace {files[7]}\n")
    whole = printed("trace", *files, "--all", "--html", page)
    assert whole.index("Rank 7 waits") < whole.index(f"{files[0]}\n")
    for said in (text, whole, page.read_text()):
        assert asks not in " ".join(said.split())
    for said in (whole, page.read_text()):
        assert "Find the late rank: see the comparison of the ranks." in " ".join(said.split())
    some = printed("trace", *files[:2], "--all")
    assert asks in " ".join(some.split()), "the late rank may be one of the other six"


def test_many_ranks_are_compared_by_what_they_kept_without_their_traces(
    tmp_path: Path, printed: Callable[..., str]
) -> None:
    files = write_windows(tmp_path, 12, late=7, steps=2, collectives=10)
    text = printed("trace", *files)
    assert text.splitlines()[0].startswith("12 ranks")
    assert "Rank 7 waits least" in " ".join(text.split())
    assert "The 8 of 12 ranks that the others waited for longest" in text
    assert f"Details of rank 7: gpuprof trace {files[7]}" in text


def test_few_ranks_are_compared_first_and_shown_after(trace: Path, tmp_path: Path, printed: Callable[..., str]) -> None:
    files = write_windows(tmp_path, 2, late=1, steps=2, collectives=10)
    for file in files:
        file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    assert "Rank 1 waits least" not in printed("trace", *files)  # these are other traces
    kept = write_windows(tmp_path, 2, late=1, steps=2, collectives=10)
    for file in kept:
        content = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
        file.write_bytes(content)
        beside = file_beside(file)
        beside.write_bytes(beside.read_bytes().replace(b'"trace_bytes":8', b'"trace_bytes":%d' % len(content)))
    text = printed("trace", *kept)
    assert text.index("Rank 1 waits least") < text.index("What each rank is bound by")
    assert f"Details of rank 1: gpuprof trace {kept[1]}" in text
    assert text.count("2 ranks") == 1
    assert printed("trace", *kept, "--all").count(f"{kept[0]}\n") == 1


def test_ranks_of_one_job_have_a_page_together(
    trace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
    printed: Callable[..., str],
) -> None:
    ranks = [another(trace, f"rank{n}.json", distributedInfo={"rank": n, "world_size": 2}) for n in (0, 1)]
    target = tmp_path / "ranks.html"
    assert "2 ranks" in printed("trace", *ranks, "--html", target)
    page = target.read_text()
    assert "<h1>2 ranks of one window</h1>" in page
    assert all(rank.name in page for rank in ranks)
    assert '<table class="heat">' in page
    assert main(["trace", str(trace), str(ranks[0]), "--html", str(tmp_path / "no.html")]) == 2
    out, error = capsys.readouterr()
    assert f"got {trace.name!r}. This trace names no rank." in error
    assert out == ""
    again = another(trace, "again.json", distributedInfo={"rank": 0, "world_size": 2})
    assert "The traces name these ranks: 0, 0." in refused("trace", ranks[0], again, "--html", tmp_path / "no.html")
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
    trace: Path, tmp_path: Path, option: str, name: str, refused: Callable[..., str], printed: Callable[..., str]
) -> None:
    target = tmp_path / name
    printed("trace", trace, option, target)
    assert target.exists()
    wanted = "one trace, or several ranks" if option == "--html" else "one file"
    assert f"{option} must be given {wanted}" in refused("trace", trace, trace, option, target)
    assert f"{option} must not be combined with --json" in refused(
        "trace", trace, option, tmp_path / f"2{name}", "--json"
    )


def test_csv_has_the_tables_as_shown_and_all_rows_in_full(
    trace: Path, tmp_path: Path, printed: Callable[..., str]
) -> None:
    printed("trace", trace, "--csv", tmp_path / "csv")
    analysis = json.loads(printed("trace", trace, "--analysis"))[trace.name]
    assert (tmp_path / "csv" / "kernels.csv").is_file()
    with (tmp_path / "csv" / "full" / "kernels.kernels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = analysis["kernels"]["kernels"]
    assert [row["name"] for row in rows] == [one["name"] for one in whole]
    assert [float(row["total_us"]) for row in rows] == [one["total_us"] for one in whole]
    with (tmp_path / "csv" / "full" / "api_tables.cuda_api_gpu_sum.csv").open(newline="") as file:
        together = list(csv.DictReader(file))
    with (tmp_path / "csv" / "full" / "events.csv").open(newline="") as file:
        events = list(csv.DictReader(file))
    assert len(events) == sum(of["count"] for of in analysis["events"]["categories"])
    assert {"start_us", "duration_us", "category", "name", "thread", "device", "stream"} == set(events[0])
    parts = [analysis["api_tables"][table] for table in ("cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum")]
    assert len(together) == sum(map(len, parts))
    assert {float(row["std_us"]) for row in together} == {one["std_us"] for part in parts for one in part}


@pytest.mark.parametrize("option", ["--html", "--csv", "--annotated", "--flame"])
def test_a_trace_is_never_written_over(trace: Path, option: str, refused: Callable[..., str]) -> None:
    other = another(trace, "other.json.gz")
    before = trace.read_bytes(), other.read_bytes()
    assert option in refused("trace", trace, option, trace)
    if option in ("--html", "--flame"):
        assert f"{option} must end with" in refused("trace", trace, option, other)
    assert (trace.read_bytes(), other.read_bytes()) == before


def test_a_place_that_cannot_be_written_is_an_error(trace: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").touch()
    for option, name in (("--html", "x.html"), ("--csv", "x"), ("--annotated", "x.json"), ("--flame", "x.json")):
        error = refused("trace", trace, option, tmp_path / "file" / name)
        assert error.startswith("gpuprof: cannot "), error
        assert name in error
        assert "internal error" not in error


def test_a_folder_of_other_files_is_an_error_that_names_what_may_be_a_trace(
    trace: Path, refused: Callable[..., str]
) -> None:
    other = trace.rename(trace.with_name("my_trace.json"))
    assert other.name in refused("trace", other.parent)


def test_a_file_that_is_no_trace_is_an_error(tmp_path: Path, refused: Callable[..., str]) -> None:
    bad = tmp_path / "bad.pt.trace.json"
    bad.write_text("nonsense")
    assert refused("trace", bad).startswith("gpuprof: ")


def test_a_missing_file_is_an_error(tmp_path: Path, refused: Callable[..., str]) -> None:
    error = refused("trace", tmp_path / "missing.json")
    assert error.startswith("gpuprof: ")
    assert "internal error" not in error


def test_without_a_gpu_nothing_can_be_measured(trace: Path, refused: Callable[..., str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert "device must be a device that torch finds here" in refused("trace", trace, "--measure")


@pytest.mark.parametrize("options", [["--json"], ["--table", "health"]], ids=" ".join)
@pytest.mark.parametrize(("torch_is_loaded", "copies"), [(False, 1), (True, 0)])
def test_a_big_trace_is_read_by_two_but_no_process_with_torch_is_copied(
    options: list[str], torch_is_loaded: bool, copies: int, trace: Path
) -> None:
    program = f"""
import os, sys
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.trace import reader
if {torch_is_loaded}:
    sys.modules["torch"] = sys
made, fork = [], os.fork
os.fork = lambda: made.append("copy") or fork()
reader.TWO_BY_FORK_FROM_BYTES, reader.usable_cpus = 0, lambda: 2
assert main(["trace", {str(trace)!r}, *{options!r}]) == 0
print(len(made), file=sys.stderr)
"""
    done = run_python("-c", program)
    assert done.stdout
    assert done.stderr.split() == [str(copies)]


@pytest.mark.parametrize(
    ("fails", "torch_is_loaded", "copies"), [(False, False, 1), (True, False, 1), (False, True, 0)]
)
def test_analyses_in_a_copied_process_say_the_same_also_where_it_fails(
    trace: Path, fails: bool, torch_is_loaded: bool, copies: int
) -> None:
    expected = run_python("-m", "lightning_gpuprof", "trace", trace, "--analysis").stdout
    program = f"""
import os, sys
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.trace import analysis
if {torch_is_loaded}:
    sys.modules["torch"] = sys
made, fork, own, computed = [], os.fork, os.getpid(), analysis._computed
os.fork = lambda: made.append("copy") or fork()
analysis._TWO_FROM_EVENTS, analysis.usable_cpus = 0, lambda: 2
def end_of_a_copy(*arguments):
    return os._exit(1) if {fails} and os.getpid() != own else computed(*arguments)
analysis._computed = end_of_a_copy
assert main(["trace", {str(trace)!r}, "--analysis"]) == 0
print(len(made), file=sys.stderr)
"""
    done = run_python("-c", program)
    assert done.stdout == expected
    assert done.stderr.split() == [str(copies)]
