"""Traces that are ended and written beside the training, with the torch that is installed."""

import ctypes
import json
import sys
import textwrap
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from python_process import run_python
from torch import nn

from lightning_gpuprof.capture import background_stop
from lightning_gpuprof.capture.background_stop import BackgroundStop, is_recording
from lightning_gpuprof.capture.torch_tracer import TorchTracer
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import TraceConfig

tried = pytest.mark.skipif(
    BackgroundStop.for_current_torch() is None, reason=f"not tried with torch {torch.__version__} on {sys.platform}"
)


class Work:
    """Steps of a small network."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20))).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.ones(4, 8, device=self.device)).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def window(folder: Path, config: TraceConfig, work: Work, keep: bool, steps: int = 2) -> Future[Path] | None:
    """A window of so many steps after one of warm-up."""
    tracer = TorchTracer(config, new_path=lambda: folder / "window.plain.json", wrap_actions=lambda wrap: lambda: None)
    tracer.prepare()
    work.step()
    for number in range(steps):
        tracer.next_step(number) if number else tracer.start(number)
        work.step()
    return tracer.stop(keep)


def trace(folder: Path, config: TraceConfig, work: Work, steps: int = 2) -> Future[Path]:
    written = window(folder, config, work, keep=True, steps=steps)
    assert written is not None
    return written


def events_of(path: Path) -> list[dict[str, Any]]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return list(loaded["traceEvents"])


def names(events: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((e["cat"], e["name"]) for e in events if e.get("ph") == "X" and "cat" in e)


def shapes(events: list[dict[str, Any]]) -> list[object]:
    return [e["args"].get("Input Dims") for e in events if e.get("name") == "aten::addmm"]


@tried
def test_a_trace_that_is_written_in_the_background_holds_what_one_that_is_waited_for_holds(tmp_path: Path) -> None:
    work = Work()
    found = []
    for background in (True, False):
        written = trace(tmp_path, TraceConfig(background_stop=background), work)
        found.append(events_of(written.result(timeout=60)))
    assert names(found[0]) == names(found[1])
    assert names(found[0])["user_annotation", "ProfilerStep#1"] == 1
    assert shapes(found[0]) == shapes(found[1])
    assert len(shapes(found[0])) == 40
    for events in found:
        flows = Counter(e["ph"] for e in events if e.get("cat") == "fwdbwd")
        assert flows["s"] == flows["f"] > 0


@tried
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_kernels_are_in_a_trace_that_is_written_in_the_background(tmp_path: Path) -> None:
    work = Work("cuda")
    work.step()
    found = []
    for background in (True, False):
        written = trace(tmp_path, TraceConfig(background_stop=background), work)
        work.step()  # kernels of no window, while it is being written
        found.append(names(events_of(written.result(timeout=60))))
    assert {name for category, name in found[0] if category == "kernel"}
    assert found[0] == found[1]


@tried
def test_steps_go_on_while_the_trace_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    stepped = threading.Event()
    write = BackgroundStop._save_to

    def waiting(stop: BackgroundStop, result: int | None, path: Path) -> None:
        assert stepped.wait(30)
        write(stop, result, path)

    monkeypatch.setattr(BackgroundStop, "_save_to", waiting)
    written = trace(tmp_path, TraceConfig(), work)
    assert not is_recording()
    work.step()
    assert not written.done()
    stepped.set()
    kept = names(events_of(written.result(timeout=60)))
    assert kept["cpu_op", "aten::addmm"] == 40  # of the two steps of the window, and not of the one after it


@tried
def test_traces_follow_each_other_and_other_profilers_work_afterwards(tmp_path: Path) -> None:
    work = Work()
    for number in range(5):
        keep = number % 2 == 0
        written = window(tmp_path, TraceConfig(), work, keep)
        if written is not None:
            assert names(events_of(written.result(timeout=60)))["cpu_op", "aten::addmm"] == 40
    assert torch.autograd.profiler._is_profiler_enabled is False
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        work.step()
    assert len(own.events()) > 0


SCRIPTED = """
    import sys, threading
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_background_stop import *

    def many(a: torch.Tensor) -> torch.Tensor:
        for i in range(300):
            a = a + 0
        return a

    def busy():
        function = torch.jit.script(many)
        while not over.is_set():
            function(torch.ones(2, 2))  # thousands of operators without the interpreter lock

    over = threading.Event()
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    work = Work()
    for _ in range(int(sys.argv[3])):
        written = trace(Path(sys.argv[1]), TraceConfig(), work).result(60)
        assert names(events_of(written))["cpu_op", "aten::addmm"] == 40
    over.set()
    for thread in threads:
        thread.join()
    tracer = TorchTracer(TraceConfig(), new_path=Path, wrap_actions=lambda wrap: lambda: None)
    tracer.prepare()
    tracer.start(0)
    Work().step()
    assert is_recording()  # and so the process ends
"""


@tried
@pytest.mark.parametrize("traces", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_other_threads_may_run_operators_while_traces_begin_and_end_and_a_process_ends_in_a_window(
    tmp_path: Path, traces: int
) -> None:
    """Where threads other than the training's are in the session, most runs of this crash."""
    in_a_process(SCRIPTED, tmp_path, str(traces))


