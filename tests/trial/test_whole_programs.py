"""Real trials of short programs: the planted cause is found, and nothing is left, however the program ends."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.trial import INPUT, Arm, Block, Event, Plan, Started, Trial, Tried
from lightning_gpuprof.trial import processes, program
from lightning_gpuprof.trial.arms import asked
from lightning_gpuprof.trial.results import result

SCRIPT = Path(__file__).parents[1] / "support" / "tried_program.py"
SECONDS = 4.0
"""Of a trial in which nothing has to be known well: each arm is tried some times in it, on a busy machine, too."""
GONE_S = 20.0
"""Within which a process that was killed has gone: the kernel ends it later than it is told to."""
ANOMALY = "detect_anomaly=True"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which a user is, and in which nothing is written; no process of the trial outlives it."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("GPUPROF_TEST_TRIAL", str(tmp_path))
    yield folder
    limit = time.monotonic() + GONE_S
    while left(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert left(tmp_path) == []
    assert [path.name for path in tmp_path.glob("gpuprof-try-*")] == []


def left(folder: Path) -> list[str]:
    """Processes that were started with a folder in their environment, and shared memory of theirs."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("GPUPROF_TEST_TRIAL") == str(folder):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def tried(
    kind: str,
    *settings: str,
    seconds: float = SECONDS,
    program_words: Sequence[str] = (str(SCRIPT),),
    search: Sequence[Arm] = (),
    patience_s: float = 180.0,
) -> tuple[program.Ended, Trial]:
    """A trial of the program, in a folder beside the user's."""
    folder = Path.cwd().parent / "trial"
    folder.mkdir()
    plan = Plan(arms=(*asked(settings), *search), seconds=seconds, patience_s=patience_s, loader=bool(search))
    events: list[Event] = []
    words = [sys.executable, *program_words, kind]
    ended = program.run(words, plan, folder, on_event=events.append, environ=os.environ)
    assert events == ended.events
    for event in events:
        if isinstance(event, Started):
            assert list(Path("/dev/shm").glob(f"torch_{event.pid}_*")) == []
    return ended, result(plan, ended.events, ended_in="" if ended.is_over else ended.trying)


def row(trial: Trial, name: str) -> Tried:
    """Of an arm."""
    return next(one for one in trial.tried if one.arm.name == name)


def speedup(trial: Trial, name: str) -> float:
    """Of an arm that was measured."""
    found = row(trial, name).speedup
    assert found is not None, trial
    return found


def test_the_planted_callback_is_found_and_nothing_is_written(user: Path) -> None:
    ended, trial = tried("callback", "without=Slow", seconds=3)
    assert ended.is_over, ended.tail
    assert speedup(trial, "without=Slow") > 1.2
    assert list(user.iterdir()) == []


@pytest.mark.slow
def test_the_planted_loader_is_found(user: Path) -> None:
    _, trial = tried("loader", "num_workers=2", seconds=8)
    assert speedup(trial, "num_workers=2") > 1.2
    assert speedup(trial, INPUT) > 3
    assert list(user.iterdir()) == []


