"""Finding runs under a log directory, and what the list says of each without analysing it."""

import os
from pathlib import Path

import log_directories
import msgspec
import pytest
import sample_report
from saved_runs import save_run

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules import claims
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.tensorboard_plugin import run_list, runs
from lightning_gpuprof.tensorboard_plugin.run_files import look
from lightning_gpuprof.tensorboard_plugin.runs import RunFolders, search
from lightning_gpuprof.tensorboard_plugin.summaries import RUNNING_S, Summaries, Summary


def test_runs_are_found_at_any_depth_but_not_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_DEPTH", 3)
    for folder in ("", "a/b/c", "a/b/c/d", ".hidden/run"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "rank0.jsonl").touch()
    found = search(tmp_path)
    assert sorted(found.runs) == [".", "a/b/c"]
    assert found.note == ""


def test_a_search_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "rank0.jsonl").touch()
    monkeypatch.setattr(runs, "MAX_RUNS", 3)
    found = search(tmp_path)
    assert len(found.runs) == 3
    assert "more than 3 runs" in found.note
    monkeypatch.setattr(runs, "MAX_FOLDERS", 2)
    assert "first 2 folders" in search(tmp_path).note


def test_links_to_folders_are_not_followed_and_end_no_search(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank0.jsonl").touch()
    (tmp_path / "run" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "latest").symlink_to(tmp_path / "run", target_is_directory=True)
    assert list(search(tmp_path).runs) == ["run"]


def test_a_new_run_is_found_when_the_last_search_is_old(tmp_path: Path) -> None:
    now = 0.0
    folders = RunFolders(tmp_path, now=lambda: now)
    assert not folders.found(60).runs
    save_run(tmp_path / "run")
    assert not folders.found(60).runs
    assert folders.found(60, renewed=True).runs
    save_run(tmp_path / "second")
    now = 1 + runs.RENEWED_AFTER_S
    assert len(folders.found(60).runs) == 2


def test_the_list_needs_the_report_only_once_per_state(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run")
    summaries = Summaries()
    files = look(folder, tmp_path)
    first = summaries.of(files)
    assert (first.verdict, first.period_ms, first.state) == ("input-bound", 20.4, "finished")
    (folder / "report.json").unlink()
    assert summaries.of(files) == first


def test_a_journal_without_an_end_is_running_while_it_is_written(tmp_path: Path) -> None:
    lines = log_directories.journal_lines(tmp_path, 2)
    journal = tmp_path / "rank0.jsonl"
    journal.write_bytes(b"".join(lines[:-1]))
    os.utime(journal, (1_000_000, 1_000_000))
    for age_s, state in ((1.0, "running"), (RUNNING_S + 1, "no end")):
        summary = Summaries(now=lambda age_s=age_s: 1_000_000 + age_s).of(look(tmp_path, tmp_path))  # type: ignore[misc]
        assert (summary.state, summary.verdict, summary.stage) == (state, "", "fit")
    journal.write_bytes(b"".join(lines))
    assert Summaries().of(look(tmp_path, tmp_path)).state == "finished"
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert Summaries().of(look(tmp_path, tmp_path)).state == "running"


def test_a_report_that_is_older_than_the_journal_says_nothing_of_it(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run")
    (folder / "rank0.jsonl").write_bytes(b"".join(log_directories.journal_lines(tmp_path, 1)))
    os.utime(folder / "report.json", (1, 1))
    assert not look(folder, tmp_path).report_is_current
    assert Summaries().of(look(folder, tmp_path)).verdict == ""
    os.utime(folder / "report.json")
    assert Summaries().of(look(folder, tmp_path)).verdict == "input-bound"


def test_the_latest_run_comes_first_and_one_that_cannot_be_read_is_there(tmp_path: Path) -> None:
    summary = Summaries().of(look(save_run(tmp_path / "run"), tmp_path))
    later = msgspec.structs.replace(summary, started_s=(summary.started_s or 0) + 60)
    rows = run_list.listing(
        [run_list.row("a", summary), run_list.row("b", later), run_list.row("c", run_list.unreadable_summary("why"))],
        "",
    )["rows"]
    assert [row.name for row in rows] == ["b", "a", "c"]
    assert "why" in rows[-1].state


def test_what_was_not_measured_is_not_zero(tmp_path: Path) -> None:
    json_report.write(sample_report.minimal_report(), tmp_path / "report.json")
    summary = Summaries().of(look(tmp_path, tmp_path))
    row = run_list.row(".", summary)
    assert [cell.text for cell in row.cells][1:4] == ["not-enough-data", "-", "-"]


@pytest.mark.parametrize(("usable_cpus", "sure"), [(8.0, "about"), (2.0, "up to")])
def test_the_estimate_of_more_workers_than_cpus_is_a_bound(tmp_path: Path, usable_cpus: float, sure: str) -> None:
    report = sample_report.full_report()
    finding = msgspec.structs.replace(
        report.findings[0],
        change=Change(call="DataLoader", arguments={"num_workers": 4}),
        expected=Expected(whole_ms=20.0, step_ms=10.0, lower_ms=9.0, upper_ms=11.0),
    )
    host = msgspec.structs.replace(report.host, usable_cpus=usable_cpus)
    json_report.write(msgspec.structs.replace(report, findings=(finding,), host=host), tmp_path / "report.json")
    summary = Summaries().of(look(tmp_path, tmp_path))
    assert (summary.sure, summary.speedup) == (sure, 2.0)


def test_what_lies_between_the_steps_gains_as_much_in_the_list_as_on_the_first_screen(tmp_path: Path) -> None:
    report = sample_report.full_report()
    finding = msgspec.structs.replace(report.findings[0], explains=claims.VALIDATION, change=None)
    wall = msgspec.structs.replace(report.wall, total_s=100.0, parts={"setup": 60.0, "validation": 40.0})
    report = msgspec.structs.replace(report, findings=(finding,), wall=wall)
    json_report.write(report, tmp_path / "report.json")
    speedup = Summaries().of(look(tmp_path, tmp_path)).speedup
    assert speedup == pytest.approx(first_screen(report).speedup)
    assert speedup != pytest.approx(finding.gain.speedup_max)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("loader.batch_size", (32, 64), "Not comparable with a/v0: the batch differs (loader.batch_size: 32 -> 64)."),
        ("model.class", ("Net", "Other"), "Not comparable with a/v0: the model differs (model.class: Net -> Other)."),
        ("loader.num_workers", (0, 2), ""),
    ],
)
def test_a_trend_is_of_runs_that_can_be_compared(
    tmp_path: Path, name: str, values: tuple[Value, Value], said: str
) -> None:
    rows = []
    for number, value in enumerate((*values, values[1])):
        report = sample_report.full_report()
        json_report.write(
            msgspec.structs.replace(report, run={**report.run, "started": f"2026-01-0{number + 1}", name: value}),
            tmp_path / "report.json",
        )
        rows.append(run_list.row(f"a/v{number}", Summaries().of(look(tmp_path, tmp_path))))
    listed = run_list.listing(rows, "")
    column = [one["title"] for one in listed["columns"]].index("trend")
    latest, changed, _ = (row.cells[column] for row in listed["rows"])
    assert (changed.text, changed.why) == ("-" if said else "██ +0 %", said)
    assert (latest.text, latest.why) == ("██ +0 %" if said else "███ +0 %", "")


def test_the_trend_is_of_the_runs_of_one_folder_in_their_order() -> None:
    times_ms = {"digits/version_0/gpuprof": 200.0, "other/version_0/gpuprof": 5.0, "digits/version_1/gpuprof": 100.0}
    rows = [
        run_list.row(name, Summary(state="finished", period_ms=ms, started_s=float(at)))
        for at, (name, ms) in enumerate(times_ms.items())
    ]
    listed = run_list.listing(rows, "")
    column = [one["title"] for one in listed["columns"]].index("trend")
    assert [(row.name, row.cells[column].text) for row in listed["rows"]] == [
        ("digits/version_1/gpuprof", "█▄ -50 %"),
        ("other/version_0/gpuprof", "-"),
        ("digits/version_0/gpuprof", "-"),
    ]
    assert [row.shown for row in listed["rows"]] == ["digits/version_1", "other/version_0", "digits/version_0"]
