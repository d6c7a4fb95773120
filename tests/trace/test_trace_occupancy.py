"""How many blocks a multiprocessor holds, against NVIDIA's published examples and Kineto's own estimates."""

from math import prod

import pytest
from recorded_traces import TRACES, recorded_trace

from lightning_gpuprof.trace.analyses.kernels.device_fill import multiprocessor_of, resident_blocks
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


@pytest.mark.parametrize(
    ("threads", "registers", "shared_kib", "properties", "blocks"),
    [
        pytest.param(256, 16, 0, H100, 8, id="threads"),
        pytest.param(1024, 16, 0, H100, 2, id="threads, large blocks"),
        pytest.param(1024, 16, 0, RTX_2080_TI, 1, id="threads, older GPU"),
        pytest.param(32, 16, 0, H100, 32, id="number of blocks"),
        pytest.param(32, 16, 0, RTX_2080_TI, 16, id="number of blocks, older GPU"),
        pytest.param(65, 16, 0, H100, 21, id="part of a warp counts as a warp"),
        pytest.param(96, 16, 0, H100, 21, id="whole warps"),
        # 255 registers are 8192 per warp in units of 256: 2 warps in each of 4 partitions
        pytest.param(128, 255, 0, H100, 2, id="registers"),
        # 170 are 5632: 2.9 per partition, so 8 warps; without partitions it would be 11 warps and 2 blocks of 4
        pytest.param(96, 170, 0, H100, 2, id="registers of each partition"),
        pytest.param(128, 16, 227, H100, 1, id="shared memory, all of it"),
        pytest.param(128, 16, 113, H100, 2, id="shared memory, with a kilobyte for the system"),
        pytest.param(128, 16, 114, H100, 1, id="shared memory, without a kilobyte for the system"),
        pytest.param(128, 16, 32, RTX_2080_TI, 2, id="shared memory, of which nothing is reserved"),
        pytest.param(128, 16, 228, H100, None, id="too much shared memory to run"),
        pytest.param(1024, 255, 0, H100, None, id="too many registers to run"),
    ],
)
def test_what_limits_the_resident_blocks(
    threads: int, registers: int, shared_kib: int, properties: dict[str, int], blocks: int | None
) -> None:
    geometry = Geometry(block=(threads, 1, 1), registers_per_thread=registers, shared_memory_bytes=shared_kib * 1024)
    assert resident_blocks(geometry, multiprocessor_of(properties)) == blocks


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
