"""Processes in turn, with a program that starts at once and says what a step takes."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.trial import BASE, Arm, Block, Event, Plan, Skipped, Started, Trial
from lightning_gpuprof.sinks.trial_tables import headline, tried_table
from lightning_gpuprof.trial.arms import asked
from lightning_gpuprof.trial.at_start import needs_process, runtime_part, trainer_arguments, variables
from lightning_gpuprof.trial.processes import compare
from lightning_gpuprof.trial.results import result

PROGRAM = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["GPUPROF_TRIAL"])
alone = json.loads((folder / "plan.json").read_text())["alone"]
size = next((change["arguments"]["batch_size"] for change in alone["changes"] if change["arguments"]), 4)
threads = os.environ.get("THREADS", "unset")
with open(os.environ["SEEN"], "a") as seen:
    print(alone["name"], threads, file=seen)
(folder / "attached").touch()
says = lambda **event: print(json.dumps(event), file=file)
with (folder / "events.jsonl").open("w") as file:
    if threads == "refused" or (threads == "unset" and os.environ.get("BASE") == "refused"):
        says(type="skipped", arm="", why="it is refused")
        raise SystemExit
    samples = None if size == 9 else size
    says(type="started", pid=os.getpid(), world_size=1, device="cpu", samples_per_step=samples)
    before = open(os.environ["SEEN"]).read().count("noisy noisy") if threads == "noisy" else 0
    if threads == "memory" or before > 5:
        says(type="skipped", arm="", why="OutOfMemoryError: 3 GB", failed=True)
        raise SystemExit(1)
    if threads == "fails":
        print("line 1")
        raise RuntimeError("planted")
    if threads == "dies":
        file.flush()
        os.abort()
    step_s = {"fast": 0.01, "noisy": 0.01 * (1 + before % 3)}.get(threads, 0.02) * (1 if size == 4 else 1.5)
    says(type="block", arm="as it is", round=0, steps=100, seconds=100 * step_s)
    says(type="over", steps=100, seconds=1.0)
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What the processes were started with, one after the other; their folders are gone in the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return lambda: (tmp_path / "seen").read_text().splitlines()


def tried(
    tmp_path: Path, *settings: str, seconds: float = 0.0, environ: Mapping[str, str] | None = None
) -> tuple[list[Event], Trial]:
    """Arms held against the program as it is."""
    events: list[Event] = []
    said: list[str] = []
    compare(
        [sys.executable, "-S", "-c", PROGRAM],
        asked(settings),
        seconds,
        on_event=events.append,
        say=said.append,
        environ={"SEEN": str(tmp_path / "seen"), **(environ or {})},
    )
    assert "round 1 (whole processes): as it is" in said[0] + said[1] + said[-1]
    return events, result(Plan(arms=asked(settings), seconds=seconds), events)


def test_each_round_starts_the_program_once_with_each_arm(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    _, trial = tried(tmp_path, "env:THREADS=fast,slow")
    assert sorted(seen()[:3]) == sorted(seen()[3:]) == ["THREADS=fast fast", "THREADS=slow slow", f"{BASE} unset"]
    found = {row.arm.name: (row.outcome, row.rounds, row.steps) for row in trial.tried}
    assert found == {"THREADS=fast": ("faster", 2, 200), "THREADS=slow": ("no gain", 2, 200)}
    assert trial.tried[0].speedup == pytest.approx(2.0)
    assert trial.base_step_ms == pytest.approx(20.0)


def test_rounds_go_on_while_nothing_is_decided_and_there_is_time(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    events, _ = tried(tmp_path, "env:THREADS=noisy", seconds=1000)  # it fails in its sixth process
    assert len(seen()) == 12
    assert [event.round for event in events if isinstance(event, Block) and event.arm == BASE] == [0, 1, 2, 3, 4, 5]
    assert len({tuple(seen()[i : i + 2]) for i in range(0, 12, 2)}) == 2, "the order is drawn"


def test_a_variable_can_be_left_out(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    _, trial = tried(tmp_path, "env:THREADS=", environ={"THREADS": "fast"})
    assert set(seen()) == {f"{BASE} fast", "THREADS unset unset"}
    assert trial.tried[0].outcome == "slower"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("memory", "OutOfMemoryError: 3 GB"),
        ("fails", "the program ended with exit code 1: RuntimeError: planted"),
        ("dies", "the program was ended by SIGABRT"),
    ],
)
def test_an_arm_that_fails_leaves_the_others(
    tmp_path: Path, seen: Callable[[], list[str]], value: str, why: str
) -> None:
    _, trial = tried(tmp_path, f"env:THREADS={value},fast")
    rows = {row.arm.name: row for row in trial.tried}
    assert (rows[f"THREADS={value}"].outcome, rows[f"THREADS={value}"].why) == ("failed", why)
    assert rows["THREADS=fast"].outcome == "faster"
    assert [line.endswith(value) for line in seen()].count(True) == 1, "it is not started again"
    assert list(tmp_path.glob("gpuprof-try-*")) == []


def test_an_arm_that_is_refused_was_not_tried(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    _, trial = tried(tmp_path, "env:THREADS=refused,fast")
    assert [row.arm.name for row in trial.tried] == ["THREADS=fast"]
    assert [(one.advice, one.why) for one in trial.not_tried] == [("THREADS=refused", "it is refused")]
    assert seen()


def test_a_program_that_cannot_be_tried_as_it_is_says_why(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    with pytest.raises(TrialError, match=r"^it is refused$"):
        tried(tmp_path, "env:THREADS=fast", environ={"BASE": "refused"})
    assert len(seen()) <= 2


def test_another_batch_size_is_judged_per_sample(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    events, trial = tried(tmp_path, "batch_size=8")
    [row] = trial.tried
    assert row.speedup == pytest.approx(8 / 4 / 1.5), "twice the samples in a step that is 1.5 times as long"
    assert (row.per_sample, row.changes_numbers) == (True, True)
    assert row.step_ms == pytest.approx(15.0)
    assert headline(trial) == "batch_size=8: 1.33x faster, 20 -> 15.0 ms for as many samples."
    assert "batch_size=8 (per sample)" in [cell.text for line in tried_table(trial).rows for cell in line]
    blocks = [event for event in events if isinstance(event, Block)]
    assert {block.arm: block.per_sample for block in blocks} == {BASE: False, "batch_size=8": True}
    assert [event.samples_per_step for event in events if isinstance(event, Started)] == [4]
    assert seen()


def test_where_the_samples_are_not_known_nothing_is_judged(tmp_path: Path, seen: Callable[[], list[str]]) -> None:
    events, trial = tried(tmp_path, "batch_size=9")
    assert [event.why for event in events if isinstance(event, Skipped)] == [
        "the number of samples per step is not known"
    ]
    assert trial.tried == ()
    assert seen()


def of(*changes: Change) -> Arm:
    """An arm with them."""
    return Arm(name="it", changes=changes)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (Change(add=("export A=1",)), {"A": "1"}),
        (Change(add=("PYTORCH_CUDA_ALLOC_CONF=a:1,b:2",)), {"PYTORCH_CUDA_ALLOC_CONF": "a:1,b:2"}),
        (Change(remove=("export A=1",), add=("export A=2",)), {"A": "2"}),
        (Change(remove=("CUDA_LAUNCH_BLOCKING=1",)), {"CUDA_LAUNCH_BLOCKING": None}),
        (Change(add=("torch.backends.cudnn.allow_tf32 = True", "x=1")), {}),
    ],
)
def test_variables_are_read_from_lines_of_a_shell(change: Change, found: dict[str, str | None]) -> None:
    assert variables(of(change)) == found
    assert needs_process(of(change)) is bool(found)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (Change(call="Trainer", arguments={"strategy": "ddp", "benchmark": True}), ["strategy"]),
        (Change(call="Trainer", arguments={"precision": "bf16-true"}), ["precision"]),
        (Change(call="Trainer", arguments={"precision": "bf16-mixed"}), []),
        (Change(call="Trainer", arguments={"precision": "32-true"}), []),
        (Change(add=("Trainer(..., strategy=DDPStrategy(gradient_as_bucket_view=True))",)), ["strategy"]),
        (Change(add=("Trainer(..., accumulate_grad_batches=4)",)), ["accumulate_grad_batches"]),
        (Change(add=("Trainer(..., reload_dataloaders_every_n_epochs=0)",)), []),
        (Change(add=("model = torch.compile(model)",)), []),
    ],
)
def test_arguments_of_the_trainer_that_are_read_when_it_is_made(change: Change, names: list[str]) -> None:
    assert list(trainer_arguments(of(change))) == names
    assert needs_process(of(change)) is bool(names)


def test_the_rest_of_an_arm_is_switched_on_in_the_process() -> None:
    arm = of(
        Change(
            call="DataLoader",
            arguments={"batch_size": 8},
            remove=("Trainer(..., accumulate_grad_batches=1)",),
            add=("Trainer(..., accumulate_grad_batches=2)", "gc.freeze()"),
        ),
        Change(call="Trainer", arguments={"devices": 2, "benchmark": True}, add=("export A=1",)),
    )
    assert runtime_part(arm).changes == (
        Change(call="DataLoader", arguments={"batch_size": 8}, add=("gc.freeze()",)),
        Change(call="Trainer", arguments={"benchmark": True}),
    )


def test_the_batch_size_of_the_validation_is_not_that_of_the_training() -> None:
    assert not needs_process(of(Change(call="DataLoader", arguments={"batch_size": 8}, inside="val_dataloader")))
