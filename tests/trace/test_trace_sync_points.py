"""A wait for the device costs the idle time that it causes, not the time for which the host waits."""

from functools import cache
from typing import cast

import pytest
from recorded_traces import TRUTH, recorded_trace
from tiny_traces import Json, linked_trace, span
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.trace.sync_points import SyncPoints
from lightning_gpuprof.trace.analyses.code.sync_points import idle_after, sync_points
from lightning_gpuprof.trace.analyses.code.waits import waits_of
from lightning_gpuprof.trace.intervals import covered_ns
from lightning_gpuprof.trace.linked import LinkedTrace

needs_traces = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")


def found(events: list[Json]) -> SyncPoints:
    return sync_points(linked_trace(events))


@cache
def real(name: str) -> tuple[LinkedTrace, SyncPoints]:
    linked = recorded_trace(name)
    return linked, sync_points(linked)


def kernel(
    correlation: int, launch: float, start: float, dur: float, *, stream: int = 7, device: int = 0
) -> list[Json]:
    """A launch that takes 2 µs, and its kernel."""
    return [
        span("cuda_runtime", "cudaLaunchKernel", launch, 2, correlation=correlation),
        span("kernel", "k", start, dur, pid=device, tid=stream, stream=stream, device=device, correlation=correlation),
    ]


def item(correlation: int, ts: float, end: float, copied: float) -> list[Json]:
    """An ``aten::item``: a copy to pageable memory that waits, and a short synchronisation."""
    name = "Memcpy DtoH (Device -> Pageable)"
    return [
        span("cpu_op", "aten::item", ts, end - ts),
        span("cpu_op", "aten::_local_scalar_dense", ts + 1, end - ts - 1),
        span("cuda_runtime", "cudaMemcpyAsync", ts + 2, end - ts - 8, correlation=correlation),
        span("cuda_runtime", "cudaStreamSynchronize", end - 4, 3),
        span("gpu_memcpy", name, copied, 1, pid=0, tid=7, stream=7, device=0, correlation=correlation),
    ]


@pytest.mark.parametrize(
    ("call", "memory", "waits"),
    [
        ("cudaMemset", "Managed", 1),
        ("cudaMemset", "Pinned", 1),
        ("cudaMemset", "Device", 0),
        ("cudaMemsetAsync", "Managed", 0),
    ],
)
def test_a_memset_of_host_memory_that_is_not_asynchronous_is_a_sync_point(call: str, memory: str, waits: int) -> None:
    memset = [
        span("cuda_runtime", call, 10, 40, correlation=2),
        span("gpu_memset", f"Memset ({memory})", 12, 30, pid=0, tid=7, stream=7, device=0, correlation=2),
    ]
    assert found([*kernel(1, 0, 5, 5), *memset, *kernel(3, 60, 70, 5)]).count == waits


def test_the_copy_and_the_synchronisation_of_an_item_are_one_sync_point() -> None:
    """The item waits from 12 to 102 while the device works until 100; the next kernel runs from 120 on."""
    points = found([*kernel(1, 0, 5, 90), *item(2, 10, 110, 99), *kernel(3, 112, 120, 50)])
    (site,) = points.sites
    assert (site.operation, site.count) == ("aten::item", 1)
    assert site.calls == ("cudaMemcpyAsync", "cudaStreamSynchronize")
    assert site.copy == "Memcpy DtoH (Device -> Pageable)"
    assert site.blocked_us == 92 + 3
    assert site.idle_after_us == 120 - 100
    assert site.cost_us == 20
    assert points.idle_us == 20 + 4  # also between the first kernel and the copy
    assert points.cost_ratio == 20 / 24


def test_a_wait_costs_no_more_than_the_host_was_blocked() -> None:
    """A short wait, after which the host does something else for a second: the idle second is not the wait's."""
    sync = span("cuda_runtime", "cudaStreamSynchronize", 90, 10)
    points = found([*kernel(1, 0, 5, 93), sync, *kernel(2, 1_000_100, 1_000_110, 5)])
    assert points.idle_after_us == 1_000_110 - 98
    assert points.cost_us == 10


def test_a_wait_while_another_stream_has_work_left_costs_nothing() -> None:
    events = [
        *kernel(1, 0, 5, 90),
        *kernel(2, 3, 6, 300, stream=9),
        span("cuda_runtime", "cudaStreamSynchronize", 10, 90),
        *kernel(3, 350, 360, 5),
    ]
    points = found(events)
    assert (points.count, points.blocked_us, points.idle_after_us, points.cost_us) == (1, 90, 0, 0)
    assert points.idle_us == 360 - 306


