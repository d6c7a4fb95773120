"""Regions of the user's own: where their time goes, and that they never cost the user's code anything."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof import annotate
from lightning_gpuprof.capture import annotated_regions
from lightning_gpuprof.capture.annotated_regions import Recording
from lightning_gpuprof.capture.step_clock import NULL_CONTEXT, ClosedStep, Context, StepClock
from lightning_gpuprof.errors import ArgumentError


class FakeTime:
    """A clock that moves only when the test says so."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Run:
    """A clock in its first step, with a recording that goes to it."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.clock = StepClock(now=self.time, cpu_now=lambda: 0)
        self.recording = Recording(lambda name, color: self.clock.context(self.clock.annotated(name)))
        self.clock.begin_training(-1, 0)
        self.clock.begin_epoch(0, -1)
        self.clock.begin_step()

    def charged(self) -> dict[tuple[str, str, str], int]:
        """(phase, hook, annotation) → ns of the step, which ends here."""
        self.clock.begin_step()
        step = next(item for item in self.clock.closed if isinstance(item, ClosedStep))
        slots = self.clock.slots
        named = {(s.phase, s.hook, s.annotation): ns for s, ns in zip(slots, step.charged, strict=False) if ns}
        assert sum(named.values()) == step.end_ns - step.start_ns
        return named


def test_a_region_is_a_part_of_what_it_runs_in() -> None:
    run = Run()
    hook = run.clock.context(run.clock.slot("a", "callbacks", callback="EMA", hook="on_train_batch_end"))
    run.recording.begin()
    with hook:
        run.time.ns += 5
        with annotate("average"):
            run.time.ns += 30
            with annotate("copy"):
                run.time.ns += 200
    with annotate("average"):
        run.time.ns += 1000
    run.recording.end()
    assert run.charged() == {
        ("callbacks", "on_train_batch_end", ""): 5,
        ("callbacks", "on_train_batch_end", "average"): 30,
        ("callbacks", "on_train_batch_end", "average > copy"): 200,
        ("loop", "", "average"): 1000,
    }


def test_a_decorated_function_keeps_its_name_its_result_and_its_exceptions() -> None:
    run = Run()

    @annotate("half")
    def half(n: int) -> int:
        """Of a number."""
        run.time.ns += 7
        if n % 2:
            raise ValueError("odd")
        return n // 2 if n < 4 else half(n - 2) + 1

    run.recording.begin()
    assert half(6) == 3
    with pytest.raises(ValueError, match="odd"):
        half(5)
    run.recording.end()
    assert (half.__name__, half.__doc__) == ("half", "Of a number.")
    assert sum(ns for (_, _, name), ns in run.charged().items() if name.startswith("half")) == 4 * 7


def annotated_ns(run: Run, name: str) -> int:
    return sum(ns for (_, _, annotation), ns in run.charged().items() if annotation == name)


def test_a_generator_is_in_its_region_while_its_own_code_runs() -> None:
    run = Run()
    closed: list[str] = []

    @annotate("read")
    def read(count: int) -> Generator[int, int, str]:
        try:
            for number in range(count):
                run.time.ns += 7
                try:
                    number += yield number
                except KeyError:
                    run.time.ns += 100
            return "end"
        finally:
            closed.append("closed")

    assert inspect.isgeneratorfunction(read)
    run.recording.begin()
    items = read(3)
    assert next(items) == 0
    run.time.ns += 1000
    assert items.send(5) == 1
    assert items.throw(KeyError("bad")) == 2
    with pytest.raises(StopIteration, match="end"):
        items.send(0)
    with pytest.raises(ValueError, match="bad"):
        read(1).throw(ValueError("bad"))
    cut = read(2)
    next(cut)
    cut.close()
    run.recording.end()
    assert closed == ["closed", "closed"]
    assert annotated_ns(run, "read") == 3 * 7 + 100 + 7


def test_async_functions_are_in_their_region_while_their_own_code_runs() -> None:
    run = Run()

    @annotate("items")
    async def items() -> AsyncGenerator[int, None]:
        for number in range(3):
            run.time.ns += 10
            await asyncio.sleep(0)
            yield number

    @annotate("load")
    async def load(ns: int) -> int:
        run.time.ns += ns
        await asyncio.sleep(0)
        run.time.ns += ns
        return ns

    async def train() -> tuple[list[int], list[int]]:
        made = []
        async for number in items():
            run.time.ns += 5000
            made.append(number)
        stopped = items()
        await anext(stopped)
        await stopped.aclose()
        with pytest.raises(ZeroDivisionError):
            await failing()
        return made, await asyncio.gather(load(100), load(300))

    @annotate("failing")
    async def failing() -> float:
        await asyncio.sleep(0)
        return 1 / 0

    assert inspect.iscoroutinefunction(load)
    assert inspect.isasyncgenfunction(items)
    run.recording.begin()
    assert asyncio.run(train()) == ([0, 1, 2], [100, 300])
    run.recording.end()
    charged = {name: ns for (_, _, name), ns in run.charged().items() if name}
    assert charged == {"items": 40, "load": 800}


WITHOUT_TORCH = """
import asyncio, sys
for name in "torch", "nvtx", "lightning", "pytorch_lightning":
    sys.modules[name] = None
from lightning_gpuprof import annotate

@annotate("half", color="green")
def half(number):
    return number // 2

@annotate("numbers", color="#76B900")
def numbers():
    yield from range(3)

