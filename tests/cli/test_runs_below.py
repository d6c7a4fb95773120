"""A folder above runs: the only one is taken, of several the newest are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from saved_runs import save_run

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.cli.runs_below import runs_below
from lightning_gpuprof.cli.source import JOURNALS


def saved(folder: Path, *, changed_s: int) -> Path:
    """A run that was written last at some time."""
    save_run(folder)
    os.utime(folder / "report.json", (changed_s, changed_s))
    return folder


def test_the_only_run_below_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save_run(tmp_path / "logs" / "digits" / "version_0" / "gpuprof")
    assert main(["report", str(tmp_path / "logs")]) == 0
    assert "steps could be up to" in capsys.readouterr().out
    assert (run / "report.html").is_file()
    assert main(["export", str(tmp_path / "logs")]) == 0
    assert main(["compare", str(tmp_path / "logs"), str(run)]) == 0


def test_of_several_runs_the_newest_are_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    runs = [saved(logs / f"version_{number}" / "gpuprof", changed_s=1_000 + number) for number in range(10)]
    assert main(["export", str(logs)]) == 2
    error = capsys.readouterr().err
    named = ", ".join(map(str, reversed(runs[2:])))
    assert error == f"gpuprof: {logs} holds 10 runs, name one (newest first): {named} and 2 more\n"


@pytest.mark.parametrize("named", ["logs", "logs/version_1"])
def test_report_takes_the_newest_fit_and_says_so(
    tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    saved(logs / "version_1" / "gpuprof", changed_s=1_000)
    run = saved(logs / "version_1" / "gpuprof-2", changed_s=1_001)
    saved(logs / "version_1" / "gpuprof-test", changed_s=1_002)
    assert main(["report", str(tmp_path / named)]) == 0
    assert capsys.readouterr().err == f"gpuprof: {tmp_path / named} holds 3 runs: this is {run}, the newest\n"
    assert (run / "report.html").is_file()


def test_hidden_folders_links_and_reports_of_others_are_no_runs(tmp_path: Path) -> None:
    run = saved(tmp_path / "a" / "gpuprof", changed_s=1)
    save_run(tmp_path / ".cache" / "gpuprof")
    (tmp_path / "link").symlink_to(run.parent)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "report.json").write_text("{}")
    assert runs_below(tmp_path, JOURNALS).folders == (run,)


def test_a_run_with_a_journal_only_is_found(tmp_path: Path) -> None:
    run = tmp_path / "version_0" / "gpuprof"
    run.mkdir(parents=True)
    (run / "rank0.jsonl").write_text("")
    assert runs_below(tmp_path, JOURNALS).folders == (run,)


def test_a_run_is_not_taken_for_the_only_one_if_not_all_was_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = saved(tmp_path / "a" / "gpuprof", changed_s=1)
    for number in range(5):
        (tmp_path / "a" / f"x{number}").mkdir()
    bounded = runs_below(tmp_path, JOURNALS, most_folders=3)
    assert (bounded.folders, bounded.all_searched) == ((run,), False)
    assert runs_below(tmp_path, JOURNALS).all_searched
    (tmp_path / "/".join("abcdefghij")).mkdir(parents=True)
    assert not runs_below(tmp_path, JOURNALS).all_searched
    monkeypatch.setattr("lightning_gpuprof.cli.source.runs_below", lambda *_: bounded)
    assert main(["export", str(tmp_path)]) == 2
    assert f"holds 1 run or more, name one (newest first): {run}" in capsys.readouterr().err
