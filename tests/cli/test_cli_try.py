"""``gpuprof try``: what is wrong is said before anything runs; a terminal's last line shows what goes on."""

import io
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
import sample_journals
import saved_runs

from lightning_gpuprof.cli import advised_run, try_run
from lightning_gpuprof.cli.advised_run import TriedCommand
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.command_line import arguments_hash
from lightning_gpuprof.model.journal import Conditions, Footer, Value
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trial import BASE, INPUT, Block, Differs, Over, Plan, Started, Trying
from lightning_gpuprof.sinks import html, json_report
from lightning_gpuprof.trial import program
from lightning_gpuprof.trial.conditions import differences, settings

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_of(folder: Path, script: str) -> Path:
    """A run of a script, as far as it matters here."""
    folder.mkdir(parents=True)
    records = [
        sample_journals.header(),
        Conditions(values={"script": script}),
        Footer(end_ns=1, status="finished", overhead={}),
    ]
    (folder / "rank0.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    return folder


def saved(folder: Path, *, steady: int = 380, **facts: Value) -> Path:
    """A run with advice, of ``train.py`` if nothing else is said."""
    saved_runs.save_run(folder, steady=steady)
    report = json_report.read(folder / "report.json")
    run = report.run | {"script": "train.py"} | {name.replace("__", "."): value for name, value in facts.items()}
    json_report.write(msgspec.structs.replace(report, run=run), folder / "report.json")
    return folder


def folders(*words: str) -> list[str]:
    """Of the runs whose advice can be tried with a command, newest first."""
    return [run.folder.name for run in advised_run.newest_first(TriedCommand.of([PYTHON, *words]))]


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
        (["--json", "--patch", "--", PYTHON], "--json prints the result and --patch a diff: choose one of them"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["try", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("gpuprof: ")
    assert err.count("\n") == 1, "a program that runs is told of"
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_script_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    run = run_of(tmp_path / "run", "other.py")
    assert f"{run} is a run of other.py, and the command runs train.py" in refused("try", run, "--", PYTHON, "train.py")


def test_a_run_too_short_for_advice_is_not_the_one_that_is_tried(tmp_path: Path) -> None:
    saved(tmp_path / "long")
    short = saved(tmp_path / "short", steady=3)
    assert folders("train.py") == ["long"]
    assert advised_run.named(short, TriedCommand.of([PYTHON, "train.py"])).folder == short, "it was named"


def test_a_run_with_other_arguments_is_not_the_one_that_is_tried(tmp_path: Path) -> None:
    for age, (name, words) in enumerate({"same": ["--lr", "1"], "other": ["--lr", "2"], "none": []}.items()):
        report = saved(tmp_path / name, arguments="***", arguments_hash=arguments_hash(words)) / "report.json"
        os.utime(report, (1e9 - age, 1e9 - age))
    os.utime(saved(tmp_path / "unknown") / "report.json", (0, 0))
    assert folders("train.py", "--lr", "1") == ["same", "unknown"]
    assert folders("train.py") == ["none", "unknown"]
    assert folders("other.py") == []


def test_of_other_programs_no_report_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def remake(folder: Path) -> Report:
        made.append(folder.name)
        raise ReportError("short")

    monkeypatch.setattr(advised_run.source, "remake", remake)
    for name in ("other", "train"):
        run_of(tmp_path / name, f"{name}.py")
    with (run_of(tmp_path / "damaged", "train.py") / "rank0.jsonl").open("r+b") as journal:
        journal.write(b"\xff\xff")
    assert folders("train.py") == []
    assert sorted(made) == ["damaged", "train"]


class Programs:
    """Stands in for the user's program: it has settings, and measures nothing but what a profile is."""

    def __init__(self, **settings: Value) -> None:
        self.settings = settings
        self.plans: list[Plan] = []

    def __call__(self, words: Sequence[str], plan: Plan, folder: Path, **_: object) -> program.Ended:
        self.plans.append(plan)
        if plan.profile_into:
            saved(Path(plan.profile_into), arguments_hash=TriedCommand.of(words).arguments_hash, **self.settings)
            return program.Ended(attached=True, events=[Over(steps=1, seconds=1.0)])
        now = settings({name.replace("__", "."): value for name, value in self.settings.items()})
        if differences(plan.conditions, now):
            return program.Ended(attached=True, events=[Differs(conditions=now)])
        started = Started(pid=1, world_size=1, device="cpu")
        blocks = [Block(arm=name, round=0, steps=9, seconds=1.0) for name in (BASE, INPUT)]
        return program.Ended(attached=True, events=[started, *blocks, Over(steps=1, seconds=1.0)])


@pytest.mark.parametrize(
    ("runs", "chosen", "said"),
    [
        ({"old": 4, "new": 0}, "new", "advice of new (train.py, "),
        ({"old": 0, "new": 4}, "old", "it was made with other settings: num_workers was 4 and is 0 now"),
        ({"old": 2, "new": 4}, "gpuprof-try/train-1", "no run with the settings of this command is here: profiling"),
        ({}, "gpuprof-try/train-1", "no run of this command is here: profiling its first 12 s"),
    ],
)
def test_the_advice_is_that_of_a_run_with_the_settings_of_now(
    runs: Mapping[str, int],
    chosen: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = Programs(loader__num_workers=0)
    monkeypatch.setattr(program, "run", programs)
    for time_s, (name, workers) in enumerate(runs.items()):
        report = saved(tmp_path / name, loader__num_workers=workers) / "report.json"
        os.utime(report, (time_s, time_s))
    assert main(["try", "--", PYTHON, "train.py"]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert f"gpuprof: advice of {chosen} (train.py, " in err
    assert (tmp_path / chosen / "try.json").is_file()
    assert len(list(tmp_path.rglob("try.json"))) == 1
    assert len(programs.plans) <= 3, "one start to see that settings differ, one for the profile, one for the trial"


def test_a_named_run_with_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(program, "run", Programs(loader__num_workers=0))
    saved(tmp_path / "run", loader__num_workers=4)
    err = refused("try", "run", "--", PYTHON, "train.py")
    assert err.endswith("was made with other settings: num_workers was 4 and is 0 now. Name another run, or none\n")
    assert list(tmp_path.rglob("try.json")) == []


def test_a_profile_without_steps_is_no_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    def run(words: Sequence[str], plan: Plan, folder: Path, **_: object) -> program.Ended:
        run_of(Path(plan.profile_into), "train.py")
        return program.Ended(attached=True, events=[Over(steps=0, seconds=1.0)])

    monkeypatch.setattr(program, "run", run)
    assert "trained nothing: Trainer.fit was not called, or had no batch" in refused("try", "--", PYTHON, "train.py")
    assert list(tmp_path.iterdir()) == []


def test_each_profile_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "run", Programs())
    for words in (["train.py", "1"], ["train.py", "2"]):
        assert main(["try", "--", PYTHON, *words]) == 0
    assert sorted(path.parent.name for path in tmp_path.rglob("try.json")) == ["train-1", "train-2"]


def test_the_page_of_a_profile_names_its_own_folder_though_the_trial_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs()

    def run(words: Sequence[str], plan: Plan, folder: Path, **_: object) -> program.Ended:
        if not plan.profile_into:
            return program.Ended(attached=True, code=1)
        ended = programs(words, plan, folder)
        made = Path(plan.profile_into)
        html.write(json_report.read(made / "report.json"), made / html.FILE_NAME)
        return ended

    monkeypatch.setattr(program, "run", run)
    assert main(["try", "--", PYTHON, "train.py"]) == 2
    page = (tmp_path / try_run.OWN_FOLDER / "train-1" / html.FILE_NAME).read_text()
    assert f"gpuprof compare {tmp_path / try_run.OWN_FOLDER / 'train-1'} " in page
    assert "/gpuprof-try-" not in page


@pytest.mark.parametrize(("how", "code"), [(None, 2), (KeyboardInterrupt, 130)])
def test_a_profile_that_does_not_come_to_its_end_leaves_what_others_made_and_nothing_else(
    how: type[BaseException] | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: Sequence[str], plan: Plan, folder: Path, **_: object) -> program.Ended:
        run_of(Path(plan.profile_into), "train.py")
        run_of(tmp_path / try_run.OWN_FOLDER / "train-1", "train.py")  # by another trial, meanwhile
        if how is not None:
            raise how
        return program.Ended(attached=True)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(program, "run", run)
    assert main(["try", "--", PYTHON, "train.py"]) == code
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [
        "gpuprof-try/train-1/rank0.jsonl"
    ]
    assert [path.name for path in tmp_path.iterdir()] == [try_run.OWN_FOLDER]


def test_a_program_that_makes_no_trainer_is_shown_with_its_last_lines(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    err = refused("try", "--arm", "num_workers=2", "--", PYTHON, "-c", "print('last words'); raise SystemExit(5)")
    assert "ended with exit code 5 before it made a Trainer; its last lines:\nlast words\n" in err
    assert "is installed for" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_in_another_python_is_told_which(tmp_path: Path, refused: Callable[..., str]) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    err = refused("try", "--arm", "num_workers=2", "--", other, "train.py")
    assert f"python3 is {other}; gpuprof is installed for {sys.executable}" in err


@pytest.mark.parametrize(
    ("words", "names", "arguments", "shown"),
    [
        ("python src/train.py --lr 1", "train.py", "--lr 1", "python src/train.py --lr 1"),
        ("python -m examples.digits fit", "digits.py digits/__main__.py", "fit", "python -m examples.digits fit"),
        ("python a/b/__main__.py fit", "b/__main__.py", "fit", "python a/b/__main__.py fit"),
        ("torchrun --nproc_per_node 2 train.py", "train.py", "", "torchrun --nproc_per_node 2 train.py"),
        ("python -m torch.distributed.run train.py a", "train.py", "a", "python -m *** train.py ***"),
        ("python train.py -m resnet50", "train.py", "-m resnet50", "python train.py -m ***"),
        ("python bin/train -m resnet50", "train", "-m resnet50", "python bin/train -m ***"),
        ("my-trainer -m resnet50", "my-trainer", "-m resnet50", "my-trainer -m ***"),
        (
            "/bin/python3.11 -u -X dev -m a.b -m c",
            "b.py b/__main__.py",
            "-m c",
            "/bin/python3.11 -u -X *** -m a.b -m ***",
        ),
        ("torchrun --standalone -m a.b fit", "b.py b/__main__.py", "fit", "torchrun --standalone -m a.b fit"),
        ("nice python3 -m torch.distributed.run -m a.b", "b.py b/__main__.py", "", "nice *** -m *** -m a.b"),
        ("python -c print() x", "python", "-c print() x", "python -c *** ***"),
        ("my-trainer --token=x", "my-trainer", "--token=x", "my-trainer --token=***"),
        ("env KEY=x python train.py", "train.py", "", "env *** *** train.py"),
    ],
)
def test_a_command_is_known_by_its_script_and_arguments(words: str, names: str, arguments: str, shown: str) -> None:
    assert TriedCommand.of(words.split()) == TriedCommand(
        scripts=frozenset(names.split()),
        arguments_hash=arguments_hash(arguments.split()),
        shown=tuple(shown.split()),
    )


def test_no_secret_of_the_command_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "run", Programs())
    assert main(["try", "--", PYTHON, "train.py", "--wandb_key", "abc123"]) == 0
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"try.json", "report.json", "report.html"} <= {path.name for path in kept}
    assert not [path for path in kept if b"abc123" in path.read_bytes()]
    assert "abc123" not in "".join(capsys.readouterr())


class Terminal(io.StringIO):
    """Of 80 columns."""

    def isatty(self) -> bool:
        return True


def test_the_line_says_what_is_tried_and_the_time_left_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with try_run._Shown(30) as shown:
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
    with try_run._Shown(30) as shown:
        shown.event(Trying(arm="num_workers=2", round=3, elapsed_s=12.4))
    assert stream.getvalue() == ""