def test_idle_time_before_a_wait_is_not_the_waits() -> None:
    """The device was idle for 100 µs before a wait for nothing of 20 µs."""
    sync = span("cuda_runtime", "cudaStreamSynchronize", 110, 20)
    points = found([*kernel(1, 0, 5, 5), sync, *kernel(2, 131, 135, 5)])
    assert points.idle_us == 125
    assert points.idle_after_us == 135 - 110
    assert points.cost_us == 20


def test_idle_time_counts_for_the_last_of_two_waits_only() -> None:
    events = [
        *kernel(1, 0, 5, 50),
        span("cuda_runtime", "cudaStreamSynchronize", 10, 50),
        span("cuda_runtime", "cudaEventSynchronize", 70, 10),
        *kernel(2, 85, 90, 5),
    ]
    costs = {site.operation: site.idle_after_us for site in found(events).sites}
    assert costs == {"cudaStreamSynchronize": 0, "cudaEventSynchronize": 90 - 70}


def test_only_the_first_idle_time_after_a_wait_counts() -> None:
    events = [
        *kernel(1, 0, 5, 50),
        span("cuda_runtime", "cudaStreamSynchronize", 10, 50),
        *kernel(2, 65, 70, 5),
        *kernel(3, 100, 110, 5),
    ]
    points = found(events)
    assert points.idle_after_us == 70 - 55
    assert points.idle_us == 15 + 35


def test_idle_time_that_ends_with_work_launched_before_the_window_has_no_culprit() -> None:
    orphan = span("kernel", "orphan", 80, 5, pid=0, tid=7, stream=7, device=0, correlation=99)
    sync = span("cuda_runtime", "cudaStreamSynchronize", 10, 50)
    points = found([*kernel(1, 0, 5, 50), sync, orphan, *kernel(2, 90, 95, 5)])
    assert points.cost_us == 0


def test_the_profilers_own_synchronisations_are_no_sync_points() -> None:
    events = [
        span("cuda_runtime", "cudaDeviceSynchronize", 0, 3),
        *kernel(1, 10, 15, 5),
        span("cuda_runtime", "cudaDeviceSynchronize", 21, 4),
        *kernel(2, 30, 35, 5),
        span("cuda_runtime", "cudaDeviceSynchronize", 50, 5),
    ]
    points = found(events)
    assert (points.count, points.left_out_calls, points.synchronize_calls) == (1, 2, 3)
    assert (points.blocked_us, points.synchronize_us) == (4, 12)


def test_copies_of_pinned_memory_do_not_block() -> None:
    copy = [
        span("cuda_runtime", "cudaMemcpyAsync", 20, 3, correlation=5),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 25, 3, pid=0, tid=7, stream=7, device=0, correlation=5),
    ]
    assert found([*kernel(1, 0, 5, 5), *copy, *kernel(2, 30, 35, 5)]).sites == ()


def test_sites_are_told_apart_by_line_module_and_phase() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 500),
        span("user_annotation", "ProfilerStep#2", 500, 500),
        span("python_function", "train.py(5): step", 0, 1000),
        span("python_function", "nn.Module: Net_0", 200, 100),
        span("python_function", "net.py(7): forward", 202, 96),
        *kernel(1, 1, 5, 20),
        *item(2, 10, 40, 30),
        *kernel(3, 50, 55, 150),
        *item(4, 210, 250, 230),
        *item(5, 600, 640, 630),
        *kernel(6, 700, 710, 5),
    ]
    points = found(events)
    told = {(site.line.frame if site.line else None, site.module, site.phase): site for site in points.sites}
    assert set(told) == {("train.py(5): step", None, None), ("net.py(7): forward", "Net_0", "forward")}
    assert told["train.py(5): step", None, None].count == 2
    assert told["train.py(5): step", None, None].count_per_step == 1
    assert points.count_per_step == 1.5
    assert points.cost_us_per_step == points.cost_us / 2


def test_an_action_of_lightning_is_told_beside_the_line() -> None:
    events = [
        span("python_function", "train.py(5): main", 0, 1000),
        span("user_annotation", "[pl][profile][Callback]TQDMProgressBar.on_train_batch_end", 8, 50),
        span("user_annotation", "ProfilerStep#1", 0, 100),
        *kernel(1, 1, 5, 20),
        *item(2, 10, 40, 30),
        *kernel(3, 50, 55, 15),
    ]
    (site,) = found(events).sites
    assert (site.line.frame, site.annotation) == (
        "train.py(5): main",
        "[pl][profile][Callback]TQDMProgressBar.on_train_batch_end",
    )


def test_without_stacks_a_site_is_the_named_range_and_the_operator_around() -> None:
    events = [
        span("user_annotation", "my metrics", 8, 50),
        span("cpu_op", "fbgemm::permute", 9, 45),
        *kernel(1, 0, 5, 20),
        *item(2, 10, 40, 30),
        *kernel(3, 60, 65, 5),
    ]
    (site,) = found(events).sites
    assert (site.operation, site.line, site.annotation, site.inside) == (
        "aten::item",
        None,
        "my metrics",
        "fbgemm::permute",
    )


