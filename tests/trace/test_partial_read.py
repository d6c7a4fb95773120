"""Reading a trace in two processes gives what one gives, and a second process that fails costs nothing but time."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tiny_traces import Json, document, kineto_text, span, training_step, write
from trace_content import content

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace import partial_read
from lightning_gpuprof.trace.partial_read import read_in_two, size_of_json
from lightning_gpuprof.trace.reader import Trace


def many_steps() -> list[Json]:
    events: list[Json] = []
    for step in range(60):
        for event in training_step():
            moved = dict(event)
            if isinstance(moved.get("ts"), int):
                moved["ts"] = moved["ts"] + 1000 * step
            moved["args"] = {**event.get("args", {}), "grid": [step % 7, 1, 1], "block": [32, 1, 1]}  # type: ignore[dict-item]
            events.append(moved)
        events.append(span("cpu_op", f"op {step}", 1000 * step, 1, tid=step % 5, Input_Dims=[[step, 2]]))
    return events


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize("fork", [False, True], ids=["fresh", "copied"])
def test_two_processes_read_what_one_reads(tmp_path: Path, name: str, layout: str, fork: bool) -> None:
    events = many_steps()
    text = kineto_text(events, baseTimeNanoseconds=7) if layout == "kineto" else json.dumps(document(events))
    path = write(tmp_path / name, text)
    one = Trace.read(path, processes=1, block_bytes=3000)
    two = Trace.read(path, processes=2, block_bytes=3000, fork=fork)
    assert content(two) == content(one)
    assert two.cpu_op.start_ns.tolist() == one.cpu_op.start_ns.tolist()  # rows of one category keep their order
    assert (two.events, two.bytes_json, two.categories, two.how) == (one.events, len(text), one.categories, "stream")
    assert two.about == one.about


@pytest.mark.parametrize("fork", [False, True], ids=["fresh", "copied"])
def test_the_work_is_shared_out(tmp_path: Path, fork: bool) -> None:
    path = write(tmp_path / "t.json", kineto_text(many_steps()))
    half = read_in_two(path, size_of_json(path), frames=True, block_bytes=3000, fork=fork)
    parts = [len(part.start.values) for part in half.builder._parts["cpu_op"]]
    assert sum(parts) == 180
    assert max(parts) < 100  # the second half came in pieces of its own


def test_a_second_process_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", kineto_text(many_steps()))
    monkeypatch.setattr(partial_read, "_START", "raise SystemExit(3)")
    trace = Trace.read(path, processes=2, block_bytes=3000)
    assert content(trace) == content(Trace.read(path, processes=1))


@pytest.mark.parametrize("executable", ["/nowhere/python", "", None])
def test_a_second_process_that_cannot_be_started_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    path = write(tmp_path / "t.json", kineto_text(many_steps()))
    monkeypatch.setattr(partial_read.sys, "executable", executable)
    trace = Trace.read(path, processes=2, block_bytes=3000)
    assert content(trace) == content(Trace.read(path, processes=1))


@pytest.mark.parametrize(("processes", "times"), [(1, 0), (2, 1)])
def test_what_is_done_meanwhile_is_done_once_and_only_beside_another_process(
    tmp_path: Path, processes: int, times: int
) -> None:
    path, done = write(tmp_path / "t.json", kineto_text(many_steps())), []
    read = Trace.read(
        path, processes=processes, block_bytes=3000, fork=True, meanwhile=functools.partial(done.append, path)
    )
    assert len(done) == times
    assert content(read) == content(Trace.read(path, processes=1))


@pytest.mark.parametrize("dies_in", ["fork", "read_part"])
def test_a_copy_that_cannot_be_made_or_fails_costs_nothing_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.json", kineto_text(many_steps()))
    first_process, read = os.getpid(), partial_read.read_part

    def no_copy() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    def fails_in_the_copy(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != first_process:
            raise MemoryError
        return read(*args, **kwargs)

    if dies_in == "fork":
        monkeypatch.setattr(partial_read.os, "fork", no_copy)
    else:
        monkeypatch.setattr(partial_read, "read_part", fails_in_the_copy)
    assert read_in_two(path, size_of_json(path), frames=True, block_bytes=3000, fork=True) is None
    trace = Trace.read(path, processes=2, block_bytes=3000, fork=True)
    assert content(trace) == content(Trace.read(path, processes=1))
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # no process is left


def test_the_second_process_imports_nothing_from_the_folder_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.json", kineto_text(many_steps()))
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert read_in_two(path, size_of_json(path), frames=True, block_bytes=3000) is not None
    assert not (tmp_path / "imported").exists()


def test_a_file_without_a_middle_is_read_by_one(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", document(training_step()[:1]))
    assert Trace.read(path, processes=2).events == 1


@pytest.mark.parametrize(("processes", "fork"), [(1, False), (2, False), (2, True)])
def test_what_is_wrong_with_a_file_does_not_depend_on_who_reads(tmp_path: Path, processes: int, fork: bool) -> None:
    text = kineto_text(many_steps())
    path = write(tmp_path / "t.json", text[: len(text) * 9 // 10])
    with pytest.raises(TraceError, match="truncated"):
        Trace.read(path, processes=processes, block_bytes=3000, fork=fork)


def test_the_size_of_packed_json_is_noted_in_the_file(tmp_path: Path) -> None:
    text = kineto_text(many_steps())
    assert size_of_json(write(tmp_path / "t.json.gz", text)) == len(text)
    assert size_of_json(write(tmp_path / "t.json", text)) == len(text)
