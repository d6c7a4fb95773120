"""Idle time with a place: each cause has as much of each gap as the analysis of idle time tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import document, span, training_step, write

from lightning_gpuprof.model.trace.idle import IDLE_CAUSES
from lightning_gpuprof.trace.analyses.idle.host_activity import HostActivity
from lightning_gpuprof.trace.analyses.idle.idle_causes import causes_of
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps, gaps_of
from lightning_gpuprof.trace.analyses.idle.idle_pieces import IdlePieces, idle_pieces
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


def pieces_of(linked: LinkedTrace, device: int = 0) -> tuple[Gaps, IdlePieces]:
    gaps = gaps_of(linked, device)
    return gaps, idle_pieces(linked, gaps, HostActivity(linked))


def told(pieces: IdlePieces) -> list[tuple[str, float, float]]:
    columns = (pieces.cause.tolist(), pieces.start_ns.tolist(), pieces.end_ns.tolist())
    return [(IDLE_CAUSES[cause], start / 1000, end / 1000) for cause, start, end in zip(*columns, strict=True)]


def test_a_gap_is_cut_where_its_cause_changes(tmp_path: Path) -> None:
    _, pieces = pieces_of(LinkedTrace(Trace.read(write(tmp_path / "a.json", document(training_step())))))
    assert told(pieces) == [
        ("data", 10, 30),
        ("launch", 30, 40),
        ("launch_latency", 40, 50),
        ("queued", 80, 90),
    ]
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
def test_pieces_of_recorded_gaps_sum_to_what_is_told_of_each_gap_and_cause(name: str) -> None:
    linked = recorded_trace(name)
    for device in linked.device_rows:
        gaps, pieces = pieces_of(linked, device)
        expected = causes_of(linked, gaps, HostActivity(linked))
        summed = np.zeros((len(IDLE_CAUSES), len(gaps)), np.int64)
        np.add.at(summed, (pieces.cause, pieces.gap), pieces.end_ns - pieces.start_ns)
        assert np.array_equal(summed, expected.by_cause(expected.gap, len(gaps)))
        assert (pieces.end_ns > pieces.start_ns).all()
        assert (pieces.start_ns[1:] >= pieces.end_ns[:-1]).all()
        assert (pieces.start_ns >= gaps.start_ns[pieces.gap]).all()
        assert (pieces.end_ns <= gaps.end_ns[pieces.gap]).all()
