"""The tables of Nsight Systems: small traces with the answer written out, and recorded ones against their truth."""

from functools import cache
from pathlib import Path

import pytest
from recorded_traces import TRUTH, recorded_trace, tolerance_us
from tiny_traces import Json, document, span, training_step, write

from lightning_gpuprof.model.trace.api_tables import ApiTables
from lightning_gpuprof.trace.analyses.calls.api_tables import api_tables
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

recorded = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")


def tables_of(tmp_path: Path, events: list[Json]) -> ApiTables:
    return api_tables(LinkedTrace(Trace.read(write(tmp_path / "t.json", document(events)))))


def launch(api: str, correlation: int, ts: float, dur: float) -> Json:
    return span("cuda_runtime", api, ts, dur, correlation=correlation)


def kernel(name: str, correlation: int, ts: float, dur: float, **args: object) -> Json:
    return span("kernel", name, ts, dur, pid=0, tid=7, device=0, stream=7, correlation=correlation, **args)


def test_the_tables_of_a_training_step(tmp_path: Path) -> None:
    found = tables_of(tmp_path, training_step())
    assert found.host_window_us == 100  # the step
    assert found.device_window_us == 90  # 5 to 95
    assert found.api_total_us == 15
    assert [(row.name, row.count, row.total_us) for row in found.cuda_api_sum] == [
        ("cuLaunchKernel", 1, 5),
        ("cudaLaunchKernel", 1, 5),
        ("cudaMemcpyAsync", 1, 5),
    ]
    assert {row.share_of_table_ratio for row in found.cuda_api_sum} == {5 / 15}
    assert {row.share_of_window_ratio for row in found.cuda_api_sum} == {5 / 100}
    assert found.kernel_total_us == 45
    by_name = {row.name: row for row in found.cuda_gpu_kern_sum}
    assert by_name["gemm"].share_of_table_ratio == 20 / 45
    assert by_name["gemm"].share_of_window_ratio == 20 / 90
    assert found.memory_total_us == 5
    (copy,) = found.cuda_gpu_mem_size_sum
    assert (copy.total_bytes, copy.bandwidth_bytes_per_s) == (4096, 819_200_000)
    assert found.kernels_without_launch == 1
    assert found.launch_to_start.count == 3
    assert (found.launch_to_start.min_us, found.launch_to_start.max_us) == (10, 30)
    assert found.launch_to_start.median_us == 14


def test_statistics_are_those_of_nsys(tmp_path: Path) -> None:
    events = [kernel("a", n, 100 * n, dur) for n, dur in enumerate((9, 1, 2, 4))] + [kernel("once", 9, 900, 3)]
    several, once = tables_of(tmp_path, events).cuda_gpu_kern_sum
    assert (several.count, several.total_us, several.average_us) == (4, 16, 4)
    assert (several.min_us, several.median_us, several.max_us) == (1, 3, 9)
    assert several.std_us == pytest.approx((38 / 3) ** 0.5)  # over n - 1
    assert once.std_us == 0


def test_queue_time_counts_only_kernels_that_queued(tmp_path: Path) -> None:
    events = [
        launch("cudaLaunchKernel", 1, 0, 10),
        launch("cudaLaunchKernel", 2, 20, 10),
        kernel("a", 1, 5, 20),  # runs before its call returns
        kernel("a", 2, 50, 10),  # queues from 30 to 50
        launch("cudaLaunchKernel", 3, 100, 50),
        kernel("b", 3, 110, 5),  # ends before its call does
    ]
    (b, a) = sorted(tables_of(tmp_path, events).cuda_kern_exec_sum, key=lambda row: -row.average_us)
    assert (a.count, a.calls, a.queued_count) == (2, 2, 1)
    assert (a.api_total_us, a.api_average_us) == (20, 10)
    assert (a.queue_total_us, a.queue_average_us) == (20, 20)
    assert (a.kernel_total_us, a.kernel_average_us) == (30, 15)
    assert a.total_us == 25 + 40  # 0 to 25 and 20 to 60
    assert b.total_us == 50  # the end of the call is the later one
    assert (b.queued_count, b.queue_total_us, b.queue_average_us) == (0, 0, None)
    assert a.share_of_table_ratio == 65 / 115


