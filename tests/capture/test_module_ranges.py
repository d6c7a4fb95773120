"""Calls of modules are named in a window, and nothing of the model is touched for it."""

import copy
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from lightning_gpuprof.capture.module_ranges import name_modules
from lightning_gpuprof.model.trace.attribution import MODULE
from lightning_gpuprof.trace.analyses.code.attribution import attribution
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Other tests of this process may have compiled something, and then no module is named."""
    torch._dynamo.utils.counters.clear()


class Net(nn.Module):
    """Two blocks in a list, a head that can fail, and a block that calls itself once more."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(again=False), Block(again=True)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(x)
        return out


class Block(nn.Module):
    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again = again
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.again:
            self.again = False
            x = self(x)
            self.again = True
        out: torch.Tensor = self.linear(x)
        return out


@contextmanager
def traced(path: Path) -> Iterator[list[str]]:
    """The names of modules in a trace of what is inside, outer before inner, once it is over."""
    names: list[str] = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        yield names
    profiler.export_chrome_trace(str(path))
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("name", "").startswith(MODULE)]
    names += [one["name"].removeprefix(MODULE) for one in sorted(events, key=lambda one: (one["ts"], -one["dur"]))]


def begun(model: nn.Module, most: int = 100) -> Callable[[], object]:
    end = name_modules(model, most)
    assert end is not None
    return end


def test_calls_have_the_names_of_named_modules_until_the_end(tmp_path: Path) -> None:
    net = Net()
    with traced(tmp_path / "trace.json") as names:
        end = begun(net)
        net(torch.ones(2, 4))
        end()
        net(torch.ones(2, 4))
    inner = ["blocks.1", "blocks.1", "blocks.1.linear", "blocks.1.linear"]
    assert names == ["Net", "blocks.0", "blocks.0.linear", *inner, "head"]
    assert not torch_module._has_any_global_hook()


@pytest.mark.parametrize(("most", "named"), [(1, ["Net"]), (2, ["Net", "head"]), (5, ["blocks.0", "blocks.1", "head"])])
def test_of_many_modules_whole_levels_are_named_outermost_first(tmp_path: Path, most: int, named: list[str]) -> None:
    net = Net()
    with traced(tmp_path / "trace.json") as names:
        end = begun(net, most)
        net(torch.ones(2, 4))
        end()
    assert set(names) == {"Net", *named}


def test_the_trace_has_class_and_parameters_of_each_module(tmp_path: Path) -> None:
    net = Net()
    net.blocks[1].linear = net.blocks[0].linear
    with traced(tmp_path / "trace.json"):
        end = begun(net)
        net(torch.ones(2, 4))
        end()
    found = attribution(LinkedTrace(Trace.read(tmp_path / "trace.json"))).modules
    facts = {one.path[-1]: (one.type, one.parameters) for one in found}
    linear, block = ("Linear", 20), (type(net.blocks[0]).__name__, 20)
    blocks = {"blocks.0": block, "linear": linear, "blocks.1": block, "blocks.0.linear": linear}
    assert facts == {"Net": ("Net", 20 + 10), **blocks, "head": ("Linear", 10)}


def test_parameters_that_do_not_exist_yet_are_not_counted_and_modules_are_named_all_the_same(tmp_path: Path) -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    with traced(tmp_path / "trace.json") as names:
        end = begun(net)
        net(torch.ones(2, 3))
        end()
    assert names == ["Sequential", "0", "1"]
    assert Trace.read(tmp_path / "trace.json").about.modules == {
        "Sequential": ("Sequential", None),
        "0": ("LazyLinear", None),
        "1": ("Linear", 10),
    }


def test_a_call_that_fails_ends_its_range_and_raises_as_before(tmp_path: Path) -> None:
    net = Net()
    with traced(tmp_path / "trace.json") as names:
        end = begun(net)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            net.head(torch.ones(2, 3))
        net.head(torch.ones(2, 4))
        end()
    assert names == ["head", "head"]


def test_an_interrupt_leaves_no_range_open(tmp_path: Path) -> None:
    class Interrupted(nn.Module):
        def forward(self) -> None:
            raise KeyboardInterrupt

    net = Interrupted()
    with traced(tmp_path / "trace.json") as names:
        end = begun(net)
        with pytest.raises(KeyboardInterrupt):
            net()
        end()
        torch.ones(2) + 1
    assert names == ["Interrupted"]


def test_calls_on_other_threads_are_not_named(tmp_path: Path) -> None:
    net = Net()
    with traced(tmp_path / "trace.json") as names:
        end = begun(net)
        thread = threading.Thread(target=net, args=(torch.ones(2, 4),))
        thread.start()
        thread.join()
        end()
    assert names == []


def test_a_model_can_be_copied_and_saved_meanwhile() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    end = begun(net)
    try:
        saved = io.BytesIO()
        torch.save(net, saved)
        copied = copy.deepcopy(net)
    finally:
        end()
    assert b"gpuprof" not in saved.getvalue()
    assert torch.equal(copied(torch.ones(2, 4)), net(torch.ones(2, 4)))


def test_a_compiled_model_is_left_alone() -> None:
    net = nn.Linear(4, 4)
    assert name_modules(nn.Sequential(torch.compile(net, backend="eager")), 100) is None
    net.compile(backend="eager")
    assert name_modules(nn.Sequential(net), 100) is None


def test_a_model_is_left_alone_once_any_function_was_compiled() -> None:
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert name_modules(Net(), 100) is None


def test_a_function_that_is_first_compiled_meanwhile_has_no_graph_break() -> None:
    torch._dynamo.reset()
    net = Net().blocks[0]
    compiled = torch.compile(lambda x: net(x), backend="eager", fullgraph=True)  # raises at a break
    x = torch.ones(2, 4)
    end = begun(net)
    during = compiled(x)
    end()
    assert torch.equal(during, net(x))
    assert torch.equal(compiled(x), net(x))
