"""How many blocks a multiprocessor holds, against NVIDIA's published examples and Kineto's own estimates."""

from math import prod

import pytest
from recorded_traces import TRACES, recorded_trace

from lightning_gpuprof.trace.analyses.kernels.occupancy import multiprocessor_of, resident_blocks
from lightning_gpuprof.trace.tables import Geometry

H100 = {
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "warpSize": 32,
}
RTX_2080_TI = {
    **H100,
    "computeMajor": 7,
    "computeMinor": 5,
    "maxThreadsPerMultiprocessor": 1024,
    "sharedMemPerMultiprocessor": 65536,
}


def blocks(threads: int, registers: int, shared_bytes: int, properties: dict[str, int] | None = None) -> int | None:
    on = multiprocessor_of(properties or H100)
    assert on is not None
    return resident_blocks(
        Geometry(block=(threads, 1, 1), registers_per_thread=registers, shared_memory_bytes=shared_bytes), on
    )


def test_threads_limit() -> None:
    assert blocks(256, 16, 0) == 8
    assert blocks(1024, 16, 0) == 2
    assert blocks(1024, 16, 0, RTX_2080_TI) == 1


def test_small_blocks_are_limited_in_number() -> None:
    assert blocks(32, 16, 0) == 32
    assert blocks(32, 16, 0, RTX_2080_TI) == 16


def test_part_of_a_warp_counts_as_a_warp() -> None:
    assert blocks(65, 16, 0) == blocks(96, 16, 0) == 21


def test_registers_limit_in_each_partition() -> None:
    # 255 registers are 8192 per warp in units of 256: 2 warps in each of 4 partitions
    assert blocks(128, 255, 0) == 2
    # 170 are 5632: 2.9 per partition, so 8 warps; without partitions it would be 11 warps and 2 blocks of 4
    assert blocks(96, 170, 0) == 2


def test_shared_memory_limits_with_a_kilobyte_for_the_system() -> None:
    assert blocks(128, 16, 227 * 1024) == 1
    assert blocks(128, 16, 113 * 1024) == 2
    assert blocks(128, 16, 114 * 1024) == 1
    assert blocks(128, 16, 32 * 1024, RTX_2080_TI) == 2  # which reserves nothing


def test_a_launch_that_cannot_run_is_not_known() -> None:
    assert blocks(128, 16, 228 * 1024) is None
    assert blocks(1024, 255, 0) is None


def test_launches_and_devices_that_say_too_little_are_not_known() -> None:
    on = multiprocessor_of(H100)
    assert on is not None
    assert resident_blocks(Geometry(block=(128, 1, 1), registers_per_thread=16), on) is None
    assert resident_blocks(Geometry(registers_per_thread=16, shared_memory_bytes=0), on) is None
    assert multiprocessor_of({}) is None
    assert multiprocessor_of({**H100, "warpSize": 64}) is None
    assert multiprocessor_of({**H100, "computeMajor": 99}) is None


@pytest.mark.skipif(not TRACES.is_dir(), reason="no recorded traces beside the repository (../shared/traces)")
def test_kinetos_estimates_follow_from_the_same_rules() -> None:
    compared = 0
    for path in sorted(TRACES.glob("*.json.gz")):
        trace = recorded_trace(path.name).trace
        properties = trace.about.device_properties
        on = multiprocessor_of(properties[0]) if properties else None
        if on is None:
            continue
        for geometry in trace.geometries:
            if geometry.est_occupancy_ratio is None or geometry.block is None or geometry.blocks_per_sm is None:
                continue
            resident = resident_blocks(geometry, on)
            assert resident is not None
            ratio = min(resident, geometry.blocks_per_sm) * prod(geometry.block) / on.threads
            assert ratio == pytest.approx(geometry.est_occupancy_ratio, abs=0.00501)  # whole percent
            compared += 1
    assert compared > 1000