@pytest.mark.parametrize(
    "events",
    [
        [],
        [span("cpu_op", "aten::item", 0, 5)],
        [span("cuda_runtime", "cudaStreamSynchronize", 0, 5)],
        kernel(1, 0, 5, 5),
    ],
)
def test_traces_without_most_things_are_valid(events: list[Json]) -> None:
    points = found(events)
    assert points.cost_us == 0
    assert points.cost_ratio is None
    assert points.count_per_step is None


@needs_traces
@pytest.mark.parametrize("name", sorted(TRUTH))
def test_counts_and_times_of_calls_are_the_truth(name: str) -> None:
    _, points = real(name)
    truth = TRUTH[name]
    assert points.synchronize_calls == truth["n_sync"]
    assert points.item_calls == truth["n_item"]
    assert points.synchronize_us == pytest.approx(truth["sync_us"], abs=0.001 * (1 + truth["n_sync"]))
    assert points.item_us == pytest.approx(truth["item_us"], abs=0.001 * (1 + truth["n_item"]))


@needs_traces
@pytest.mark.parametrize("name", sorted(TRUTH))
def test_sites_sum_to_the_total_which_is_no_more_than_the_idle_time(name: str) -> None:
    linked, points = real(name)
    idle_ns = 0
    for rows in linked.device_rows.values():
        start_ns, end_ns = linked.work.start_ns[rows], linked.work.end_ns[rows]
        idle_ns += int(end_ns.max() - start_ns.min()) - covered_ns(start_ns, end_ns)
    assert round(points.idle_us * 1000) == idle_ns
    for field in ("count", "blocked_us", "idle_after_us", "cost_us"):
        assert sum(getattr(site, field) for site in points.sites) == pytest.approx(getattr(points, field))
    assert points.cost_us <= points.idle_after_us <= points.idle_us
    assert points.cost_us <= points.blocked_us
    assert all(site.cost_us <= site.idle_after_us + 1e-6 for site in points.sites)


@needs_traces
@pytest.mark.parametrize("name", sorted(TRUTH))
def test_idle_times_are_those_of_a_search_from_each_wait(name: str) -> None:
    """From each wait to the first work launched after it, and back to when the device ran dry."""
    linked, _ = real(name)
    waits = waits_of(linked)
    expected = [0] * len(waits)
    starts, ends = linked.work.start_ns.tolist(), linked.work.end_ns.tolist()
    launched, launch = linked.launched.tolist(), linked.launch_start_ns.tolist()
    wait_ends = waits.end_ns.tolist()
    for rows in (rows.tolist() for rows in linked.device_rows.values()):
        for wait, end_ns in enumerate(wait_ends):
            after = [starts[row] for row in rows if launched[row] and launch[row] >= end_ns]
            if not after:
                continue
            again_ns = min(after)
            before = [ends[row] for row in rows if starts[row] < again_ns]
            first = min((row for row in rows if starts[row] == again_ns), key=lambda row: row)
            last_wait = max(number for number, end in enumerate(wait_ends) if end <= launch[first])
            if before and max(before) < again_ns and max(before) <= end_ns and launched[first] and last_wait == wait:
                expected[wait] += again_ns - max(max(before), int(waits.start_ns[wait]))
    assert idle_after(linked, waits)[0].tolist() == expected


@needs_traces
def test_every_copy_of_a_batch_from_pageable_memory_is_found() -> None:
    _, points = real("v100_resnet50_dl0_2021.json.gz")
    (site,) = points.sites
    assert (site.operation, site.count_per_step) == ("aten::to", 2)  # images and labels
    assert (site.line.frame, site.line.means) == ("resnet50_profiler_api.py(44): <module>", "call")


def test_convolutions_that_time_algorithms_cost_what_the_device_does_for_them() -> None:
    """Not the time in which it ends what was launched before, which the host waits for first."""
    trace = GpuTrace()
    with trace.step():
        trace.kernel(5000.0)
        trace.trial([300.0, 100.0], plan_us=0.0)
        trace.kernel(50.0)
    with trace.step():
        trace.kernel(50.0, op="aten::conv2d")
        trace.item()
        trace.trial([200.0], op="aten::mm")  # no convolution
    result = found(cast("list[Json]", trace.document()["traceEvents"]))
    assert (result.timed_convolutions, result.steps_with_timed_convolutions) == (1, 1)
    assert 2 * (300 + 100) < result.timed_convolutions_us < 2 * (300 + 100) + 100


@needs_traces
def test_no_convolution_of_a_recorded_trace_times_algorithms() -> None:
    for name in ("h100_owlv2", "rtx2080ti_resnet", "v100_resnet50_dl0_2021"):
        assert real(f"{name}.json.gz")[1].timed_convolutions == 0
