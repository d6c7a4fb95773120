"""What kernels are and how far they fill the device: answers written out, slow references, and recorded traces."""

from functools import cache
from itertools import pairwise
from math import prod

import pytest
from recorded_traces import TRUTH, recorded_trace
from tiny_traces import Json, kernel, linked_trace, span

from lightning_gpuprof.model.trace.kernels import KernelFacts
from lightning_gpuprof.trace.analyses.kernels.device_fill import filled_window_ns, kernel_fill
from lightning_gpuprof.trace.analyses.kernels.kernels import kernels
from lightning_gpuprof.trace.analyses.kernels.launch_shape import launch_shapes
from lightning_gpuprof.trace.analyses.kernels.small_kernels import launch_gaps_ns
from lightning_gpuprof.trace.linked import LinkedTrace

recorded = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")

H100: Json = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "warpSize": 32,
    "numSms": 100,
}
SGEMM = "volta_sgemm_128x64_nn"
TENSOR_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"


def on_h100(events: list[Json]) -> KernelFacts:
    return kernels(linked_trace(events, deviceProperties=[H100]))


def launched(
    name: str, launch: tuple[float, float], run: tuple[float, float], correlation: int, **args: object
) -> list[Json]:
    call = span("cuda_runtime", "cudaLaunchKernel", launch[0], launch[1], correlation=correlation)
    return [call, kernel(name, run[0], run[1], correlation, **args)]


def shape(blocks: int, threads: int = 256, registers: int = 32, shared_bytes: int = 0) -> dict[str, object]:
    return {
        "grid": [blocks, 1, 1],
        "block": [threads, 1, 1],
        "registers_per_thread": registers,
        "shared_memory": shared_bytes,
    }


def test_classes_types_and_tensor_cores() -> None:
    found = on_h100(
        [
            kernel(TENSOR_GEMM, 0, 60),
            kernel(SGEMM, 100, 20),
            kernel("triton_tem_fused_mm_0", 200, 10),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 300, 10),
        ]
    )
    assert {(row.kernel_class, row.count, row.total_us) for row in found.classes} == {
        ("gemm", 2, 80),
        ("triton", 1, 10),
        ("communication", 1, 10),
    }
    assert {(row.dtype, row.matrix_us) for row in found.dtypes} == {("bf16", 60), ("fp32", 20), (None, 10)}
    use = found.tensor_cores
    assert (use.available, use.matrix_us) == (True, 90)
    assert (use.yes_us, use.no_us, use.unknown_us) == (60, 20, 10)
    assert [row.name for row in use.largest_no] == [SGEMM]


def test_products_of_a_vector_are_no_work_for_tensor_cores() -> None:
    found = on_h100([kernel("void gemv2T_kernel_val<int, int, float, float>(int)", 0, 60, **shape(1000))])
    use = found.tensor_cores
    assert (use.no_us, use.unsuited_us, use.largest_no) == (60, 60, ())
    assert [row.why for row in found.no_savings] == ["fills the device"]


def test_a_device_without_tensor_cores_uses_none() -> None:
    pascal = {**H100, "name": "Quadro GP100", "computeMajor": 6}
    linked = linked_trace([kernel("some_gemm", 0, 60, **shape(1000))], deviceProperties=[pascal])
    found = kernels(linked)
    assert found.tensor_cores.available is False
    assert (found.tensor_cores.no_us, found.tensor_cores.unknown_us) == (60, 0)
    assert [row.why for row in found.no_savings] == ["fills the device"]


def test_the_operator_decides_what_an_ambiguous_kernel_is() -> None:
    events = [
        span("cpu_op", "aten::convolution", 0, 10),
        span("cpu_op", "aten::mm", 20, 10),
        *launched(SGEMM, (1, 5), (30, 20), 1),
        *launched(SGEMM, (21, 5), (60, 20), 2),
    ]
    found = on_h100(events)
    assert {(row.name, row.kernel_class) for row in found.kernels} == {(SGEMM, "convolution"), (SGEMM, "gemm")}
    assert {(row.operator, row.kernel_class) for row in found.activity} == {
        ("aten::convolution", "convolution"),
        ("aten::mm", "gemm"),
    }


