"""Which of NVIDIA's profilers is noticed, and what is no sign of one."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler
from python_process import run_python

from lightning_gpuprof.capture import nvtx_ranges
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.nsight import CudaProfilerSwitch, CudaProfilerTracer, active_tool
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.model.config import Options, TraceConfig, parse_windows
from lightning_gpuprof.model.journal import Notice, WindowRecord


@pytest.mark.parametrize(
    ("environ", "tool"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": "12345"}, "Nsight Systems"),
        ({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": "/opt/ncu"}, "Nsight Compute"),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None),
        ({"NV_NSIGHT_COMPUTE_VERSION": "11.7.0-1", "NV_CUDA_LIB_VERSION": "11.7"}, None),  # CUDA images
        ({"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}, None),  # a user's setting
    ],
)
def test_a_tool_is_noticed_by_what_it_sets_itself(environ: dict[str, str], tool: str | None) -> None:
    assert active_tool(environ) == tool


@pytest.mark.parametrize(
    ("option", "under_tool", "made"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_ranges_are_made_as_asked_for_and_else_under_a_tool(option: bool | None, under_tool: bool, made: bool) -> None:
    environ = {"NSYS_PROFILING_SESSION_ID": "1"} if under_tool else {}
    assert nvtx_ranges.is_enabled(option, environ) is made


class NotingSwitch:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


def test_a_window_is_one_start_and_one_stop_without_a_file() -> None:
    switch = NotingSwitch()
    tracer = CudaProfilerTracer(switch)
    tracer.prepare()
    assert switch.calls == []
    tracer.start(10)
    tracer.next_step(11)
    assert tracer.stop(True) is None
    assert switch.calls == ["start", "stop"]


def test_a_window_that_was_only_prepared_is_not_stopped() -> None:
    switch = NotingSwitch()
    tracer = CudaProfilerTracer(switch)
    tracer.prepare()
    assert tracer.stop(False) is None
    assert switch.calls == []


def test_every_window_is_recorded_in_turn() -> None:
    switch = NotingSwitch()
    tracer = CudaProfilerTracer(switch)
    for _ in range(3):
        tracer.prepare()
        tracer.start(0)
        tracer.stop(True)
    assert switch.calls == ["start", "stop"] * 3


def test_under_a_tool_the_windows_are_its_windows_and_kineto_stays_closed(tmp_path: Path) -> None:
    clock = StepClock()
    tap = ProfilerTap(
        PassThroughProfiler(),
        clock,
        forward=False,
        manual=False,
        overridden=frozenset(),
        does_nothing=lambda key, hook: False,
        on_failure=lambda error: None,
        on_end=lambda error: None,
    )
    reported: list[WindowRecord | Notice] = []
    switch = NotingSwitch()
    options = Options(
        windows=parse_windows([(4, 5), (8, 8)], 3),
        trace=TraceConfig(),
        nvml=None,
        host=None,
        dirpath=None,
        log_every_n_steps=None,
        reports=(),
        baseline=None,
    )
    fence = Fence(lambda part, message: reported.append(Notice(part=part, message=message)))
    measured = SimpleNamespace(
        options=options,
        clock=clock,
        tap=tap,
        fence=fence,
        trainer=SimpleNamespace(global_rank=0, world_size=1),
        journal=SimpleNamespace(folder=tmp_path, post=reported.append),
    )
    recording = WindowRecording(measured, environ={"NSYS_PROFILING_SESSION_ID": "1"}, switch=switch)
    edges: list[tuple[int, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording.begin(0)
        for step in range(12):
            before = len(switch.calls)
            recording.at_boundary(step, step, step)
            edges += [(step, call) for call in switch.calls[before:]]
            assert not torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
        recording.end("finished")
    recording.unwatch()
    assert edges == [(4, "start"), (6, "stop"), (8, "start"), (9, "stop")]
    records = [record for record in reported if isinstance(record, WindowRecord)]
    assert [(r.start_step, r.stop_step, r.file, r.problem) for r in records] == [(4, 5, "", ""), (8, 8, "", "")]
    notices = [record.message for record in reported if isinstance(record, Notice)]
    assert notices == ["Nsight Systems records them: their traces are in its report, not here"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_cuda_in_use_the_runtime_is_not_touched() -> None:
    program = (
        "import torch\n"
        "from lightning_gpuprof.capture.nsight import CudaProfilerSwitch, CudaProfilerTracer\n"
        "tracer = CudaProfilerTracer(CudaProfilerSwitch())\n"
        "tracer.prepare()\n"
        "try:\n"
        "    tracer.start(0)\n"
        "except RuntimeError as error:\n"
        "    assert 'not in use' in str(error)\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
        "assert tracer.stop(False) is None\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    run_python("-c", program)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_runtime_takes_start_and_stop() -> None:
    torch.ones(1, device="cuda")
    switch = CudaProfilerSwitch()
    switch.start()
    switch.stop()