def test_a_graph_launch_is_one_call_of_many_kernels(tmp_path: Path) -> None:
    events = [launch("cudaGraphLaunch", 1, 0, 10)]
    events += [kernel("node", 1, 20, 5), kernel("node", 1, 30, 5), kernel("other", 1, 40, 5)]
    found = {row.name: row for row in tables_of(tmp_path, events).cuda_kern_exec_sum}
    assert (found["node"].count, found["node"].calls, found["node"].api_total_us) == (2, 1, 10)
    assert (found["other"].count, found["other"].calls, found["other"].api_total_us) == (1, 1, 10)


def test_copies_without_a_size_are_counted_but_not_as_empty(tmp_path: Path) -> None:
    def copy(ts: float, **args: object) -> Json:
        return span("gpu_memcpy", "Memcpy DtoD", ts, 10, pid=0, tid=7, device=0, stream=7, **args)

    events = [copy(0, bytes=1000), copy(20, bytes=3000), copy(40)]
    events.append(span("gpu_memset", "Memset", 60, 1, pid=0, tid=7, device=0, stream=7))
    with_size, without = tables_of(tmp_path, events).cuda_gpu_mem_size_sum
    assert (with_size.count, with_size.sized_count, with_size.total_bytes) == (3, 2, 4000)
    assert with_size.bandwidth_bytes_per_s == 200_000_000
    assert (with_size.min_bytes, with_size.average_bytes, with_size.max_bytes) == (1000, 2000, 3000)
    assert (without.count, without.sized_count, without.total_bytes, without.bandwidth_bytes_per_s) == (
        1,
        0,
        None,
        None,
    )


def test_grids_that_hip_gives_in_work_items_become_blocks(tmp_path: Path) -> None:
    shape = {"grid": [1000, 2, 1], "block": [256, 1, 1]}
    events = [
        launch("hipExtModuleLaunchKernel", 1, 0, 5),
        launch("hipLaunchKernel", 2, 10, 5),
        kernel("in work-items", 1, 20, 10, **shape),
        kernel("in blocks", 2, 40, 5, **shape),
        kernel("who knows how it was launched", 3, 50, 1, **shape),
    ]
    grids = {row.name: row.grid for row in tables_of(tmp_path, events).cuda_gpu_kern_gb_sum}
    assert grids == {
        "in work-items": (4, 2, 1),
        "in blocks": (1000, 2, 1),
        "who knows how it was launched": (1000, 2, 1),
    }


def test_kernels_that_differ_in_registers_only_are_one_row(tmp_path: Path) -> None:
    events = [
        kernel("a", n, 10 * n, 5, grid=[8, 1, 1], block=[32, 1, 1], registers_per_thread=registers)
        for n, registers in enumerate((16, 32))
    ]
    events.append(kernel("a", 9, 100, 5, grid=[9, 1, 1], block=[32, 1, 1]))
    rows = tables_of(tmp_path, events).cuda_gpu_kern_gb_sum
    assert [(row.grid, row.block, row.count) for row in rows] == [
        ((8, 1, 1), (32, 1, 1), 2),
        ((9, 1, 1), (32, 1, 1), 1),
    ]


def test_a_trace_without_device_work_has_no_rows(tmp_path: Path) -> None:
    found = tables_of(tmp_path, [span("cpu_op", "aten::add", 0, 10)])
    assert found.device_window_us is None
    assert found.host_window_us == 10
    assert not found.cuda_api_sum + found.cuda_gpu_kern_sum + found.cuda_gpu_mem_time_sum + found.cuda_kern_exec_sum
    assert found.launch_to_start is None


def test_an_empty_trace_has_no_window(tmp_path: Path) -> None:
    found = tables_of(tmp_path, [])
    assert found.host_window_us is None


def test_kernels_without_duration_have_no_share(tmp_path: Path) -> None:
    (row,) = tables_of(tmp_path, [kernel("a", 1, 5, 0)]).cuda_gpu_kern_sum
    assert (row.total_us, row.share_of_table_ratio, row.share_of_window_ratio) == (0, None, None)


@cache
def recorded_tables(name: str) -> ApiTables:
    return api_tables(recorded_trace(name))


@recorded
def test_calls_are_those_of_the_truth(name: str) -> None:
    found = {row.name: row for row in recorded_tables(name).cuda_api_sum}
    for call, (count, total_us) in TRUTH[name]["api"].items():
        assert found[call].count == count
        assert found[call].total_us == pytest.approx(total_us, abs=tolerance_us(name, count))
    assert {call: row.count for call, row in found.items() if "launch" in call.lower()} == TRUTH[name]["n_launch"]


