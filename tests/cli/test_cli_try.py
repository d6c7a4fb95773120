"""``gpuprof try``: what is wrong is said before anything runs; a terminal's last line shows what goes on."""

import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import sample_journals
import saved_runs

from lightning_gpuprof.cli import try_
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.journal import Conditions, Footer
from lightning_gpuprof.model.trial import Plan, Trying
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.trial import program

PYTHON = sys.executable


def run_of(folder: Path, script: str) -> Path:
    """A run of a script, as far as it matters here."""
    folder.mkdir()
    records = [
        sample_journals.header(),
        Conditions(values={"script": script}),
        Footer(end_ns=1, status="finished", overhead={}),
    ]
    (folder / "rank0.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command to try: put it after --"),
        (["--"], "no command to try: put it after --"),
        (["--", "no-such-command"], "there is no command 'no-such-command'"),
        (["--", "./train.py"], "there is no command './train.py': name the one that trains, as python ./train.py"),
        (["--seconds", "1", "--", PYTHON], "--seconds must be from 5 to 3600, got 1"),
        (["--seconds", "99999", "--", PYTHON], "--seconds must be from 5 to 3600, got 99999"),
        (["--arm", "num_worker=2", "--", PYTHON], "Did you mean num_workers"),
        (["--arm", "num_workers=-1", "--", PYTHON], "--arm num_workers must be a whole number from 0 to 256, got -1"),
        (["nowhere", "--", PYTHON, "train.py"], "nowhere"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = time.monotonic()
    assert main(["try", *words]) == 2
    assert time.monotonic() - begin < 10, "nothing was run"
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("gpuprof: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_script_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", "other.py")
    assert main(["try", str(run), "--", PYTHON, "train.py"]) == 2
    assert f"{run} is a run of other.py, and the command runs train.py" in capsys.readouterr().err


def test_a_run_too_short_for_advice_is_not_the_one_that_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "train.py"
    for name, steady in (("long", 380), ("short", 3)):
        folder = saved_runs.save_run(tmp_path / name, steady=steady)
        report = json_report.read(folder / "report.json")
        json_report.write(msgspec.structs.replace(report, run=report.run | {"script": script}), folder / "report.json")
    assert try_._run_of(None, [PYTHON, script]) == tmp_path / "long"
    assert try_._run_of(tmp_path / "short", [PYTHON, script]) == tmp_path / "short", "it was named"


@pytest.mark.parametrize(("how", "code"), [(None, 2), (KeyboardInterrupt, 130)])
def test_a_profile_that_does_not_come_to_its_end_leaves_nothing(
    how: type[BaseException] | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: Sequence[str], plan: Plan, folder: Path, **_: object) -> program.Ended:
        run_of(Path(plan.profile_into), "train.py")
        if how is not None:
            raise how
        return program.Ended(attached=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "run", run)
    assert main(["try", "--", PYTHON, "train.py"]) == code
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_makes_no_trainer_is_shown_with_its_last_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--arm", "num_workers=2", "--", PYTHON, "-c", "print('last words'); raise SystemExit(5)"]) == 2
    err = capsys.readouterr().err
    assert "ended with exit code 5 before it made a Trainer; its last lines:\nlast words\n" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (["python", "src/train.py", "--lr", "1"], {"train.py"}),
        (["python", "-m", "examples.digits", "fit"], {"digits.py", "__main__.py"}),
        (["torchrun", "--nproc_per_node", "2", "train.py"], {"train.py"}),
        (["python", "-m", "torch.distributed.run", "train.py"], {"train.py"}),
        (["my-trainer"], {"my-trainer"}),
    ],
)
def test_a_program_is_known_by_its_script(program: list[str], names: set[str]) -> None:
    assert try_._scripts(program) == names


class Terminal(io.StringIO):
    """Of 80 columns."""

    def isatty(self) -> bool:
        return True


def test_the_line_says_what_is_tried_and_the_time_left_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with try_._Shown(30) as shown:
        assert "waiting for the first step" in terminal.getvalue()
        shown.event(Trying(arm="num_workers=2", round=3, elapsed_s=12.4))
        assert "18 s left, round 4: num_workers=2" in terminal.getvalue()
        shown.event(Trying(arm="num_workers=2", round=9, elapsed_s=99.0))
        assert "0 s left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().split("\r")[-2].isspace()


def test_where_there_is_no_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with try_._Shown(30) as shown:
        shown.event(Trying(arm="num_workers=2", round=3, elapsed_s=12.4))
    assert stream.getvalue() == ""
