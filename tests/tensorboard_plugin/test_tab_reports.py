"""Reports that the tab keeps: bounded in number and bytes, made beside the requests, made again when a run goes on."""

import itertools
import os
import threading
from pathlib import Path

import log_directories
import pytest
from saved_runs import save_run

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.tensorboard_plugin.reports import Made, Pending, Reports
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles, look


class Counted:
    """Counts the reports that were made, by folder."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, files: RunFiles, report: Report) -> None:
        self.made.append(files.folder.name)


@pytest.mark.parametrize(
    ("most", "asked", "made"), [({"most_reports": 2}, "aabacab", "abcb"), ({"most_kept_bytes": 1}, "aaba", "aba")]
)
def test_a_report_is_made_once_and_the_least_used_is_dropped(
    tmp_path: Path, most: dict[str, int], asked: str, made: str
) -> None:
    counted = Counted()
    reports = Reports(counted, **most)
    files = {name: look(save_run(tmp_path / name), tmp_path) for name in set(asked)}
    for name in asked:
        assert isinstance(reports.of(files[name], 60), Made)
    assert counted.made == list(made)


def test_files_that_are_too_large_are_not_read_and_the_way_out_is_named(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run")
    with pytest.raises(ReportError, match=r"at most 0\. Make the report once: gpuprof report"):
        Reports(most_read_bytes=100).of(look(folder, tmp_path), 60)


def test_an_older_report_is_shown_where_the_journal_is_too_large(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run")
    size = (folder / "report.json").stat().st_size
    (folder / "rank0.jsonl").write_bytes(b" " * 2 * size)
    os.utime(folder / "report.json", (1, 1))
    made = Reports(most_read_bytes=size).of(look(folder, tmp_path), 60)
    assert isinstance(made, Made)
    assert made.report.verdict.kind == "input-bound"


def test_a_report_of_a_run_that_goes_on_is_made_from_its_journal_again_but_not_all_the_time(tmp_path: Path) -> None:
    lines = log_directories.journal_lines(tmp_path, 3)
    journal = tmp_path / "rank0.jsonl"
    journal.write_bytes(b"".join(lines[: log_directories.up_to_epoch(lines, 1)]))
    times = itertools.count(0, 10)
    now = [0.0]
    counted = Counted()

    def clock() -> float:
        now[0] = float(next(times))
        return now[0]

    reports = Reports(counted, now=clock)
    first = reports.of(look(tmp_path, tmp_path), 60)
    assert isinstance(first, Made)
    assert first.report.steps.count == 300
    assert first.report.run["status"] == "unfinished"
    journal.write_bytes(b"".join(lines))
    later = reports.of(look(tmp_path, tmp_path), 60)
    assert isinstance(later, Made)
    assert later.version == first.version
    assert later.version != look(tmp_path, tmp_path).version
    while later.version == first.version:
        later = reports.of(look(tmp_path, tmp_path), 60)
        assert isinstance(later, Made)
    assert later.report.steps.count == 900
    assert len(counted.made) == 2


def test_who_asks_meanwhile_is_told_and_not_held_up(tmp_path: Path) -> None:
    goes_on = threading.Event()
    reports = Reports(lambda files, report: goes_on.wait(60) and None)
    files = look(save_run(tmp_path / "run"), tmp_path)
    try:
        told = reports.of(files, 0.01)
        assert isinstance(told, Pending)
        assert "MB" in told.why
        assert reports.current(files) is None
    finally:
        goes_on.set()
    assert isinstance(reports.of(files, 60), Made)
    assert reports.current(files) == files.version


def test_the_older_report_is_shown_while_the_next_is_being_made(tmp_path: Path) -> None:
    lines = log_directories.journal_lines(tmp_path, 3)
    journal = tmp_path / "rank0.jsonl"
    journal.write_bytes(b"".join(lines[: log_directories.up_to_epoch(lines, 1)]))
    goes_on = threading.Event()
    goes_on.set()
    reports = Reports(lambda files, report: goes_on.wait(60) and None, now=lambda: 0.0)
    first = reports.of(look(tmp_path, tmp_path), 60)
    goes_on.clear()
    journal.write_bytes(b"".join(lines))
    files = look(tmp_path, tmp_path)
    try:
        for _ in range(2):
            assert reports.of(files, 0.0) == first
        assert reports.current(files) is None
    finally:
        goes_on.set()
    later = first
    while later == first:
        later = reports.of(files, 60)
    assert isinstance(later, Made)
    assert (later.version, later.report.steps.count) == (files.version, 900)


def test_a_report_that_cannot_be_read_is_made_from_the_journal(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_bytes(b"".join(log_directories.journal_lines(tmp_path, 1)))
    (tmp_path / "report.json").write_text("{}")
    made = Reports().of(look(tmp_path, tmp_path), 60)
    assert isinstance(made, Made)
    assert made.report.steps.count == 300


def test_what_cannot_be_made_is_not_tried_again_before_the_files_change(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text("nonsense\n")
    reports = Reports()
    for _ in range(2):
        with pytest.raises(ReportError, match="not a gpuprof journal"):
            reports.of(look(tmp_path, tmp_path), 60)
    (tmp_path / "rank0.jsonl").unlink()
    save_run(tmp_path / "other")
    assert isinstance(reports.of(look(tmp_path / "other", tmp_path), 60), Made)