@recorded
def test_kernels_are_those_of_the_truth(name: str) -> None:
    found, truth = recorded_tables(name), TRUTH[name]
    assert len(found.cuda_gpu_kern_sum) == truth["n_kernel_names"]
    assert found.kernel_total_us == pytest.approx(truth["kernel_sum_us"], abs=tolerance_us(name, truth["n_kernel"]))
    largest = [(row.name[:160], row.count) for row in found.cuda_gpu_kern_sum[:5]]
    assert largest == [(kernel_name, count) for kernel_name, count, _ in truth["top5_kernels"]]
    for row, (_, count, total_us) in zip(found.cuda_gpu_kern_sum, truth["top5_kernels"], strict=False):
        assert row.total_us == pytest.approx(total_us, abs=tolerance_us(name, count))


@recorded
def test_copies_are_those_of_the_truth(name: str) -> None:
    found = recorded_tables(name)
    times = {row.name: row for row in found.cuda_gpu_mem_time_sum if "Memcpy" in row.name}
    sizes = {row.name: row for row in found.cuda_gpu_mem_size_sum if "Memcpy" in row.name}
    assert set(times) == set(sizes) == set(TRUTH[name]["memcpy"])
    for kind, (count, size, total_us) in TRUTH[name]["memcpy"].items():
        assert times[kind].count == sizes[kind].count == count
        assert (sizes[kind].total_bytes or 0) == size
        assert times[kind].total_us == pytest.approx(total_us, abs=tolerance_us(name, count))


@recorded
def test_latencies_of_launches_are_those_of_the_truth(name: str) -> None:
    latency, truth = recorded_tables(name).launch_to_start, TRUTH[name]
    if latency is None:
        assert truth["launch_to_start_median_us"] is None
        return
    assert latency.count == truth["gpu_matched"]
    assert latency.negative_count == truth["negative_launch_latency"]
    assert latency.median_us == pytest.approx(truth["launch_to_start_median_us"], abs=tolerance_us(name, 2))
    assert latency.max_us == pytest.approx(truth["launch_to_start_max_us"], abs=tolerance_us(name, 1))


@recorded
def test_tables_agree_with_each_other(name: str) -> None:
    found = recorded_tables(name)
    by_name = {row.name: row for row in found.cuda_gpu_kern_sum}
    for table, total_us in (
        (found.cuda_api_sum, found.api_total_us),
        (found.cuda_gpu_kern_sum, found.kernel_total_us),
        (found.cuda_gpu_kern_gb_sum, found.kernel_total_us),
        (found.cuda_gpu_mem_time_sum, found.memory_total_us),
    ):
        assert sum(row.total_us for row in table) == pytest.approx(total_us)
        if table and total_us:
            assert sum(row.share_of_table_ratio or 0 for row in table) == pytest.approx(1)
        for row in table:
            assert row.min_us <= row.median_us <= row.max_us
            assert row.min_us <= row.average_us <= row.max_us + 1e-9
    for shape in found.cuda_gpu_kern_gb_sum:
        assert shape.total_us <= by_name[shape.name].total_us
    launched = sum(row.count for row in found.cuda_kern_exec_sum)
    assert launched + found.kernels_without_launch == sum(row.count for row in found.cuda_gpu_kern_sum)
    for row in found.cuda_kern_exec_sum:
        assert row.kernel_total_us <= row.total_us
        assert row.queued_count <= row.count
        assert row.calls <= row.count
        if row.calls == row.count:
            assert row.total_us <= row.api_total_us + row.queue_total_us + row.kernel_total_us + 1e-6


def test_calls_and_gpu_work_are_in_one_table_that_adds_up() -> None:
    found = api_tables(recorded_trace("h100_bert_small.json.gz"))
    rows = found.cuda_api_gpu_sum
    assert {one.category for one in rows} == {"CUDA_API", "CUDA_KERNEL", "MEMORY_OPER"}
    assert len(rows) == len(found.cuda_api_sum) + len(found.cuda_gpu_kern_sum) + len(found.cuda_gpu_mem_time_sum)
    assert sum(one.share_of_table_ratio or 0.0 for one in rows) == pytest.approx(1)
    assert [one.total_us for one in rows] == sorted((one.total_us for one in rows), reverse=True)
    assert found.steps == 1