def test_pointwise_kernels_of_an_optimizer_step_are_the_optimizers_but_not_those_of_its_closure() -> None:
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
    events = [
        span("user_annotation", "Optimizer.step#SGD.step", 0, 100),
        span("cpu_op", "aten::add", 10, 10, Sequence_number=5),  # the forward, in the closure
        span("cpu_op", "aten::add_", 50, 10),
        *launched(add, (12, 5), (30, 10), 1),
        *launched(add, (52, 5), (70, 10), 2),
    ]
    found = on_h100(events)
    assert {(row.operator, row.kernel_class) for row in found.activity} == {
        ("aten::add", "elementwise"),
        ("aten::add_", "optimizer"),
    }


def test_est_sm_efficiency_is_weighted_by_time_and_over_the_window() -> None:
    events = [
        kernel("half", 0, 10, **shape(50)),
        kernel("full", 20, 30, **shape(1000)),
        kernel("also half", 60, 40, **shape(50)),
        kernel("a quarter beside it", 60, 20, stream=8, **shape(25)),
    ]
    fill = on_h100(events).fill
    assert fill.est_sm_efficiency_known_ratio == 1
    assert fill.est_sm_efficiency_ratio == pytest.approx((10 * 0.5 + 30 + 40 * 0.5 + 20 * 0.25) / 100)
    of_window = (10 * 0.5 + 30 + 20 * 0.75 + 20 * 0.5) / 100
    assert fill.est_sm_efficiency_of_window_ratio == pytest.approx(of_window)


def test_the_window_has_no_efficiency_if_much_geometry_is_missing() -> None:
    fill = on_h100([kernel("a", 0, 80, **shape(100)), kernel("b", 80, 20)]).fill
    assert fill.est_sm_efficiency_ratio == 1
    assert fill.est_sm_efficiency_known_ratio == pytest.approx(0.8)
    assert fill.est_sm_efficiency_of_window_ratio is None


def test_est_occupancy_is_kinetos_and_computed_where_kineto_wrote_zero() -> None:
    percent = "est. achieved occupancy %"
    events = [
        kernel("kineto's", 0, 50, **shape(1000), **{percent: 40}),
        # 100 KiB: two blocks of 256 threads on a multiprocessor of 2048, which Kineto cannot tell
        kernel("much shared memory", 60, 50, **shape(1000, shared_bytes=100 * 1024), **{percent: 0}),
    ]
    found = on_h100(events)
    of_kernel = {row.name: row.est_occupancy_ratio for row in found.kernels}
    assert of_kernel == {"kineto's": 0.4, "much shared memory": 0.25}
    assert found.fill.est_occupancy_ratio == pytest.approx(0.325)
    assert found.fill.est_occupancy_known_ratio == 1
    assert found.fill.est_occupancy_computed_ratio == pytest.approx(0.5)


def test_waves_and_their_tails() -> None:
    # 256 threads and 32 registers: 8 blocks per multiprocessor, 800 on the device
    events = [
        kernel("one and a half", 0, 40, **shape(1200)),
        kernel("two", 50, 10, **shape(1600)),
        kernel("a tenth", 70, 10, **shape(80)),
    ]
    found = on_h100(events)
    of_kernel = {row.name: (row.waves, row.tail_ratio) for row in found.kernels}
    assert of_kernel == {"one and a half": (1.5, 0.25), "two": (2.0, 0.0), "a tenth": (0.1, None)}
    assert found.fill.tail_us == pytest.approx(10)


def test_multiprocessors_can_be_told_from_ratios() -> None:
    events = [kernel("a", 0, 10, **shape(40), blocks_per_SM=0.5), kernel("b", 20, 10, **shape(320))]
    found = kernels(linked_trace(events, deviceProperties=[]))
    assert {row.name: row.est_sm_efficiency_ratio for row in found.kernels} == {"a": 0.5, "b": 1.0}
    assert found.fill.est_occupancy_ratio is None
    assert found.fill.tail_us is None


