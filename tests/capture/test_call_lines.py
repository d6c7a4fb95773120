"""Calls in a window with stacks have their own lines, and a window never fails for want of them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.capture import torch_tracer
from lightning_gpuprof.capture.call_lines import add_call_lines, read_call_lines
from lightning_gpuprof.capture.torch_tracer import TorchTracer
from lightning_gpuprof.model.trace.attribution import LineTime
from lightning_gpuprof.model.trace.call_lines import CallLines, without_instance
from lightning_gpuprof.trace.analyses.code.attribution import attribution
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

SOME = CallLines(names=("f.py(1): f", "g.py(1): g"), calls=((0, (1,), (2,)),))


def two_lines(x: torch.Tensor) -> torch.Tensor:
    x = x.relu()
    x = torch.nn.functional.gelu(x)
    return x + 1


def either(x: torch.Tensor, first: bool) -> torch.Tensor:
    if first:
        return x.relu()
    return x.relu()


def loop() -> None:
    x = torch.ones(100, 100)
    for first in (True, False, True):
        two_lines(x)
        either(x, first)


def first_line(function: Callable[..., object]) -> int:
    return function.__code__.co_firstlineno


def lines_of(path: Path, function: Callable[..., object]) -> dict[tuple[int, str], LineTime]:
    """By number of the line, counted from that of the function, and its meaning."""
    of_function = {}
    for line in attribution(LinkedTrace(Trace.read(path))).lines:
        if line.line.frame.endswith(f": {function.__name__}"):
            number = int(line.line.frame.rpartition("(")[2].partition(")")[0])
            of_function[number - first_line(function), line.line.means] = line
    return of_function


@pytest.fixture(scope="module")
def window() -> Any:
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        loop()
    return profiler


def read(window: Any, limit_s: float = math.inf) -> CallLines:
    return read_call_lines(window.profiler.kineto_results.experimental_event_tree(), limit_s=limit_s)


@pytest.fixture(scope="module")
def plain(window: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As torch writes it."""
    path = tmp_path_factory.mktemp("window") / "plain.json"
    window.export_chrome_trace(str(path))
    return path


@pytest.fixture
def path(plain: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "window.json"
    copy.write_bytes(plain.read_bytes())
    return copy


def test_two_calls_of_one_function_have_their_own_lines(window: Any, path: Path) -> None:
    add_call_lines(path, read(window))
    found = lines_of(path, two_lines)
    assert {where: line.hits for where, line in found.items()} == {
        (1, "call"): 3,
        (2, "call"): 3,
        (0, "definition"): 3,  # x + 1 is no call
    }
    assert all(line.host_us > 0 for line in found.values())


def test_host_time_of_a_function_is_shared_out_among_its_lines(window: Any, path: Path) -> None:
    (whole,) = lines_of(path, two_lines).values()
    add_call_lines(path, read(window))
    assert sum(line.host_us for line in lines_of(path, two_lines).values()) == pytest.approx(whole.host_us)


def test_the_same_calls_at_different_lines_stay_with_the_function(window: Any, path: Path) -> None:
    add_call_lines(path, read(window))
    assert set(lines_of(path, either)) == {(0, "definition")}


def test_without_lines_of_calls_there_are_those_of_functions(path: Path) -> None:
    assert Trace.read(path).about.call_lines is None
    found = lines_of(path, two_lines)
    assert {where: line.hits for where, line in found.items()} == {(0, "definition"): 9}


@pytest.mark.parametrize("broken", [3, [], {"names": ["f"]}, {"names": [], "calls": [[0, [1], "line"]]}])
def test_broken_lines_are_none(path: Path, broken: object) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "gpuprof_call_lines": broken}))
    assert set(lines_of(path, two_lines)) == {(0, "definition")}


def test_lines_of_another_window_change_nothing(path: Path) -> None:
    add_call_lines(path, SOME)
    assert Trace.read(path).about.call_lines == SOME
    assert set(lines_of(path, two_lines)) == {(0, "definition")}


def test_reading_ends_when_its_time_is_over(window: Any) -> None:
    assert read(window, limit_s=0.0).calls == ()
    roots = window.profiler.kineto_results.experimental_event_tree()
    seconds = iter(range(10**9))
    some = read_call_lines(roots, limit_s=20, now=lambda: float(next(seconds)))
    assert len(some.calls) < len(read(window).calls)


def test_the_file_stays_json_of_the_same_events(window: Any, path: Path) -> None:
    before = json.loads(path.read_text())
    lines = read(window)
    add_call_lines(path, lines)
    after = json.loads(path.read_text())
    assert after.pop("gpuprof_call_lines")["names"] == list(lines.names)
    assert after == before


def test_a_file_that_is_cut_off_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [')
    with pytest.raises(OSError, match="does not end"):
        add_call_lines(path, SOME)
    assert path.read_text() == '{"traceEvents": ['


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("<built-in method relu of Tensor object at 0x7f0aF1>", "<built-in method relu of Tensor object>"),
        ("nn.Module: Conv2d_12", "nn.Module: Conv2d"),
        ("net.py(3): block_1", "net.py(3): block_1"),
    ],
)
def test_objects_of_a_class_have_one_name(name: str, bare: str) -> None:
    assert without_instance(name) == bare


def traced(path: Path) -> Path:
    tracer = TorchTracer(TraceConfig(with_stack=True), new_path=lambda: path, wrap_actions=lambda wrap: lambda: None)
    tracer.prepare()
    tracer.start(0)
    loop()
    written = tracer.stop(True)
    assert written is not None
    return written.result()


def test_windows_with_stacks_have_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_tracer, "_CALL_LINES_RATIO", math.inf)
    assert {(1, "call"), (2, "call")} < set(lines_of(traced(tmp_path / "window.json"), two_lines))


def fails(*args: object, **options: object) -> None:
    raise ValueError("planted")


@pytest.mark.parametrize("part", ["read_call_lines", "add_call_lines"])
def test_a_failure_leaves_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(torch_tracer, part, fails)
    assert set(lines_of(traced(tmp_path / "window.json"), two_lines)) == {(0, "definition")}