@annotate("later")
async def later():
    with annotate("inside", color="no colour"):
        return half(6)

assert list(numbers()) == [0, 1, 2]
assert asyncio.run(later()) == 3
"""


def test_it_works_without_torch_nvtx_and_lightning() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)


def test_without_a_run_it_does_nothing() -> None:
    with annotate("alone"):
        pass
    assert annotate("alone")(len)("abc") == 3


def test_without_a_run_it_is_in_the_trace_of_a_plain_torch_profiler() -> None:
    augment = annotate("augment")
    with profile(activities=[ProfilerActivity.CPU]) as profiler, augment, annotate("copy"):
        torch.ones(2).add(1)
    with augment:
        pass
    ranges = [event for event in profiler.events() if event.name in ("augment", "copy")]
    assert [(event.name, event.count) for event in ranges] == [("augment", 1), ("copy", 1)]
    assert ranges[1].cpu_parent is ranges[0]


def test_without_a_run_code_with_a_region_is_compiled_as_a_whole() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        with annotate("inside", color="red"):
            return x + 1

    compiled = torch.compile(work, fullgraph=True, backend="eager")
    with profile(activities=[ProfilerActivity.CPU]):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert compiled(torch.ones(3)).tolist() == [2, 2, 2]


def test_code_with_coloured_regions_is_compiled_once() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def work(x: torch.Tensor) -> torch.Tensor:
        with annotate("inside", color="red"), annotate("deeper", color="blue"):
            return x + 1

    compiled = torch.compile(work, fullgraph=True, backend=backend, dynamic=False)
    for call in range(12):
        with annotate(f"around {call}", color="green"):
            compiled(torch.ones(2))
    assert len(graphs) == 1


def test_a_decorated_function_has_the_colour_too() -> None:
    asked: list[str | None] = []
    recording = Recording(lambda name, color: asked.append(color) or NULL_CONTEXT)
    recording.begin()
    assert annotate("size", color="green")(len)("abc") == 3
    recording.end()
    assert asked == ["green"]


def test_another_thread_does_not_count() -> None:
    run = Run()
    run.recording.begin()

    def work() -> None:
        with annotate("beside"):
            run.time.ns += 9

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    run.recording.end()
    assert run.charged() == {("loop", "", ""): 9}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_worker_does_not_count() -> None:
    asked: list[str] = []
    recording = Recording(lambda name, color: asked.append(name) or NULL_CONTEXT)
    recording.begin()
    child = os.fork()
    if child == 0:
        with annotate("in the worker"):
            pass
        os._exit(len(asked))
    _, status = os.waitpid(child, 0)
    with annotate("in the parent"):
        pass
    recording.end()
    assert os.waitstatus_to_exitcode(status) == 0
    assert asked == ["in the parent"]


class Annotated(Dataset[bool]):
    """Whether an item's region became a range of torch's profiler."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> bool:
        region = annotate("item")
        with region:
            return region._open != [None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_worker_that_is_forked_inside_a_torch_profiler_makes_no_ranges() -> None:
    with profile(activities=[ProfilerActivity.CPU]):
        here = [Annotated()[0]]
        made = list(DataLoader(Annotated(), batch_size=None, num_workers=1, multiprocessing_context="fork"))
    assert (here, made) == ([True], [False, False])


def test_a_region_that_cannot_be_timed_costs_the_user_nothing() -> None:
    def broken(name: str, color: str | None) -> Context:
        raise RuntimeError(name)

    recording = Recording(broken)
    recording.begin()
    with annotate("x"):
        done = True
    recording.end()
    assert done


def test_a_run_inside_a_run_gives_the_outer_one_back() -> None:
    asked: list[str] = []
    outer = Recording(lambda name, color: asked.append(f"outer {name}") or NULL_CONTEXT)
    inner = Recording(lambda name, color: asked.append(f"inner {name}") or NULL_CONTEXT)
    outer.begin()
    inner.begin()
    with annotate("a"):
        pass
    inner.end()
    inner.end()
    with annotate("b"):
        pass
    outer.end()
    with annotate("c"):
        pass
    assert asked == ["inner a", "outer b"]


@pytest.mark.parametrize(("name", "shown"), [("", "unnamed"), (" ", "unnamed"), (None, "None"), (3, "3"), (" a ", "a")])
def test_a_name_that_is_made_up_in_a_run_never_ends_it(name: str, shown: str) -> None:
    asked: list[str] = []

    def timed(name: str, color: str | None) -> Context:
        asked.append(name)
        return NULL_CONTEXT

    recording = Recording(timed)
    recording.begin()
    with annotate(name):
        pass
    recording.end()
    assert asked == [shown]


def test_without_parentheses_the_function_is_not_lost_without_a_word() -> None:
    def loss() -> float:
        return 0.5

    with pytest.raises(ArgumentError, match=r"name must be a text, got 'loss'\. Write @annotate\(\"loss\"\)\."):
        annotate(loss)  # type: ignore[arg-type]


def test_of_runs_in_several_threads_the_first_may_end_first() -> None:
    runs = [Run() for _ in range(3)]
    for run in runs:
        run.recording.begin()
    for run in (runs[0], runs[1], runs[1]):
        run.recording.end()
    with annotate("one"):
        runs[2].time.ns += 7
    runs[2].recording.end()
    assert runs[2].charged() == {("loop", "", "one"): 7}
    with annotate("two"):
        pass
    assert annotated_regions._recording is None
