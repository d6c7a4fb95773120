"""What nsys exports is read like a trace of torch.profiler, whatever the version; other files are refused in a line."""

import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from recorded_traces import recorded_trace

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.analyses.joins.backward import Backward
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.export.annotated import write_annotated
from lightning_gpuprof.trace.export.nsys_sqlite import write_nsys_sqlite
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Spans

RECORDED = ("a100_alexnet_cuda_sync.json.gz", "h100_bert_small.json.gz", "v100_dlrm_8rank_0.json.gz")
_GPU = "TARGET_INFO_GPU"
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"

OTHER_VERSIONS = {
    "2021, which has another table of GPUs, no process of a kernel and no registered strings": (
        f"ALTER TABLE {_GPU} RENAME TO TARGET_INFO_CUDA_GPU",
        "ALTER TABLE TARGET_INFO_CUDA_GPU RENAME COLUMN smCount TO numMultiprocessors",
        "ALTER TABLE TARGET_INFO_CUDA_GPU RENAME COLUMN computeMajor TO computeCapabilityMajor",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN eventClass",
        *(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} DROP COLUMN globalPid" for kind in ("KERNEL", "MEMCPY", "MEMSET")),
        "UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId) WHERE text IS NULL",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
        "DROP TABLE TARGET_INFO_SESSION_START_TIME",
    ),
    "2023, whose calls name the version of their interface": (
        "UPDATE StringIds SET value = value || '_v7000' WHERE value LIKE 'cudaLaunch%' OR value LIKE 'cudaMemcpy%'",
    ),
    "2026, which has further columns": (
        f"ALTER TABLE {_KERNEL} ADD COLUMN greenContextId INTEGER",
        f"ALTER TABLE {_KERNEL} ADD COLUMN mangledName INTEGER",
        "ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData BLOB",
        "UPDATE META_DATA_EXPORT SET value = '9.99.0'",
    ),
}


def exported(name: str, folder: Path, statements: tuple[str, ...] = ()) -> tuple[Trace, Trace]:
    """A recorded trace, and what is read of it once it has been written as a database and changed."""
    trace = recorded_trace(name).trace  # of whose calls of Python functions nsys has none
    trace = msgspec.structs.replace(trace, python_function=trace.python_function.between(0, 0))
    path = folder / "report.sqlite"
    write_nsys_sqlite(trace, path)
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    before = path.read_bytes()
    again = Trace.read(path)
    assert path.read_bytes() == before
    assert [one.name for one in folder.iterdir()] == [path.name]
    return trace, again


def spans_of(trace: Trace, kind: str) -> list[tuple[int, int, str]]:
    spans: Spans = getattr(trace, kind)
    rows = zip(spans.start_ns.tolist(), spans.end_ns.tolist(), spans.name.tolist(), strict=True)
    return sorted((start, end, trace.names[name]) for start, end, name in rows)


@pytest.mark.parametrize("name", RECORDED)
def test_a_database_has_the_same_events_launches_steps_and_idle_causes(name: str, tmp_path: Path) -> None:
    trace, again = exported(name, tmp_path)
    for kind in ("kernel", "memcpy", "memset", "device_wait", "runtime", "cpu_op", "annotation"):
        assert spans_of(again, kind) == spans_of(trace, kind)
    one, other = LinkedTrace(trace), LinkedTrace(again)
    assert np.count_nonzero(other.launched) == np.count_nonzero(one.launched)
    assert other.steps.names == one.steps.names
    assert (Backward(other).forward_of_operator >= 0).sum() == (Backward(one).forward_of_operator >= 0).sum()
    wanted = ("idle", "streams", "api_tables")
    found, expected = analyse(other, only=wanted), analyse(one, only=wanted)
    assert found.idle is not None
    assert found.idle == expected.idle
    assert found.streams == expected.streams
    assert found.api_tables == expected.api_tables


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_exports_of_other_versions_are_read_alike(version: str, tmp_path: Path) -> None:
    trace, again = exported(RECORDED[1], tmp_path, OTHER_VERSIONS[version])
    for kind in ("kernel", "runtime", "cpu_op", "annotation"):
        assert spans_of(again, kind) == spans_of(trace, kind)
    assert LinkedTrace(again).launched.sum() == LinkedTrace(trace).launched.sum()
    assert again.about.gpus == trace.about.gpus
    assert again.about.device_properties[0]["numSms"] == trace.about.device_properties[0]["numSms"]