@tried
def test_the_interpreter_is_free_while_the_trace_is_collected_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are done on a thread of their own, by functions that are called without the interpreter's lock."""
    stop: Any = BackgroundStop.for_current_torch()
    for function in (stop._disable, stop._save):
        assert type(function)._flags_ == ctypes.CDLL._func_flags_ != ctypes.PyDLL._func_flags_
    done_by: dict[str, str] = {}

    def noted(name: str) -> None:
        method = getattr(BackgroundStop, name)

        def noting(*arguments: Any) -> Any:
            done_by[name] = threading.current_thread().name
            return method(*arguments)

        monkeypatch.setattr(BackgroundStop, name, noting)

    noted("_collect")
    noted("_save_to")
    trace(tmp_path, TraceConfig(), Work()).result(timeout=60)
    assert done_by == dict.fromkeys(("_collect", "_save_to"), background_stop.THREAD_NAME)


@tried
def test_a_window_after_a_stop_that_was_broken_off_waits_for_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a stop, and the next run in the same notebook."""
    written: list[Path] = []
    may_write = threading.Event()
    save = BackgroundStop._save_to

    def held(stop: BackgroundStop, result: int | None, path: Path) -> None:
        assert may_write.wait(60)
        save(stop, result, path)
        written.append(path)

    def interrupted(stop: BackgroundStop) -> None:
        leave(stop)
        raise KeyboardInterrupt

    monkeypatch.setattr(BackgroundStop, "_save_to", held)
    leave = BackgroundStop._leave_profiler
    with monkeypatch.context() as broken:
        broken.setattr(BackgroundStop, "_leave_profiler", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trace(tmp_path, TraceConfig(), Work())
    assert not written
    tracer = TorchTracer(TraceConfig(), new_path=lambda: tmp_path, wrap_actions=lambda wrap: lambda: None)
    threading.Timer(0.3, may_write.set).start()
    tracer.prepare()
    assert written == [tmp_path / "window.plain.json"]
    tracer.stop(False)


@tried
def test_a_stop_that_is_broken_off_before_it_began_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(stop: BackgroundStop) -> None:
        raise KeyboardInterrupt

    work = Work()
    tracer = TorchTracer(TraceConfig(), new_path=lambda: tmp_path / "t.json", wrap_actions=lambda wrap: lambda: None)
    tracer.prepare()
    tracer.start(0)
    work.step()
    with monkeypatch.context() as broken:
        broken.setattr(BackgroundStop, "_leave_profiler", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tracer.stop(True)
    assert is_recording()
    background_stop.wait_until_written()  # it ends without having touched the profiler
    written = tracer.stop(True)
    assert names(events_of(written.result(timeout=60)))["cpu_op", "aten::addmm"] == 20


@tried
def test_a_folder_that_is_gone_is_reported_and_leaves_nothing_recording(tmp_path: Path) -> None:
    written = trace(tmp_path / "gone", TraceConfig(), Work())
    with pytest.raises(OSError, match=r"window\.plain\.json"):
        written.result(timeout=60)
    assert not is_recording()


def in_a_process(script: str, folder: Path, *words: str) -> None:
    """What goes wrong here ends the process."""
    run_python("-c", textwrap.dedent(script), folder, Path(__file__).parent, *words)


LIMITED = """
    import resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_background_stop import *

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, limits[1]))
    assert BackgroundStop.for_current_torch() is None  # memory is limited: torch's own binding is used
    resource.setrlimit(resource.RLIMIT_AS, limits)
    trace(Path(sys.argv[1]), TraceConfig(), Work(), steps=20)
"""


@tried
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_where_memory_is_limited_it_is_not_used_and_the_interpreter_waits_for_the_trace_at_its_end(
    tmp_path: Path,
) -> None:
    in_a_process(LIMITED, tmp_path)
    assert events_of(tmp_path / "window.plain.json")


@pytest.mark.parametrize(
    "version", ["2.12.1", "2.13.1", "2.13.0a0+git", "2.13.0.dev20260501", "2.13.0+rocm7.0", "2.14.0", "3.0"]
)
def test_a_torch_that_was_not_tried_is_left_to_its_own_binding(version: str) -> None:
    assert BackgroundStop.for_current_torch(version) is None


@pytest.mark.parametrize("config", [TraceConfig(with_stack=True), TraceConfig(background_stop=False)])
def test_stacks_are_waited_for(config: TraceConfig, tmp_path: Path) -> None:
    written = trace(tmp_path, config, Work())
    assert written.done()
    assert events_of(written.result())


@tried
def test_memory_is_in_a_trace_that_is_written_in_the_background(tmp_path: Path) -> None:
    written = trace(tmp_path, TraceConfig(profile_memory=True), Work())
    assert any(event.get("name") == "[memory]" for event in events_of(written.result(timeout=60)))


def test_a_library_without_the_functions_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_stop, "_SAVE", "_ZNoSuchFunction")
    assert BackgroundStop.for_current_torch() is None


def test_what_needs_the_interpreter_is_refused_beside_it() -> None:
    with pytest.raises(ArgumentError, match=r"trace\.background_stop must not be set beside trace\.with_stack"):
        TraceConfig(background_stop=True, with_stack=True)


@pytest.mark.parametrize("value", ["yes", 1])
def test_what_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"trace\.background_stop must be true, false, or null"):
        TraceConfig(background_stop=value)
