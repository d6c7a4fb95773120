"""A clock that passes no edge: when that is written down, how often, and with which place."""

import io
import pdb
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed import distributed_c10d

from lightning_gpuprof.capture import standstill
from lightning_gpuprof.capture.standstill import Watchdog
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.config import HostConfig
from lightning_gpuprof.model.journal import Standstill
from lightning_gpuprof.model.phases import Phase

S = 10**9


class Watched:
    """A clock whose time is set by hand, and what the watchdog posts."""

    def __init__(self, stacks: Path) -> None:
        self.now_ns = 0
        self.found: list[Standstill] = []
        self.clock = StepClock(now=lambda: self.now_ns)
        self.forward = self.clock.slot("training_step", "forward")
        thread_id = threading.get_ident()
        self._dog = Watchdog(self.clock, stacks, self.found.append, thread_id=thread_id, now=lambda: self.now_ns)

    def looked_at(self, second: float, steps: tuple[ClosedStep, ...] = (), *, asleep: bool = False) -> list[int]:
        """How long each standstill that was posted so far had lasted, in s; it looks on the way, unless asleep."""
        while not asleep and second * S - self.now_ns > 5 * S:
            self._looked_at(self.now_ns + 5 * S, ())
        self._looked_at(round(second * S), steps)
        return [(one.t_ns - one.since_ns) // S for one in self.found]

    def _looked_at(self, now_ns: int, steps: tuple[ClosedStep, ...]) -> None:
        self.now_ns = now_ns
        looks = threading.Thread(target=self._dog.look, args=(steps,))
        looks.start()
        looks.join()
        for thread in threading.enumerate():
            if thread.name == "gpuprof-stacks":
                thread.join()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "stacks.txt")


def step(seconds: float) -> ClosedStep:
    return ClosedStep(0, 0, round(seconds * S), 0, 0, 0, [], None, -1)


def test_it_is_recorded_every_5_s_while_it_lasts_and_its_stacks_when_it_has_doubled(
    watched: Watched, tmp_path: Path
) -> None:
    least_s = HostConfig.hang_s
    assert watched.looked_at(least_s - 1) == []
    assert watched.looked_at(least_s + 1) == [16]
    assert watched.looked_at(least_s + 5) == [16]
    assert watched.looked_at(least_s + 6) == [16, 21]
    assert watched.looked_at(51) == [16, 21, 26, 31, 36, 41, 46, 51]
    assert (tmp_path / "stacks.txt").read_text().count("no progress") == 2


def test_an_edge_begins_anew(watched: Watched) -> None:
    watched.looked_at(14)
    with watched.clock.context(watched.forward):
        assert watched.looked_at(16) == []
        assert watched.looked_at(30) == [16]
    assert watched.found[0].slot == watched.forward
    assert watched.looked_at(31) == [16]


def test_steps_of_a_minute_are_not_called_a_standstill(watched: Watched) -> None:
    assert watched.looked_at(1, (step(60),) * 20) == []
    assert watched.looked_at(19 * 60) == []
    assert watched.looked_at(20 * 60 + 1) == [1200]


@pytest.mark.parametrize("second", [8, 3600])
def test_a_process_that_was_suspended_does_not_hang_when_it_goes_on(watched: Watched, second: int) -> None:
    watched.looked_at(2)
    with watched.clock.context(watched.forward):
        assert watched.looked_at(second, asleep=True) == []
        assert watched.looked_at(second + 2) == []
        assert watched.looked_at(2 * second, asleep=True) == []
        assert watched.looked_at(2 * second + 12) == []
        assert watched.looked_at(2 * second + 13) == [15]
        assert watched.looked_at(3 * second + 13, asleep=True) == [15, 15]  # a hang stays one


@pytest.mark.parametrize(("action", "phase"), [("validation_step", "forward"), ("save_checkpoint", "checkpoint")])
def test_a_long_checkpoint_or_batch_of_a_validation_is_busy_for_ten_times_as_long(
    watched: Watched, tmp_path: Path, action: str, phase: Phase
) -> None:
    with watched.clock.context(watched.clock.slot(action, phase, "validation")):
        watched.looked_at(149)
        assert {one.busy for one in watched.found} == {"busy"}
        assert not (tmp_path / "stacks.txt").exists()
        watched.looked_at(155)
    assert watched.found[-1].busy == ""


def test_what_is_compiled_does_not_hang(watched: Watched, tmp_path: Path) -> None:
    def slow_backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        watched.looked_at(600)
        return graph.forward

    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    torch.compile(double, backend=slow_backend)(torch.ones(2))
    assert {one.busy for one in watched.found} == {"compiling"}
    assert not (tmp_path / "stacks.txt").exists()


def test_who_stands_in_a_debugger_does_not_hang(watched: Watched) -> None:
    class Person(io.StringIO):
        def readline(self, *_: object) -> str:
            watched.looked_at(600)
            return "continue\n"

    pdb.Pdb(stdin=Person(), stdout=io.StringIO(), nosigint=True).set_trace()
    assert {one.busy for one in watched.found} == {"in a debugger"}


def test_the_place_is_the_line_of_the_user_and_the_file_has_all_threads(watched: Watched, tmp_path: Path) -> None:
    def never_returns(look: Callable[[float], object]) -> None:
        look(15)

    never_returns(watched.looked_at)
    assert watched.found[0].place.endswith("looked_at")
    written = (tmp_path / "stacks.txt").read_text()
    assert "no progress for 15 s" in written
    assert "never_returns" in written.split("Current thread")[0]
    assert "_dump" in written.split("Current thread")[1]


def test_a_folder_that_is_gone_harms_nothing(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "gone" / "stacks.txt")
    assert watched.looked_at(15) == [15]


def test_collectives_are_where_they_are_looked_for() -> None:
    assert Path(distributed_c10d.__file__).parts[-3:] == standstill._COLLECTIVES
