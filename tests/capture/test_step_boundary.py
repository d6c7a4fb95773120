"""What is done between two steps: in which order, for whom, and when the clock is to call again."""

from collections.abc import Callable
from typing import Any

import pytest

from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.step_boundary import StepBoundary
from lightning_gpuprof.capture.step_clock import NEVER


class Parts:
    """Clock, windows, memory, device, ranges and scalars at once: each call is noted by its part."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tracing = False
        self.is_waiting = False
        self.wake = 50
        self.woken_at: int | None = None
        self.fails = ""

    def listen(self, to: Callable[..., int], at: int) -> None:
        self.woken_at = at

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        self.calls.append("windows")
        return 200

    def part(self, name: str) -> Any:
        return Part(self, name)

    def boundary(self, *names: str, first_batch: int = 0) -> StepBoundary:
        clock: Any = self
        fence = Fence(lambda part, message: self.calls.append(f"report of {part}"))
        return StepBoundary(clock, clock, fence, first_batch=first_batch, **{n: self.part(n) for n in names})


class Part:
    """One of them, by its name."""

    def __init__(self, parts: Parts, name: str) -> None:
        self._parts = parts
        self._name = name

    @property
    def wake(self) -> int:
        return self._parts.wake

    def __getattr__(self, method: str) -> Callable[..., bool]:
        def call(*args: object, **kwargs: object) -> bool:
            self._parts.calls.append(f"{self._name}.{method}")
            if self._parts.fails == f"{self._name}.{method}":
                raise RuntimeError("planted")
            return self._parts.is_waiting

        return call


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_a_step_ends_for_all_before_the_next_one_begins(parts: Parts) -> None:
    boundary = parts.boundary("ranges", "device", "memory", "scalars")
    assert boundary.at_boundary(1, 50, 0) == 0
    assert parts.calls == [
        "memory.end_step",
        "device.end_step",
        "windows",
        "scalars.log_if_due",
        "ranges.begin_step",
        "device.begin_step",
        "memory.begin_step",
    ]


@pytest.mark.parametrize(("batch", "tracing"), [(7, False), (8, True)])
def test_device_spans_leave_out_the_first_step_and_traced_ones(batch: int, tracing: bool, parts: Parts) -> None:
    parts.tracing = tracing
    parts.boundary("device", first_batch=7).at_boundary(batch, 0, 0)
    assert parts.calls == ["device.end_step", "windows"]


def test_the_clock_calls_again_only_when_somebody_is_due(parts: Parts) -> None:
    assert parts.boundary().at_boundary(1, 0, 0) == 200
    assert parts.boundary("scalars").at_boundary(1, 0, 0) == 50
    assert parts.boundary("memory").at_boundary(1, 0, 0) == 200
    parts.is_waiting = True
    assert parts.boundary("memory").at_boundary(1, 0, 0) == 0


@pytest.mark.parametrize(("names", "at"), [([], 200), (["scalars"], 50), (["memory"], 0), (["ranges"], 0)])
def test_the_first_call_is_when_the_first_part_is_due(names: list[str], at: int, parts: Parts) -> None:
    parts.boundary(*names).listen(200)
    assert parts.woken_at == at


def test_scalars_that_fail_are_reported_once_and_not_asked_again(parts: Parts) -> None:
    parts.fails = "scalars.log_if_due"
    boundary = parts.boundary("scalars")
    with pytest.warns(RuntimeWarning, match="scalars: switched off after RuntimeError: planted"):
        assert boundary.at_boundary(1, 50, 0) == 200
    boundary.at_boundary(2, 51, 0)
    boundary.log_last(52)
    assert parts.calls == ["windows", "scalars.log_if_due", "report of scalars", "windows"]


def test_memory_that_cannot_be_closed_is_tried_twice_and_the_device_is_closed(parts: Parts) -> None:
    parts.fails = "memory.close"
    with pytest.warns(RuntimeWarning, match="memory: closing"):
        parts.boundary("memory", "device").close()
    assert parts.calls == ["memory.close", "report of memory: closing", "memory.close", "device.close"]


def test_without_parts_nothing_happens(parts: Parts) -> None:
    boundary = parts.boundary()
    boundary.end_step()
    boundary.steps_end()
    boundary.log_last(NEVER)
    boundary.wait(1.0)
    boundary.close()
    assert boundary.samplers() == []
    assert parts.calls == []
