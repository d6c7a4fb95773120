"""Communication of a trace: its time against computation, what each collective was, and how fast."""

import json
from pathlib import Path

import pytest
from recorded_traces import recorded_trace
from tiny_traces import Json, document, kernel, linked_trace, span, write

from lightning_gpuprof.model.trace.communication import CollectiveKind, Communication
from lightning_gpuprof.trace.analyses.communication.collectives import bus_factor, collective_kind
from lightning_gpuprof.trace.analyses.communication.communication import communication_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def written(name: str, elements_in: int, elements_out: int, dtype: str, size: int) -> dict[str, object]:
    """What Kineto writes beside a communication kernel since torch 2.3."""
    return {
        "Collective_name": name,
        "In_msg_nelems": elements_in,
        "Out_msg_nelems": elements_out,
        "Group_size": size,
        "dtype": dtype,
        "Process_Group_Name": "0",
    }


def analysed(events: list[Json], **tail: object) -> Communication:
    return communication_of(linked_trace(events, **tail))


def two_streams() -> list[Json]:
    """µs: computation [0, 100) and [150, 200), all-reduces [80, 160) and [180, 190), a copy [95, 120)."""
    metadata = written("allreduce", 1000, 1000, "Float", 4)
    return [
        kernel("gemm", 0, 100),
        kernel("relu", 150, 50),
        kernel(ALL_REDUCE, 80, 80, stream=20, **metadata),
        kernel(ALL_REDUCE, 180, 10, stream=20, **metadata),
        span("gpu_memcpy", "Memcpy HtoD", 95, 25, pid=0, tid=8, device=0, stream=8, bytes=64),
    ]


def test_communication_is_split_into_what_computation_covers_and_what_it_does_not() -> None:
    device = analysed(two_streams()).devices[0]
    assert (device.communication_us, device.computation_us) == (90.0, 150.0)
    assert device.overlap_us == 20 + 10 + 10
    assert device.exposed_us == 50.0
    assert device.exposed_ratio == 50 / 200
    assert (device.copy_us, device.copy_exposed_us) == (25.0, 20.0)
    assert device.collectives == 2


def test_bandwidth_is_that_of_nccl_tests() -> None:
    row = analysed(two_streams()).kinds[0]
    assert (row.kind, row.count, row.group_size, row.group_size_source) == ("all_reduce", 2, 4, "collective")
    assert (row.message_bytes, row.total_bytes) == (4000, 8000)
    assert row.algorithm_bandwidth_bytes_per_s == pytest.approx(8000 / 90e-6)
    assert row.bus_bandwidth_bytes_per_s == pytest.approx(8000 / 90e-6 * 2 * 3 / 4)
    assert row.best_bus_bandwidth_bytes_per_s == pytest.approx(4000 / 10e-6 * 1.5)
    assert (row.min_us, row.mean_us, row.max_us, row.exposed_us) == (10.0, 45.0, 80.0, 50.0)


@pytest.mark.parametrize(
    ("name", "size_in", "size_out", "kind", "message_bytes"),
    [
        ("_allgather_base", 100, 400, "all_gather", 800),
        ("_reduce_scatter_base", 400, 100, "reduce_scatter", 800),
        ("all_to_allv", 300, 500, "all_to_all", 600),
        ("broadcast", 100, 100, "broadcast", 200),
        ("send", 100, 0, "send_recv", 200),
    ],
)
def test_the_size_of_a_collective_is_counted_as_nccl_tests_does(
    name: str, size_in: int, size_out: int, kind: CollectiveKind, message_bytes: int
) -> None:
    row = analysed([kernel(SEND_RECV, 0, 10, **written(name, size_in, size_out, "BFloat16", 4))]).sizes[0]
    assert (row.kind, row.message_bytes, row.dtype) == (kind, message_bytes, "bfloat16")


def test_a_range_of_torch_around_the_launch_tells_kind_and_size() -> None:
    around = span("user_annotation", "nccl:all_to_all", 0, 20)
    around["args"] = {"Input Dims": [[6, 1024]], "Input type": ["float"]}
    events = [
        around,
        span("cuda_runtime", "cudaLaunchKernel", 5, 5, correlation=1),
        kernel(SEND_RECV, 30, 10, correlation=1),
    ]
    found = analysed(events, distributedInfo={"backend": "nccl", "rank": 1, "world_size": 2})
    row = found.sizes[0]
    assert (row.kind, row.message_bytes, row.group_size, row.group_size_source) == ("all_to_all", 24576, 2, "world")
    assert row.bus_bandwidth_bytes_per_s == pytest.approx(24576 / 10e-6 / 2)
    assert (found.rank, found.world_size, found.backend) == (1, 2, "nccl")
    assert any("all ranks of the job" in note for note in found.notes)


