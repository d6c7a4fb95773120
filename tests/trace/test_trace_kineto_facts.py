"""The plain facts of recorded traces, key by key, against a slow and simple program that is not ours."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recorded_traces import TRACES, TRUTH
from tiny_traces import document, span, training_step, write

from lightning_gpuprof.trace.analyses.health.kineto_facts import kineto_facts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

ROUNDED_US = 0.00051
"""The truth is rounded to a thousandth of a microsecond."""

DRIFT_US = {"v100_ns": 0.0005}
"""The truth adds times as float64, which at the scale of these files' clocks has ticks of 0.25 or 0.001 us: sums and
unions are off by so much per event. Ours are whole nanoseconds."""
DRIFT_OTHERS_US = 0.0001

IN_PERCENT = ("idle_pct", "idle_pct_matched_only", "idle_pct_kernels_only")


def facts(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    found = kineto_facts(LinkedTrace(Trace.read(path)), sha256=hashlib.sha256(raw).hexdigest(), bytes_file=len(raw))
    plain: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return plain


@cache
def measured(name: str) -> dict[str, Any]:
    return facts(TRACES / name)


def tolerance(name: str, key: str, events: int) -> float:
    if key in IN_PERCENT:
        return 0.005
    drift_us = next((drift for begin, drift in DRIFT_US.items() if name.startswith(begin)), DRIFT_OTHERS_US)
    return ROUNDED_US + drift_us * events


def differences(name: str, key: str, ours: Any, truth: Any) -> list[str]:
    """Where two facts differ by more than rounding."""
    if isinstance(truth, dict):
        if set(ours) != set(truth):
            return [f"{key}: {sorted(set(ours) ^ set(truth))} on one side only"]
        return [line for one in truth for line in differences(name, f"{key}/{one}", ours[one], truth[one])]
    if isinstance(truth, list):
        if len(ours) != len(truth):
            return [f"{key}: {len(ours)} entries, not {len(truth)}"]
        return [line for row, one in enumerate(truth) for line in differences(name, f"{key}/{row}", ours[row], one)]
    if isinstance(truth, float) and isinstance(ours, (int, float)):
        allowed = tolerance(name, key.rpartition("/")[2], TRUTH[name]["n_events"])
        return [] if abs(ours - truth) <= allowed else [f"{key}: {ours}, not {truth}"]
    return [] if ours == truth else [f"{key}: {ours}, not {truth}"]


@pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")
@pytest.mark.parametrize("name", sorted(TRUTH) or ["none"])
def test_every_fact_is_that_of_the_slow_program(name: str) -> None:
    found = differences(name, "", measured(name), TRUTH[name])
    if name.startswith("mi210"):
        # Kernels that touch: whether a gap of 0 ns is one is decided by float64 there and by whole nanoseconds here.
        found = [line for line in found if not line.startswith("/devices/1/n_gaps")]
    assert found == []


def test_a_trace_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", document(training_step(), baseTimeNanoseconds=5))
    found = facts(path)
    assert found["n_events"] == 14
    assert found["n_X"] == 11
    assert found["categories"]["kernel"] == 3
    assert found["meta"] == {"schemaVersion": 1, "baseTimeNanoseconds": 5}
    device = found["devices"]["0"]
    assert (device["n"], device["streams"]) == (4, 2)
    assert (device["window_us"], device["busy_us"], device["idle_us"]) == (90, 40, 50)
    assert (device["n_gaps"], device["max_gap_us"]) == (2, 40)
    assert (device["kernel_union_us"], device["mem_us"]) == (35, 5)
    assert (found["gpu_matched"], found["gpu_unmatched"]) == (3, 1)
    assert found["launch_to_start_median_us"] == 14
    assert found["launch_to_start_max_us"] == 30
    assert found["memcpy"] == {"Memcpy HtoD": [1, 4096, 5]}
    assert found["steps"] == [["ProfilerStep#7", 100]]
    assert (found["n_dataloader_next"], found["dataloader_us"]) == (1, 30)
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_communication_is_exposed_where_nothing_computes(tmp_path: Path) -> None:
    events = [
        span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 10, device=0, stream=1, correlation=1),
        span("kernel", "gemm", 6, 10, device=0, stream=2, correlation=2),
    ]
    events[0]["args"]["Collective name"] = "allreduce"  # type: ignore[index]
    found = facts(write(tmp_path / "t.json", document(events)))
    device = found["devices"]["0"]
    assert (device["comm_us"], device["comp_us"]) == (10, 10)
    assert (device["comm_comp_overlap_us"], device["comm_exposed_us"]) == (4, 6)
    assert found["collectives_from_metadata"] == {"allreduce": [1, 10]}


def test_a_trace_of_nothing_has_facts(tmp_path: Path) -> None:
    found = facts(write(tmp_path / "t.json", document([])))
    assert found["devices"] == {}
    assert found["kernel_dur_median_us"] is None
    assert found["idle_pct_kernels_only"] is None
    assert found["launch_to_start_median_us"] is None


def test_bytes_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    text = json.dumps(document([span("cpu_op", "tok?", 0, 1)])).encode().replace(b"?", b"\xe9")
    assert facts(write(tmp_path / "t.json", text))["encoding"] == "latin-1"