@pytest.mark.slow
def test_the_planted_logging_is_found_and_logs_nothing_here(user: Path) -> None:
    _, trial = tried("logs", "log_every_n_steps=50", "logger=False", seconds=5)
    assert speedup(trial, "log_every_n_steps=50") > 2
    assert speedup(trial, "logger=False") > 2
    assert list(user.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manual+stream", "combined+onecycle+before", "own", "fast", "ends"])
def test_programs_of_all_kinds_are_tried_and_write_nothing(user: Path, kind: str) -> None:
    ended, trial = tried(kind, "foreach=False")
    assert ended.is_over, ended.tail
    assert ended.code == 0
    assert speedup(trial, "foreach=False") > 0
    assert [one.advice for one in trial.not_tried] == (["what WandbLogger costs"] if kind == "own" else [])
    assert [path.name for path in user.iterdir() if path.name not in ("wandb", "lightning_logs")] == []
    assert [path for path in user.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranks", "spawned"])
def test_ranks_change_in_the_same_step(user: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "OVER_LIMIT_S", 120.0)
    ended, trial = tried(kind, "foreach=False")
    assert ended.is_over, ended.tail
    assert speedup(trial, "foreach=False") > 0
    # No exit code is asked for: once it is over, ranks leave in any order, and gloo may abort the last one.
    assert "KeyboardInterrupt" not in ended.tail, "it ends by itself"
    assert [path for path in user.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most", "words"),
    [("ranks", 1, "2 ranks would start"), ("crowded", 1, "workers need about")],
)
def test_a_search_takes_no_more_than_is_there(
    kind: str, most: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "OVER_LIMIT_S", 120.0)
    counts = 0, 1, 2 * (os.cpu_count() or 1)
    arms = [arm for count in counts for arm in asked([f"num_workers={count}"])]
    ended, trial = tried(kind, search=arms, seconds=3)
    assert ended.is_over, program.death_notice(ended, [kind])
    assert {one.arm.name for one in trial.tried if not one.arm.ceiling} <= {f"num_workers={n}" for n in range(most + 1)}
    [left_out] = [one.why for one in trial.not_tried if one.advice == f"num_workers={counts[-1]}"]
    assert words in left_out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchrun", "module", "pytorch_lightning"])
def test_programs_are_tried_however_they_are_started(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other.py"
    other.write_text(SCRIPT.read_text().replace("from lightning.pytorch", "from pytorch_lightning"))
    words = {
        "torchrun": ["-m", "torch.distributed.run", "--nproc_per_node", "2", str(SCRIPT)],
        "module": ["-m", SCRIPT.stem],
        "pytorch_lightning": [str(other)],
    }
    kind = "ranks" if name == "torchrun" else "logs"
    ended, trial = tried(kind, "foreach=False", "precision=bf16-mixed", program_words=words[name])
    assert ended.is_over, ended.tail
    assert speedup(trial, "foreach=False") > 0


@pytest.mark.slow
def test_compilation_is_no_part_of_a_step(tmp_path: Path) -> None:
    ended, _ = tried("partial", "compile=True", seconds=8)  # the last batch of an epoch has another shape
    assert ended.is_over, ended.tail
    blocks = [line.split(maxsplit=2) for line in (tmp_path / "blocks").read_text().splitlines()]
    assert "compile=True" in {arm for _, _, arm in blocks}
    assert {inside for inside, _, _ in blocks} == {"0"}, "compiling takes seconds"
    assert int(blocks[-1][1]) >= 2, "there are two shapes"


@pytest.mark.slow
def test_an_error_ends_its_arm_alone() -> None:
    ended, trial = tried("raises", ANOMALY, "foreach=False")
    assert ended.is_over
    assert row(trial, ANOMALY).outcome == "failed"
    assert row(trial, ANOMALY).why == "RuntimeError: planted in the arm"
    assert speedup(trial, "foreach=False") > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["worker", "late worker"])
def test_a_killed_worker_ends_the_arm_that_it_belongs_to(kind: str) -> None:
    ended, trial = tried(kind, "num_workers=1", "foreach=False")
    assert ended.is_over, ended.tail
    assert row(trial, "num_workers=1").outcome == "failed"
    assert row(trial, "num_workers=1").why
    assert speedup(trial, "foreach=False") > 0


@pytest.mark.slow
def test_a_hang_has_its_time_and_says_where_it_stands() -> None:
    ended, trial = tried("hangs", ANOMALY, patience_s=20.0)
    assert (ended.is_over, ended.is_late, ended.trying) == (False, True, ANOMALY)
    assert row(trial, ANOMALY).outcome == "failed"
    notice = program.death_notice(ended, ["train"])
    assert notice.startswith("'train' hung in 'detect_anomaly=True'; its main thread was at (innermost frame first):\n")
    assert "in on_train_batch_start" in notice.splitlines()[1]


def command(*words: str) -> list[str]:
    """``gpuprof try``."""
    return [sys.executable, "-m", "lightning_gpuprof", "try", *words]


@pytest.mark.slow
def test_without_the_arm_in_which_it_died_the_program_runs_again() -> None:
    words = ["--seconds", "5", "--arm", ANOMALY, "--arm", "foreach=False", "--json", "--"]
    done = subprocess.run([*command(*words), sys.executable, str(SCRIPT), "exits"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"why": "the program ended while trying it"' in done.stdout
    assert '"name": "foreach=False"' in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "arm"),
    [
        (signal.SIGINT, "num_workers=2"),
        (signal.SIGTERM, "num_workers=2"),
        (signal.SIGHUP, "num_workers=2"),
        (signal.SIGINT, "env:OMP_NUM_THREADS=1"),
    ],
)
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals, arm: str, user: Path) -> None:
    process = subprocess.Popen(
        [*command("--seconds", "60", "--arm", arm, "--"), sys.executable, str(SCRIPT), "loader"],
        preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL),  # nohup has them ignored
    )
    wait_for(lambda: any(b'"trying"' in path.read_bytes() for path in tmp_path.glob("gpuprof-try-*/events.jsonl")))
    process.send_signal(number)
    assert process.wait(60) == 130
    assert list(user.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loader", "spawned"])
def test_the_program_ends_when_gpuprof_is_killed(tmp_path: Path, kind: str) -> None:
    process = subprocess.Popen(
        [*command("--seconds", "600", "--arm", "num_workers=2", "--"), sys.executable, str(SCRIPT), kind]
    )
    wait_for(lambda: any(b'"block"' in path.read_bytes() for path in tmp_path.glob("gpuprof-try-*/events.jsonl")))
    process.kill()
    process.wait()
    wait_for(lambda: not left(tmp_path) and not list(tmp_path.glob("gpuprof-try-*")))


def wait_for(said: Callable[[], bool]) -> None:
    """Until it is true; the test fails if that takes minutes."""
    end = time.monotonic() + 120
    while not said():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
def test_what_is_read_at_the_start_is_tried_in_processes_of_its_own(
    user: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PROCESS_S", 1.0)
    settings = ["batch_size=8,16", "strategy=ddp,nonsense"]
    arms = [word for setting in settings for word in ("--arm", setting)]
    assert main(["try", "--seconds", "5", "--json", *arms, "--", sys.executable, str(SCRIPT), "memory"]) == 0
    trial = msgspec.json.decode(capsys.readouterr().out, type=Trial)
    for name, per_sample in (("batch_size=8", True), ("strategy=ddp", False)):
        assert speedup(trial, name) > 0
        assert row(trial, name).per_sample is per_sample
    assert speedup(trial, "batch_size=8") > 1.2, "hardly anything in a step depends on its samples"
    assert row(trial, "batch_size=16").outcome == row(trial, "strategy=nonsense").outcome == "failed"
    assert "can't allocate memory" in row(trial, "batch_size=16").why
    assert "invalid strategy name" in row(trial, "strategy=nonsense").why
    assert [path for path in user.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fails", "ended with exit code 1 before it made a Trainer; its last lines"),
        ("nothing", "trained nothing: Trainer.fit was not called"),
        ("profiled", "runs under SimpleProfiler"),
        ("exits early", "ended by itself in its warm-up: nothing could be measured"),
        ("gives up", "ended with exit code 1 in its warm-up: nothing could be measured; its last lines"),
    ],
)
def test_a_program_that_cannot_be_tried_says_why(kind: str, words: str) -> None:
    ended, _ = tried(kind)
    assert words in (
        program.failure_reason(ended, ["python", "train.py"]) or program.death_notice(ended, ["python", "train.py"])
    )
    assert not any(isinstance(event, Block) for event in ended.events)


def test_a_program_without_lightning_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    words = [sys.executable, "-c", "print('\\x1b[31mhello\\x1b[0m\\r')"]
    ended = program.run(words, Plan(arms=(), seconds=5), folder, on_event=print, environ=os.environ)
    why = program.failure_reason(ended, ["python"])
    assert why.startswith("'python' made no Trainer. Name the command that trains")
    assert why.endswith("(its last line: hello)")
