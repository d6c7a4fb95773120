"""Idle time cut into pieces with one cause each."""

from pathlib import Path

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import document, span, training_step, write

from lightning_gpuprof.model.trace.idle import IDLE_CAUSES
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps, gaps_by_device
from lightning_gpuprof.trace.analyses.idle.idle_pieces import IdlePieces, idle_pieces
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


def pieces_of(linked: LinkedTrace, device: int = 0) -> tuple[Gaps, IdlePieces]:
    gaps = gaps_by_device(linked)[device]
    return gaps, idle_pieces(linked, gaps)


def told(pieces: IdlePieces) -> list[tuple[str, float, float]]:
    columns = (pieces.cause.tolist(), pieces.start_ns.tolist(), pieces.end_ns.tolist())
    return [(IDLE_CAUSES[cause], start / 1000, end / 1000) for cause, start, end in zip(*columns, strict=True)]


def test_a_gap_is_cut_where_its_cause_changes(tmp_path: Path) -> None:
    _, pieces = pieces_of(LinkedTrace(Trace.read(write(tmp_path / "a.json", document(training_step())))))
    assert told(pieces) == [("data", 10, 30), ("launch", 30, 40), ("launch_latency", 40, 50), ("queued", 80, 90)]
    assert pieces.gap.tolist() == [0, 0, 0, 1]


def test_a_cause_that_comes_back_has_two_pieces_and_long_host_time_is_its_own(tmp_path: Path) -> None:
    kernel = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 5000),
        span("kernel", "a", 10, 10, correlation=1, **kernel),
        span("cuda_runtime", "cudaLaunchKernel", 5, 2, correlation=1),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 1000, 100),
        span("cuda_runtime", "cudaMalloc", 2000, 300),
        span("cuda_runtime", "cudaLaunchKernel", 2400, 5, correlation=2),
        span("kernel", "b", 2410, 10, correlation=2, **kernel),
    ]
    _, pieces = pieces_of(LinkedTrace(Trace.read(write(tmp_path / "a.json", document(events)))))
    assert told(pieces) == [
        ("host_work", 20, 1000),
        ("data", 1000, 1100),
        ("host_work", 1100, 2000),
        ("allocator", 2000, 2300),
        ("host_work", 2300, 2400),
        ("launch_latency", 2400, 2410),
    ]


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_the_pieces_of_recorded_gaps_lie_side_by_side_and_fill_them(name: str) -> None:
    linked = recorded_trace(name)
    for device in linked.device_rows:
        gaps, pieces = pieces_of(linked, device)
        assert pieces.by_cause(pieces.gap, len(gaps)).sum(axis=0).tolist() == gaps.duration_ns.tolist()
        for cut in (pieces, pieces.merged()):
            assert (cut.end_ns > cut.start_ns).all()
            assert (cut.start_ns[1:] >= cut.end_ns[:-1]).all()
            assert (cut.start_ns >= gaps.start_ns[cut.gap]).all()
            assert (cut.end_ns <= gaps.end_ns[cut.gap]).all()
        assert np.array_equal(linked.steps.at(pieces.end_ns - 1), pieces.step)