def test_activity_is_by_operator_stream_and_geometry() -> None:
    events = [
        span("cpu_op", "aten::mm", 0, 10),
        *launched("a", (1, 2), (20, 5), 1, **shape(10)),
        *launched("a", (4, 2), (30, 7), 2, **shape(10)),
        *launched("a", (7, 2), (40, 5), 3, **shape(20)),
        *launched("a", (12, 2), (50, 5), 4, stream=9, **shape(10)),
    ]
    found = on_h100(events)
    rows = [(r.operator, r.stream, r.grid, r.count, r.total_us, r.min_us, r.max_us) for r in found.activity]
    assert rows[0] == ("aten::mm", 7, (10, 1, 1), 2, 12, 5, 7)
    assert set(rows[1:]) == {("aten::mm", 7, (20, 1, 1), 1, 5, 5, 5), (None, 9, (10, 1, 1), 1, 5, 5, 5)}


def test_only_the_rows_asked_for_are_kept_but_all_are_counted() -> None:
    linked = linked_trace([kernel(name, at, 5) for at, name in enumerate("abcd")])
    few = kernels(linked, activity_rows=2)
    assert (len(few.activity), few.activity_rows) == (2, 4)
    assert len(kernels(linked, activity_rows=None).activity) == 4


def test_durations_fall_into_buckets_by_their_lower_end() -> None:
    durations = (1.999, 2, 9.999, 10, 1000)
    found = on_h100([kernel("a", 2000 * n, dur) for n, dur in enumerate(durations)])
    assert [bucket.count for bucket in found.durations] == [1, 1, 1, 1, 0, 0, 1]
    assert sum(bucket.total_us for bucket in found.durations) == pytest.approx(sum(durations))
    assert (found.small.count, found.small.total_us) == (3, pytest.approx(13.998))


def test_a_launch_gap_is_idle_time_while_the_host_was_in_the_operator() -> None:
    events = [
        kernel("before", 0, 10),
        span("cpu_op", "aten::relu", 20, 20),
        *launched("waited for", (30, 5), (40, 5), 1),  # idle from 10 on, the operator began at 20
        *launched("queued", (46, 1), (60, 5), 2),  # no operator: idle from 45 on, launched from 46 on
        *launched("too long", (100, 5), (2000, 5), 3),
        kernel("who knows", 3000, 5),
    ]
    linked = linked_trace(events)
    names = [linked.trace.names[number] for number in linked.trace.kernel.name]
    gaps = dict(zip(names, (launch_gaps_ns(linked) / 1000).tolist(), strict=True))
    assert gaps == {"before": 0, "waited for": 20, "queued": 14, "too long": 0, "who knows": 0}
    assert kernels(linked).small.launch_gap_us == 34


def test_small_kernels_cost_their_launches() -> None:
    events = [
        *launched("a", (0, 8), (10, 2), 1),
        *launched("a", (20, 4), (30, 6), 2),
        *launched("long", (40, 9), (50, 30), 3),
        kernel("without a launch", 90, 3),
    ]
    small = on_h100(events).small
    assert (small.count, small.total_us, small.launched_count) == (3, 11, 2)
    assert (small.launch_call_us, small.launch_call_median_us, small.longer_launch_count) == (12, 6, 1)


def test_kernels_of_a_graph_share_its_launch() -> None:
    events = [span("cuda_runtime", "cudaGraphLaunch", 0, 9, correlation=1)]
    events += [kernel("node", 10 * n, 4, 1) for n in (1, 2, 3)]
    small = on_h100(events).small
    assert small.launch_call_us == 9
    assert small.longer_launch_count == 0  # 3 us each


