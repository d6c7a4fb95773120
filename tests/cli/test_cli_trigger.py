"""``gpuprof trigger``: the folder of a run in, a touched file or the reason why not out."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample_journals import header

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.journal import Footer, Notice
from lightning_gpuprof.model.pid_space import pid_space

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/1").exists(), reason="needs /proc")


def run_folder(
    folder: Path,
    *,
    ended: bool = False,
    rank: int = 0,
    pid: int | None = None,
    torn: bool = False,
    space: str | None = None,
) -> Path:
    """A folder with a journal that begins, and ends if it is told to."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = header(
        rank=rank,
        host=socket.gethostname(),
        pid=os.getpid() if pid is None else pid,
        pid_space=pid_space() if space is None else space,
        epoch_ns=time.time_ns(),
    )
    lines = [begun, *(Notice(part="x", message="y" * 100) for _ in range(1000))]
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    if ended:
        text += msgspec.json.encode(Footer(end_ns=1, status="finished", overhead={})) + b"\n"
    (folder / f"rank{rank}.jsonl").write_bytes(text[:-40] if torn else text)
    return folder


@pytest.mark.parametrize("named", ["gpuprof", ""])
def test_the_file_is_touched_and_what_will_happen_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    folder = run_folder(tmp_path / "gpuprof")
    assert main(["trigger", str(tmp_path / named)]) == 0
    said = capsys.readouterr()
    assert (folder / "trigger").is_file()
    assert str(folder / "trigger") in said.out
    assert "traces its next steps" in said.out
    assert said.err == ""


def test_json_says_what_was_touched(tmp_path: Path, printed: Callable[..., str]) -> None:
    folder = run_folder(tmp_path / "gpuprof")
    said = json.loads(printed("trigger", tmp_path, "--json"))
    assert said == {"folder": str(folder), "touched": str(folder / "trigger"), "doubts": []}


def test_touching_again_is_another_request(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "gpuprof", torn=True)
    assert main(["trigger", str(folder)]) == 0
    before = (folder / "trigger").stat().st_mtime_ns
    time.sleep(0.02)
    assert main(["trigger", str(folder)]) == 0
    assert (folder / "trigger").stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("first", "state", "second"),
    [
        ("gpuprof", {"ended": True}, "gpuprof-2"),
        ("lightning_logs/version_0/gpuprof", {"ended": True}, "lightning_logs/version_1/gpuprof"),
        pytest.param("version_0/gpuprof", {"pid": 2**22 + 1}, "version_1/gpuprof", marks=NEEDS_PROC, id="killed"),
    ],
)
def test_of_several_runs_the_one_that_goes_on_is_meant(
    tmp_path: Path, first: str, state: dict[str, Any], second: str
) -> None:
    run_folder(tmp_path / first, **state)
    goes_on = run_folder(tmp_path / second)
    assert main(["trigger", str(tmp_path)]) == 0
    assert list(tmp_path.rglob("trigger")) == [goes_on / "trigger"]


def test_a_run_whose_last_rank_goes_on_has_not_ended(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "gpuprof", ended=True)
    run_folder(folder, rank=1)
    assert main(["trigger", str(folder)]) == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.mkdir(), "contain no journal"),
        (lambda folder: run_folder(folder / "gpuprof", ended=True), "this run has ended"),
        (lambda folder: [run_folder(folder / name) for name in ("gpuprof", "gpuprof-2")], "name one"),
        (lambda folder: [run_folder(folder / f"v{n}" / "gpuprof", ended=True) for n in range(2)], "all 2 runs have"),
    ],
)
def test_what_cannot_be_asked_is_told_and_nothing_is_touched(
    tmp_path: Path, make: object, words: str, refused: Callable[..., str]
) -> None:
    make(tmp_path / "logs")  # type: ignore[operator]
    assert words in refused("trigger", tmp_path / "logs")
    assert not list(tmp_path.rglob("trigger"))


@NEEDS_PROC
def test_a_run_whose_processes_are_gone_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    folder = run_folder(tmp_path / "gpuprof", pid=2**22 + 1)
    assert "this run was killed or crashed" in refused("trigger", folder)
    assert not (folder / "trigger").exists()


@NEEDS_PROC
def test_a_run_that_was_killed_and_is_not_collected_by_its_launcher_is_refused(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    folder = run_folder(tmp_path / "gpuprof", pid=child)
    assert f"no process {child} is on this host" in refused("trigger", folder)
    os.waitpid(child, 0)


def test_a_process_id_of_another_container_says_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "gpuprof", pid=2**22 + 1, space="another boot")
    assert main(["trigger", str(folder)]) == 0
    assert (folder / "trigger").exists()


@NEEDS_PROC
def test_a_run_of_which_one_process_is_gone_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "gpuprof", pid=2**22 + 1)
    run_folder(folder, rank=1)
    assert main(["trigger", str(folder)]) == 0
    assert "there will be no trace" in capsys.readouterr().err
