"""Nothing of ours may harm a run: a fault in any line of ours, and the run is bit by bit that without us.

A spread of the lines here; all of them in the tests marked slow.
"""

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import torch
from sabotage import ERRORS, Place, Saboteur, harm_of, places_of, plain_outcome
from sabotage_runs import SCENARIOS, Model, Scenario, equipped, play, run_fit, torch_profiler_works

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.capture import journal_writer

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool traces already"),
]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("fit", 10),
        ("own profiler", 3),
        ("validate", 3),
        ("windows", 2),
        ("out of memory", 2),
        ("written beside", 2),
    ],
)
def test_a_fault_in_a_line_of_ours_leaves_the_run_as_it_is_without_us(name: str, most: int) -> None:
    places = places_of(name)
    assert len(places) > most // 2
    stride = max(1, len(places) // most)
    for number, (place, count) in enumerate(places[stride // 2 :: stride]):
        assert harm_of(name, place, count, ERRORS[number % len(ERRORS)]) == []
    assert torch_profiler_works()


DIED = "DataLoader worker (pid 4242) is killed by signal: Killed. "
"""Torch's handler of SIGCHLD raises it wherever the main thread is."""
ENDS = ("._end", "._make_report", "Fence.deferring")
"""Here a few lines are around all fences: the run ends as it should, but its report may have to be made by hand."""
UNHEARD = ("Probe.forget",)
"""A callback of a weak reference, whose exceptions the interpreter itself discards."""
LEFT_EARLY = "Please call `iter(combined_loader)` first"
"""What Lightning itself makes of an error while an iterator is made: it wants to shut down what is not there yet."""


def cost_of_a_dead_worker(name: str, place: Place, count: int) -> list[str]:
    """A worker dies while the main thread is at a place of ours: what is not as it has to be."""
    saboteur = Saboteur(place, RuntimeError(DIED), (count + 1) // 2)
    with tempfile.TemporaryDirectory() as folder:
        outcome, _ = play(SCENARIOS[name], Path(folder), with_us=True, trace=saboteur)
        begun = any(event == "on_train_start" for event, *_ in outcome.hooks)
        reports = list(Path(folder).rglob("report.json"))
    if not saboteur.strikes or any(function.endswith(UNHEARD) for function in saboteur.inside):
        return []
    found = [] if DIED.strip() in outcome.error or LEFT_EARLY in outcome.error else [f"swallowed: {outcome.error}"]
    found += [state for state in (outcome.trainer_as_found, outcome.process_as_found) if state]
    found += [] if reports or not begun or place.function.endswith(ENDS) else ["no report"]
    return [f"{place}: {text}" for text in found]


def test_a_worker_that_dies_while_a_line_of_ours_is_at_work_ends_the_run() -> None:
    places = places_of("fit")
    stride = max(1, len(places) // 6)
    assert [text for place, count in places[::stride] for text in cost_of_a_dead_worker("fit", place, count)] == []


PARTS = 16
"""All lines are in one of so many parts; CI takes one a commit, in turn, `make sabotage` all."""


def _in_part(part: int, places: list[tuple[Place, int]]) -> list[tuple[Place, int]]:
    """Those of one part. What a line says decides, so that an edit elsewhere does not move it."""
    return [(place, count) for place, count in places if crc32(place.code.encode()) % PARTS == part]


every_part = pytest.mark.parametrize("part", [pytest.param(part, id=f"part{part}of{PARTS}") for part in range(PARTS)])


@pytest.mark.slow
@every_part
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_in_every_line_of_ours_leaves_the_run_as_it_is_without_us(name: str, part: int) -> None:
    places = _in_part(part, places_of(name))
    assert [text for place, count in places for text in harm_of(name, place, count)] == []
    assert torch_profiler_works()


@pytest.mark.slow
@every_part
@pytest.mark.parametrize("name", ["fit", "validate"])
def test_a_worker_that_dies_while_any_line_of_ours_is_at_work_ends_the_run(name: str, part: int) -> None:
    places = _in_part(part, places_of(name))
    assert [text for place, count in places for text in cost_of_a_dead_worker(name, place, count)] == []


@pytest.mark.slow
@every_part
@pytest.mark.parametrize("name", ["fit", "windows", "written beside"])
def test_a_fault_in_a_thread_of_ours_leaves_the_run_as_it_is_without_us(
    name: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "DISK_TIMEOUT_S", 5.0)  # what a thread that died was to write never comes
    places = _in_part(part, places_of(name, training=False))
    found = [text for place, count in places for text in harm_of(name, place, count)]
    assert [text for text in found if "nobody was told" not in text] == []


HOT = {
    "an edge": ("capture/step_clock.py", "Timed.__enter__"),
    "a step's beginning": ("capture/step_clock.py", "begin_step"),
    "a place without a name": ("capture/profiler_tap.py", "ProfilerTap.place"),
    "a region of the user's": ("capture/annotated_regions.py", "annotate.__enter__"),
    "what a boundary does": ("capture/step_boundary.py", "StepBoundary.at_boundary"),
}


def hot_place(what: str) -> Place:
    file, function = HOT[what]
    return next(p for p, _ in places_of("fit") if p.file == file and p.function.endswith(function))


@pytest.mark.parametrize("what", HOT)
def test_what_fails_again_and_again_is_told_once_and_not_tried_for_ever(what: str, tmp_path: Path) -> None:
    saboteur = Saboteur(hot_place(what), RuntimeError("sabotage"), again=True)
    outcome, told = play(SCENARIOS["fit"], tmp_path, with_us=True, trace=saboteur)
    assert outcome.differences(plain_outcome("fit")) == []
    assert saboteur.strikes
    assert len([text for text in told if "sabotage" in text]) == 1
    if what in ("an edge", "a step's beginning", "what a boundary does"):
        assert saboteur.strikes == 1  # off after the first; each of the 20 steps would strike again


@pytest.mark.parametrize("what", HOT)
def test_ctrl_c_in_a_line_of_ours_comes_through(what: str, tmp_path: Path) -> None:
    class Pressed(Model):
        pressed = False

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
            raise KeyboardInterrupt

    def press(model: Model) -> None:
        model.__class__ = Pressed

    scenario = SCENARIOS["fit"]
    without, _ = play(scenario, tmp_path / "a", with_us=False, change=press)
    saboteur = Saboteur(hot_place(what), KeyboardInterrupt(), reach=3)
    with_us, _ = play(scenario, tmp_path / "b", with_us=True, trace=saboteur)
    assert saboteur.strikes == 1
    assert with_us.error == without.error != ""
    assert with_us.hooks[-1] == without.hooks[-1] or with_us.hooks[-1][0] == "on_exception"
    assert (with_us.trainer_as_found, with_us.process_as_found) == ("", "")


def everything(folder: Path) -> Any:
    trace = TraceConfig(active=2, warmup=1, on_slow_step=True, every_n_steps=6, with_stack=True, record_shapes=True)
    return equipped(folder, windows=[(2, 3)], trace=trace, reports=["tensorboard", "json", "html"])


def compile_net(model: Model) -> None:
    model.net = torch.compile(model.net, backend="eager")  # type: ignore[assignment]


VARIANTS: dict[str, tuple[Scenario, Callable[[Model], None]]] = {
    name: (Scenario(name, run, everything, lambda o=options: {"max_epochs": 2, **o}, manual, asks=True), change)
    for name, run, options, manual, change in (
        ("plain", run_fit, {}, False, lambda model: None),
        ("accumulation", run_fit, {"accumulate_grad_batches": 3}, False, lambda model: None),
        ("bf16-mixed", run_fit, {"precision": "bf16-mixed"}, False, lambda model: None),
        ("manual", run_fit, {}, True, lambda model: None),
        ("workers", functools.partial(run_fit, workers=2), {}, False, lambda model: None),
        ("compiled", run_fit, {}, False, compile_net),
    )
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_with_everything_on_is_bit_by_bit_that_without_us(name: str, tmp_path: Path) -> None:
    scenario, change = VARIANTS[name]
    without, _ = play(scenario, tmp_path / "a", with_us=False, change=change)
    with_us, told = play(scenario, tmp_path / "b", with_us=True, change=change)
    assert with_us.differences(without) == []
    assert told == []
    assert len(list((tmp_path / "b" / "gpuprof").glob("*.pt.trace.json.gz"))) >= 2
    assert with_us.metrics


def test_a_run_that_draws_one_more_random_number_is_not_the_same() -> None:
    """What the tests here rest on: a difference would show."""
    with tempfile.TemporaryDirectory() as folder:
        other, _ = play(SCENARIOS["fit"], Path(folder), with_us=False, change=lambda model: torch.rand(1))
    assert {text.split(":")[0] for text in other.differences(plain_outcome("fit"))} >= {"weights", "random_numbers"}
