"""The process that analyses a trace, and how the training hears that it is over."""

import json
import os
import stat
import threading
import time
from pathlib import Path

import patience
import pytest

from lightning_gpuprof.capture.trace_jobs import TraceJobs

EVENTS = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}]


def submit(jobs: TraceJobs, folder: Path, done: threading.Event) -> Path:
    plain = folder / "rank0.1.plain.json"
    plain.write_text(json.dumps({"traceEvents": EVENTS}))
    jobs.submit(plain, folder / "rank0.1.pt.trace.json.gz", folder / "facts.json", 1, 3, on_done=done.set)
    return plain


def test_the_end_of_a_job_is_reported_and_its_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience.begin(monkeypatch.setattr)
    jobs, done = TraceJobs(), threading.Event()
    assert not jobs.is_disturbing()
    plain = submit(jobs, tmp_path, done)
    assert jobs.is_disturbing()
    assert done.wait(60)
    assert not jobs.is_disturbing()
    assert jobs.wait(60) == 0
    assert not jobs.running()
    assert (tmp_path / "facts.json").is_file()
    assert (tmp_path / "rank0.1.pt.trace.json.gz").is_file()
    assert not plain.exists()


def endless(folder: Path) -> tuple[str, Path]:
    """An interpreter for the job that never comes to an end by itself."""
    program = folder / "endless"
    program.write_text(f"#!/bin/sh\necho $$ > {folder / 'pid'}\nexec sleep 600\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program), folder / "pid"


def pid_in(file: Path) -> int:
    """Of the job, once it runs."""
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(file.read_text())


def test_a_job_that_goes_on_counts_as_beside_for_so_long_only(tmp_path: Path) -> None:
    python, pid = endless(tmp_path)
    jobs, done = TraceJobs(max_disturbing_s=0.3, python=python), threading.Event()
    submit(jobs, tmp_path, done)
    assert done.wait(30)
    assert not jobs.is_disturbing()
    assert jobs.running()
    assert jobs.wait(0.1) == 1
    os.kill(pid_in(pid), 9)
    assert jobs.wait(30) == 0


def test_whoever_leaves_early_does_not_wait_for_the_cap(tmp_path: Path) -> None:
    python, pid = endless(tmp_path)
    jobs, done = TraceJobs(max_disturbing_s=600, python=python), threading.Event()
    submit(jobs, tmp_path, done)
    job = pid_in(pid)
    assert jobs.wait(0.1) == 1
    assert done.wait(60)
    os.kill(job, 9)
    assert jobs.wait(30) == 0


def test_a_job_that_cannot_be_started_is_over(tmp_path: Path) -> None:
    jobs, done = TraceJobs(python=str(tmp_path / "missing")), threading.Event()
    plain = submit(jobs, tmp_path, done)
    assert done.wait(30)
    assert jobs.wait(30) == 0
    assert plain.is_file()