def test_the_part_that_a_rank_gives_to_an_all_gather_counts_once_per_rank() -> None:
    around = span("user_annotation", "nccl:_all_gather_base", 0, 20)
    around["args"] = {"Input Dims": [[100]], "Input type": ["c10::BFloat16"]}
    launch = span("cuda_runtime", "cudaLaunchKernel", 5, 5, correlation=1)
    events = [around, launch, kernel("ncclKernel_AllGather_RING_LL_Sum_int8_t()", 30, 10, correlation=1)]
    assert analysed(events, distributedInfo={"world_size": 8}).sizes[0].message_bytes == 1600
    assert analysed(events).sizes[0].message_bytes is None


def test_a_job_with_groups_of_several_sizes_does_not_tell_the_size_of_one() -> None:
    groups = {"world_size": 8, "pg_config": [{"pg_name": "0", "pg_size": 8}, {"pg_name": "1", "pg_size": 2}]}
    row = analysed([kernel(ALL_REDUCE, 0, 10)], distributedInfo=groups).kinds[0]
    assert (row.group_size, row.group_size_source) == (None, None)


def test_collectives_that_are_not_known_are_said_to_be_so() -> None:
    found = analysed([kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 0, 10)])
    assert found.kinds[0].kind == "unknown"
    assert found.kinds[0].bus_bandwidth_bytes_per_s is None
    assert any("1 of 1 collectives" in note for note in found.notes)


def test_a_stream_that_also_computes_is_shown() -> None:
    stream = analysed([*two_streams(), kernel("add", 300, 5, stream=20)]).streams[0]
    assert (stream.stream, stream.collectives, stream.communication_us, stream.computation_us) == (20, 2, 90.0, 5.0)


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    events = [
        kernel(ALL_REDUCE, 10 * number, 5, **written("allreduce", number + 1, number + 1, "Float", 2))
        for number in range(5)
    ]
    linked = LinkedTrace(Trace.read(write(tmp_path / "trace.json", document(events))))
    found = communication_of(linked, sizes=3)
    assert (len(found.sizes), found.sizes_left_out, found.kinds[0].count) == (3, 2, 5)


def test_a_trace_without_device_work_has_no_communication() -> None:
    found = analysed([span("cpu_op", "aten::add", 0, 5)])
    assert (found.devices, found.kinds, found.sizes, found.streams, found.notes) == ((), (), (), (), ())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "broadcast"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("ncclDevKernel_Reduce_RING_LL_Sum_f32", "reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("nccl:coalesced", "unknown"),
    ],
)
def test_names_of_all_ages_tell_the_collective(name: str, kind: CollectiveKind) -> None:
    assert collective_kind(name) == kind


def test_factors_of_the_bus_bandwidth() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_to_all", 8) == bus_factor("all_gather", 8) == bus_factor("reduce_scatter", 8) == 0.875
    assert bus_factor("broadcast", 8) == bus_factor("reduce", 8) == bus_factor("send_recv", 8) == 1


def test_real_traces_agree_with_the_oracle(shared: Path) -> None:
    facts = json.loads((shared / "traces" / "FACTS.json").read_text())
    for file in sorted((shared / "traces").glob("*.json.gz")):
        found, truth = communication_of(recorded_trace(file.name)), facts[file.name]
        # the oracle reads these times through float64, a quarter of a microsecond at their size, for each kernel
        close = 20.0 if "ns_resolution" in file.name else 0.1
        assert {one.device for one in found.devices} == set(truth["devices"])
        for one in found.devices:
            expected = truth["devices"][one.device]
            assert one.communication_us == pytest.approx(expected["comm_us"], abs=close), file.name
            assert one.computation_us == pytest.approx(expected["comp_us"], abs=close), file.name
            assert one.overlap_us == pytest.approx(expected["comm_comp_overlap_us"], abs=close), file.name
            assert one.exposed_us == pytest.approx(expected["comm_exposed_us"], abs=close), file.name
            assert one.copy_us == pytest.approx(expected["mem_us"], abs=close), file.name
            assert one.overlap_us + one.exposed_us == pytest.approx(one.communication_us, abs=1e-6)
            assert 0 <= one.copy_exposed_us <= one.copy_us
        of_kind = {one.kind: (one.count, one.total_us) for one in found.kinds}
        for name, (count, total_us) in truth["collectives_from_metadata"].items():
            assert of_kind[collective_kind(name)] == (count, pytest.approx(total_us, abs=0.01)), file.name
        for rows in (found.kinds, found.sizes) if not found.sizes_left_out else (found.kinds,):
            assert sum(one.count for one in rows) == sum(one.collectives for one in found.devices)
            assert sum(one.share_ratio for one in rows) == pytest.approx(1 if rows else 0)
        assert all(0 <= one.exposed_us <= one.total_us for one in found.kinds)
