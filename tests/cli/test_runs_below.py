"""A folder above runs stands for the only one, of several for the last to start; stderr says which."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sample_report
from empty_structs import empty
from saved_runs import save_run

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.cli.runs_below import runs_below
from lightning_gpuprof.cli.source import JOURNALS, run_folder
from lightning_gpuprof.model.journal import Header
from lightning_gpuprof.sinks import json_report


def saved(folder: Path, *, changed_s: int) -> Path:
    """A run that was written last at some time."""
    save_run(folder)
    os.utime(folder / "report.json", (changed_s, changed_s))
    return folder


def test_the_only_run_below_is_taken(tmp_path: Path, printed: Callable[..., str]) -> None:
    run = save_run(tmp_path / "logs" / "digits" / "version_0" / "gpuprof")
    assert "Steps could be up to" in printed("report", tmp_path / "logs")
    assert (run / "report.html").is_file()
    assert main(["export", str(tmp_path / "logs")]) == 0
    assert main(["compare", str(tmp_path / "logs"), str(run)]) == 0


@pytest.mark.parametrize("command", [["report"], ["export"], ["compare", "logs"]])
@pytest.mark.parametrize("named", ["logs", "logs/version_1"])
def test_each_command_takes_the_newest_fit_and_says_so(
    tmp_path: Path,
    command: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    saved(logs / "version_1" / "gpuprof", changed_s=1_000)
    run = saved(logs / "version_1" / "gpuprof-2", changed_s=1_001)
    saved(logs / "version_1" / "gpuprof-test", changed_s=1_002)
    assert main([*command, str(tmp_path / named)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert f"gpuprof: {tmp_path / named} contains 3 runs; this is {run}, the newest" in told


@pytest.mark.parametrize("together", [True, False])
def test_a_report_that_is_made_again_makes_no_run_newer(tmp_path: Path, together: bool) -> None:
    early, late = (tmp_path / "logs" / one for one in (("gpuprof", "gpuprof-1") if together else ("a", "b")))
    for folder, epoch_ns in ((early, 1_000), (late, 2_000)):
        folder.mkdir(parents=True)
        header = empty(Header, version=2, rank=0, world_size=1, pid=1, epoch_ns=epoch_ns)
        (folder / "rank0.jsonl").write_bytes(msgspec.json.encode(header) + b"\n")
    json_report.write(sample_report.full_report(), early / "report.json")
    assert runs_below(tmp_path, JOURNALS).folders == (late, early)
    assert run_folder(tmp_path / "logs") == late


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
    assert main(["export", str(tmp_path)]) == 0
    assert f"contains 1 run or more; this is {run}, the newest" in capsys.readouterr().err