def test_ranges_of_our_own_runs_are_steps_and_phases_and_markers_are_no_ranges(tmp_path: Path) -> None:
    """As ``nvtx=True`` makes them; two processes count their calls from 1 on."""
    path = tmp_path / "own.sqlite"
    first, second = 5 << 24, 6 << 24
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);
            CREATE TABLE StringIds (id, value);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
                (start, end, deviceId, streamId, correlationId, globalPid, shortName);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
            """
        )
        ranges = [(0, 90, 59, "step 7"), (0, 40, 59, "data_wait"), (40, 80, 59, "forward"), (5, None, 34, "marker")]
        ranges += [(42, 70, 59, "nn.Module: encoder")]
        ranges += [(80, 85, 59, "EarlyStopping.on_train_batch_end"), (41, 60, 60, "aten::mm, seq = 3, op_id = 9")]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", [(*one, first | 5) for one in ranges])
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (1, "x")]
        )
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (NULL, 9, 0, 7, 1, 5, 1)")
        for process, start in ((first, 45), (second, 50)):
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 1, ?, 1)", (start, start + 9, process)
            )
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (42, 44, ?, 1, 2)", (process | 5,))
        database.commit()
    trace = Trace.read(path)
    linked = LinkedTrace(trace)
    assert linked.steps.names == ("ProfilerStep#7",)
    assert {name for _, _, name in spans_of(trace, "kernel")} == {"gemm"}
    assert len(trace.kernel) == 2
    assert {name for _, _, name in spans_of(trace, "annotation")} >= {"DataLoader.__next__", "forward"}
    assert len(trace.annotation) == 4
    assert spans_of(trace, "module_range") == [(42, 70, "nn.Module: encoder")]
    assert spans_of(trace, "cpu_op") == [(41, 60, "aten::mm")]
    assert [trace.threads[number] for number in linked.launch_thread.tolist()] == ["5/5", "6/5"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP TABLE {kernel}; CREATE VIEW {kernel} AS SELECT 1 AS start, 2 AS end", "is a view, which nsys never"),
        ("ALTER TABLE {kernel} RENAME COLUMN start TO begin", "has no column 'start'"),
        ("ALTER TABLE {kernel} DROP COLUMN end; ALTER TABLE {kernel} ADD COLUMN end AS (start + 1)", "no column 'end'"),
        ("UPDATE {kernel} SET start = 1e30", "does not fit 64-bit nanoseconds"),
    ],
)
def test_what_nsys_never_writes_is_refused_in_one_line(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        exported(RECORDED[1], tmp_path, tuple(change.format(kernel=_KERNEL).split("; ")))
    assert said in str(refused.value)
    assert "report.sqlite" in str(refused.value)
    assert "\n" not in str(refused.value)


def _cut(path: Path) -> None:
    write_nsys_sqlite(recorded_trace(RECORDED[1]).trace, path)
    path.write_bytes(path.read_bytes()[:30_000])


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("report.sqlite", b"SQLite format 3\0")


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE cookies (id)")
        database.commit()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_cut, "malformed"),
        (_zip, "is not a trace"),
        (_of_another_program, "without events of nsys"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)), "cannot be read"),
    ],
)
def test_other_files_are_refused_in_one_line(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    make(tmp_path / "report.sqlite")
    with pytest.raises(TraceError, match=said) as refused:
        Trace.read(tmp_path / "report.sqlite")
    assert "\n" not in str(refused.value)


def test_a_report_of_nsys_is_exported_by_nsys_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"a report")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraceError, match=r"not on the PATH\. Export the report with: nsys export"):
        Trace.read(report)
    trace = recorded_trace(RECORDED[1]).trace
    write_nsys_sqlite(trace, tmp_path / "made.sqlite")
    nsys = tmp_path / "nsys"
    copies = f'/bin/cp {tmp_path}/made.sqlite "$5"'
    nsys.write_text(f'#!/bin/sh\n[ "$1 $2 $3 $4" = "export --type sqlite --output" ] && {copies}\n')
    nsys.chmod(0o755)
    assert spans_of(Trace.read(report), "kernel") == spans_of(trace, "kernel")
    nsys.write_text("#!/bin/sh\necho the report is of a newer version >&2\nexit 1\n")
    with pytest.raises(TraceError, match="nsys cannot export it: the report is of a newer version"):
        Trace.read(report)


def test_rows_for_perfetto_need_a_json_trace(tmp_path: Path) -> None:
    _, again = exported(RECORDED[1], tmp_path)
    with pytest.raises(TraceError, match="only be added to a JSON trace"):
        write_annotated(tmp_path / "report.sqlite", tmp_path / "out.json", LinkedTrace(again))