def test_every_kernel_has_one_estimate_or_one_reason() -> None:
    events = [
        kernel(SGEMM, 0, 100, **shape(50)),  # 33 % of multiprocessors idle, tensor cores would save more
        kernel("half full", 200, 100, **shape(50)),
        kernel("full", 400, 100, **shape(1000)),
        kernel("unknown", 600, 100),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 800, 100, **shape(10)),
        kernel("small, launch unknown", 1000, 5),
        *launched("small, waited for", (1010, 5), (1020, 5), 1),
        *launched("small, queued", (1006, 2), (1025, 5), 2),
    ]
    found = on_h100(events)
    estimates = {row.name: (row.kind, row.saving_us) for row in found.savings}
    assert estimates == {
        SGEMM: ("no tensor cores", pytest.approx(100 * (1 - 67 / 494.5))),
        "half full": ("idle multiprocessors", pytest.approx(50)),
        "small, waited for": ("launch gap", 10),
    }
    assert {row.why: row.total_us for row in found.no_savings} == {
        "fills the device": 100,
        "geometry not known": 100,
        "communication": 100,
        "launch not in the trace": 5,
        "the device did not wait": 5,
    }
    (by_tensor_cores,) = (row for row in found.savings if row.kind == "no tensor cores")
    assert (by_tensor_cores.faster_dtype, by_tensor_cores.peak_ratio) == ("tf32", pytest.approx(494.5 / 67))
    (by_fill,) = (row for row in found.savings if row.kind == "idle multiprocessors")
    assert by_fill.est_sm_efficiency_ratio == pytest.approx(0.5)


def test_an_unknown_device_has_no_peak_ratio() -> None:
    unknown = {**H100, "name": "NVIDIA Graphics Device"}
    linked = linked_trace([kernel(SGEMM, 0, 100, **shape(1000))], deviceProperties=[unknown])
    assert [row.why for row in kernels(linked).no_savings] == ["peak ratio not known"]


def test_a_trace_without_kernels_is_empty_and_not_zero() -> None:
    found = kernels(linked_trace([span("cpu_op", "aten::add", 0, 10)]))
    assert found.count == 0
    assert found.device_window_us is None
    assert found.tensor_cores is None
    assert found.fill.est_sm_efficiency_ratio is None
    assert found.small.count_ratio is None
    assert not found.classes + found.kernels + found.activity + found.durations + found.savings + found.no_savings


@cache
def judged_trace(name: str) -> tuple[LinkedTrace, KernelFacts]:
    linked = recorded_trace(name)
    return linked, kernels(linked, activity_rows=None)


@recorded
def test_counts_and_small_kernels_are_those_of_the_truth(name: str) -> None:
    _, found = judged_trace(name)
    assert found.count == TRUTH[name]["n_kernel"]
    assert found.small.count == TRUTH[name]["kernels_under_10us"]
    assert sum(bucket.count for bucket in found.durations[:3]) == found.small.count


@recorded
def test_everything_sums_to_the_time_of_all_kernels(name: str) -> None:
    _, found = judged_trace(name)
    for rows in (found.classes, found.dtypes, found.kernels, found.activity, found.durations):
        assert sum(row.count for row in rows) == found.count
        assert sum(row.total_us for row in rows) == pytest.approx(found.total_us)
    judged = (*found.savings, *found.no_savings)
    assert sum(row.count for row in judged) == found.count
    assert sum(row.total_us for row in judged) == pytest.approx(found.total_us)
    if use := found.tensor_cores:
        assert use.yes_us + use.no_us + use.unknown_us == pytest.approx(use.matrix_us)
        assert use.unsuited_us <= use.no_us
        assert sum(row.matrix_us for row in found.dtypes) == pytest.approx(use.matrix_us)


@recorded
def test_savings_are_bounded(name: str) -> None:
    _, found = judged_trace(name)
    idle_us = sum(device["idle_us"] for device in TRUTH[name]["devices"].values())
    assert sum(row.saving_us for row in found.savings if row.kind == "launch gap") <= idle_us + 0.1
    for row in found.savings:
        assert row.saving_us > 0
        if row.kind != "launch gap":
            assert row.saving_us <= row.total_us
    assert all(first.saving_us >= second.saving_us for first, second in pairwise(found.savings))


