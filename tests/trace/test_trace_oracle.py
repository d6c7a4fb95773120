"""Recorded traces of many GPUs and versions against the ground truth of a slow and simple program."""

import gzip
import json
from decimal import Decimal
from functools import cache

import numpy as np
import pytest
from recorded_traces import TRACES, TRUTH, recorded_trace, tolerance_us

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.intervals import covered_ns
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.reader import Trace

pytestmark = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")


@cache
def measured(name: str) -> tuple[Trace, WindowFacts]:
    trace = recorded_trace(name).trace
    return trace, window_facts(trace, start_step=1, stop_step=2)


def test_counts_are_exact(name: str) -> None:
    trace, facts = measured(name)
    truth = TRUTH[name]
    assert facts.events == truth["n_events"]
    assert facts.bytes_json == truth["bytes_json"]
    assert facts.kernels == truth["n_kernel"]
    assert len(trace.memcpy) == truth["n_memcpy"]
    assert len(trace.memset) == truth["n_memset"]
    assert facts.launches_matched == truth["gpu_matched"]
    assert facts.launches_unmatched == truth["gpu_unmatched"]
    assert facts.problem == ""


def test_recorded_traces_are_streamed(name: str) -> None:
    trace, _ = measured(name)
    assert trace.how == "stream"


def test_activity_of_every_device(name: str) -> None:
    _, facts = measured(name)
    truth = TRUTH[name]["devices"]
    assert {device.device for device in facts.devices} == set(truth)
    for device in facts.devices:
        expected = truth[device.device]
        tolerance = tolerance_us(name, expected["n"])
        assert device.window_us == pytest.approx(expected["window_us"], abs=tolerance_us(name, 1))
        assert device.busy_us == pytest.approx(expected["busy_us"], abs=tolerance)
        assert device.idle_us == pytest.approx(expected["idle_us"], abs=tolerance)
        assert device.busy_us + device.idle_us == pytest.approx(device.window_us, rel=1e-12)
    assert sum(device.kernels for device in facts.devices) == facts.kernels


def test_steps_and_fetches(name: str) -> None:
    _, facts = measured(name)
    truth = TRUTH[name]
    assert facts.steps_us == pytest.approx([duration for _, duration in truth["steps"]], abs=0.001)
    assert facts.dataloader_us == pytest.approx(truth["dataloader_us"], abs=0.001)


def test_top_kernels(name: str) -> None:
    _, facts = measured(name)
    top = [[row.name[:160], row.count, row.total_us] for row in facts.top_kernels[:5]]
    for row, expected in zip(top, TRUTH[name]["top5_kernels"], strict=True):
        assert row[:2] == expected[:2]
        assert row[2] == pytest.approx(expected[2], abs=0.002)


def test_memcpy_bytes(name: str) -> None:
    trace, _ = measured(name)
    for kind, (count, size_bytes, _) in TRUTH[name]["memcpy"].items():
        chosen = trace.memcpy.name == trace.names.index(kind)
        assert chosen.sum() == count
        assert np.maximum(trace.memcpy.size_bytes[chosen], 0).sum() == size_bytes


def test_exclusive_times_sum_to_the_covered_time(name: str) -> None:
    operators = measured(name)[0].cpu_op
    exclusive = Nesting(operators.start_ns, operators.end_ns, operators.thread).exclusive_ns
    assert (exclusive >= 0).all()
    assert (exclusive <= operators.duration_ns).all()
    for thread in np.unique(operators.thread):
        own = operators.thread == thread
        assert exclusive[own].sum() == covered_ns(operators.start_ns[own], operators.end_ns[own])


@pytest.mark.parametrize(
    "name",
    [
        "a100_2rank_nccl_metadata.json.gz",
        "h100_owlv2.json.gz",
        "mi210_gpu_only.json.gz",
        "mi300_8rank_rank0_resnet_ckpt.json.gz",
        "v100_ns_resolution.json.gz",
    ],
)
def test_busy_time_is_exact_to_the_nanosecond(name: str) -> None:
    """The oracle's definition in decimal arithmetic, for the traces where float64 makes a difference."""
    document = json.loads(gzip.decompress((TRACES / name).read_bytes()), parse_float=Decimal)
    work = sorted(
        (Decimal(e["ts"]), Decimal(e["ts"]) + Decimal(e["dur"]))
        for e in document["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    busy = Decimal(0)
    reached = work[0][0]
    for start, end in work:
        busy += max(Decimal(0), end - max(start, reached))
        reached = max(reached, end)
    (device,) = measured(name)[1].devices
    assert device.window_us == float(reached - work[0][0])
    assert device.busy_us == float(busy)