@recorded
def test_ratios_are_ratios(name: str) -> None:
    _, found = judged_trace(name)
    for row in (*found.classes, *found.kernels, *found.activity, found.fill):
        for ratio in (row.est_sm_efficiency_ratio, row.est_occupancy_ratio):
            assert ratio is None or 0 <= ratio <= 1 + 1e-9
    of_window, of_kernels = found.fill.est_sm_efficiency_of_window_ratio, found.fill.est_sm_efficiency_ratio
    if of_window is not None and of_kernels is not None and found.device_window_us:
        assert of_window <= of_kernels * found.total_us / found.device_window_us + 1e-9


@recorded
@pytest.mark.parametrize("name", ["v100_dlrm_8rank_3.json.gz", "a100_2rank_nccl_metadata.json.gz"])
def test_the_filled_window_is_that_of_a_slow_count(name: str) -> None:
    linked, _ = judged_trace(name)
    trace = linked.trace
    multiprocessors = int(trace.about.device_properties[0]["numSms"])  # type: ignore[call-overload]
    runs = []
    for row in range(len(trace.kernel)):
        geometry = trace.geometries[trace.kernel.geometry[row]]
        if geometry.grid is not None:
            runs.append((int(trace.kernel.start_ns[row]), int(trace.kernel.end_ns[row]), prod(geometry.grid)))
    filled_ns = 0.0
    moments = sorted({moment for start, end, _ in runs for moment in (start, end)})
    begun = 0
    runs.sort()
    open_runs: list[tuple[int, int, int]] = []
    for start, end in pairwise(moments):
        while begun < len(runs) and runs[begun][0] <= start:
            open_runs.append(runs[begun])
            begun += 1
        open_runs = [run for run in open_runs if run[1] > start]
        filled_ns += min(1, sum(run[2] for run in open_runs) / multiprocessors) * (end - start)
    fill = kernel_fill(linked, launch_shapes(linked))
    assert filled_window_ns(linked, fill) == pytest.approx(filled_ns)


@recorded
@pytest.mark.parametrize("name", ["h100_bert_small.json.gz", "v100_dlrm_8rank_0.json.gz"])
def test_launch_gaps_are_those_of_a_slow_count(name: str) -> None:
    linked, _ = judged_trace(name)
    trace, work = linked.trace, linked.work
    expected = []
    for row in range(len(trace.kernel)):
        start = int(work.start_ns[row])
        earlier = [other for other in range(len(work)) if (int(work.start_ns[other]), other) < (start, row)]
        gap = 0
        if earlier and linked.launch[row] >= 0:
            reached = max(int(work.end_ns[other]) for other in earlier)
            host = int(trace.runtime.start_ns[linked.launch[row]])
            operator = linked.operator[row]
            if operator >= 0 and "::" in trace.names[trace.cpu_op.name[operator]]:
                host = min(host, int(trace.cpu_op.start_ns[operator]))
            gap = max(0, start - max(reached, host))
        expected.append(gap if gap <= 1_000_000 else 0)
    assert sum(expected) > 0
    assert launch_gaps_ns(linked).tolist() == expected


def test_the_phase_and_module_of_kernels_are_those_of_all_launches() -> None:
    found = on_h100(
        [
            span("user_annotation", "forward", 0, 100),
            span("cpu_op", "nn.Module: a", 0, 40),
            span("cpu_op", "nn.Module: b", 50, 40),
            *launched("in both", (1, 2), (120, 7), 1, **shape(10)),
            *launched("in both", (51, 2), (130, 7), 2, **shape(10)),
            *launched("in b", (55, 2), (140, 5), 3, **shape(10, registers=40, shared_bytes=1024)),
        ]
    )
    rows = [(row.name, row.phase, row.module) for row in found.activity]
    assert rows == [("in both", "forward", None), ("in b", "forward", "b")]
    assert [(row.registers_per_thread, row.shared_memory_bytes) for row in found.activity] == [(32, 0), (40, 1024)]
