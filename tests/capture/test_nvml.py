"""The sampler against a scripted backend, and against a C library through the real ``pynvml``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from fake_nvml import builder
from fake_nvml.builder import FakeGpu, Scenario

from lightning_gpuprof.capture.host.sources import Roots
from lightning_gpuprof.capture.nvml.backend import (
    ERROR_COUNTERS,
    SLOW,
    VALUES,
    Answer,
    DriverGoneError,
    GpuLostError,
    NvmlDevice,
    NvmlError,
    Query,
    UnsupportedError,
)
from lightning_gpuprof.capture.nvml.processes import Family, GpuProcess, summary
from lightning_gpuprof.capture.nvml.sampler import SLOW_EVERY, NvmlSampler
from lightning_gpuprof.capture.recorder import Reading, SourceUnavailableError
from lightning_gpuprof.model import device
from lightning_gpuprof.model.journal import Conditions, Notice, Sample, Value

BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Keeps the doubt about the order of GPUs of different kinds out of the notices."""

ALL_NAMES = {name for names in VALUES.values() for name in names}
FAST_NAMES = {name for query, names in VALUES.items() if query not in SLOW | ERROR_COUNTERS for name in names}

ANSWERS: dict[Query, Answer] = {
    query: tuple(float(10 * n + m) for m in range(len(names))) for n, (query, names) in enumerate(VALUES.items(), 1)
}
POWER = ANSWERS["power"][0]


def always_answers(gpu: int, query: Query, nth: int) -> NvmlError | None:
    return None


class ScriptedBackend:
    """Answers the same each time, unless the script has an error for the GPU, the query and the sample."""

    def __init__(self, gpus: int, script: Callable[[int, Query, int], NvmlError | None]) -> None:
        self._gpus = gpus
        self._script = script
        self.asked: list[tuple[int, Query]] = []
        self.closed = 0

    def devices(self) -> Sequence[NvmlDevice]:
        return [NvmlDevice(index=n, uuid=f"GPU-{n}", name=f"Fake {n}", handle=n) for n in range(self._gpus)]

    def facts(self, device: NvmlDevice) -> Mapping[str, Value]:
        return {"memory_total_bytes": 80.0}

    def read(self, device: NvmlDevice, query: Query) -> Answer:
        self.asked.append((device.index, query))
        error = self._script(device.index, query, self.asked.count((device.index, query)))
        if error is not None:
            raise error
        return ANSWERS[query]

    def xids(self, device: NvmlDevice) -> Sequence[int]:
        return ()

    def close(self) -> None:
        self.closed += 1


def opened(backend: ScriptedBackend) -> NvmlSampler:
    sampler = NvmlSampler(None, BY_BUS, connect=lambda: backend)
    sampler.open()
    return sampler


def sampled(sampler: NvmlSampler, times: int) -> list[Reading]:
    return [reading for t_ns in range(times) for reading in sampler.sample(t_ns)]


def samples(readings: Sequence[Reading]) -> list[Sample]:
    return [each for each in readings if isinstance(each, Sample)]


def notices(readings: Sequence[Reading]) -> list[str]:
    assert all(each.part == "nvml" for each in readings if isinstance(each, Notice))
    return [each.message for each in readings if isinstance(each, Notice)]


def test_each_gpu_has_one_sample_with_all_values_and_the_given_time() -> None:
    sampler = opened(ScriptedBackend(2, always_answers))
    readings = sampler.sample(7)
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1"]
    for sample in samples(readings):
        assert (sample.source, sample.t_ns) == ("nvml", 7)
        assert sample.values.keys() == ALL_NAMES
        assert sample.values["memory_free_bytes"] == ANSWERS["memory"][1]
    assert notices(readings) == []


def test_the_numa_node_of_a_gpu_is_read_with_what_does_not_change(tmp_path: Path) -> None:
    class AtABus(ScriptedBackend):
        def facts(self, device: NvmlDevice) -> Mapping[str, Value]:
            return {"pci_bus_id": f"00000000:0{device.index}:00.0"}

    nodes = tmp_path / "devices/system/node"
    address = tmp_path / "bus/pci/devices/0000:01:00.0"
    for folder, name, text in (
        (nodes, "online", "0-1"),
        (nodes / "node1", "cpulist", "4-7"),
        (address, "numa_node", "1"),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    backend = AtABus(2, always_answers)
    sampler = NvmlSampler(None, BY_BUS, connect=lambda: backend, roots=Roots(sys=tmp_path))
    sampler.open()
    found = sampler.sample(1)[0]
    assert isinstance(found, Conditions)
    assert {name: value for name, value in found.values.items() if "numa" in name} == {"gpu1.numa_node": 1}


def test_the_first_reading_says_which_gpus_they_are_and_says_it_once() -> None:
    sampler = opened(ScriptedBackend(2, always_answers))
    first, second = sampler.sample(1), sampler.sample(2)
    assert first[0] == Conditions(
        values={
            "gpu0.name": "Fake 0",
            "gpu0.uuid": "GPU-0",
            "gpu0.memory_total_bytes": 80.0,
            "gpu1.name": "Fake 1",
            "gpu1.uuid": "GPU-1",
            "gpu1.memory_total_bytes": 80.0,
        }
    )
    assert len(samples(second)) == len(second) == 2


def test_slow_queries_come_in_every_tenth_sample_and_error_counters_once_a_minute_and_at_the_end() -> None:
    backend = ScriptedBackend(1, always_answers)
    sampler = NvmlSampler(None, BY_BUS, interval_s=1.0, connect=lambda: backend, now=lambda: 99)
    sampler.open()
    readings = samples(sampled(sampler, 61))
    with_slow = [sample.t_ns for sample in readings if "performance_state" in sample.values]
    assert with_slow == [0, *range(1, 61, SLOW_EVERY)]
    assert [sample.t_ns for sample in readings if "ecc_corrected_count" in sample.values] == [0, 60]
    assert all(sample.values.keys() >= FAST_NAMES for sample in readings)
    (last,) = sampler.close()
    assert isinstance(last, Sample)
    assert last.t_ns == 99
    assert last.values.keys() == {name for query in ERROR_COUNTERS for name in VALUES[query]}


def test_reports_know_the_error_counters_by_the_same_names() -> None:
    assert {name for query in ERROR_COUNTERS for name in VALUES[query]} == set(device.ERROR_COUNTERS)


def test_the_counters_make_the_blocking_look_at_pcie_needless() -> None:
    backend = ScriptedBackend(1, always_answers)
    sampler = opened(backend)
    sampled(sampler, 30)
    assert (0, "pcie_throughput") not in backend.asked
    without = ScriptedBackend(1, always_answers)
    sampler = NvmlSampler(None, BY_BUS, gpm=False, connect=lambda: without)
    sampler.open()
    values = samples(sampler.sample(0))[0].values
    assert (0, "activity") not in without.asked
    assert values["pcie_tx_bytes_per_s"] == ANSWERS["pcie_throughput"][0]
    assert "sm_active_ratio" not in values


def test_what_is_unsupported_is_none_once_listed_in_one_notice_and_not_asked_again() -> None:
    unsupported = {"utilization", "power", "nvlink_errors"}
    backend = ScriptedBackend(
        2, lambda gpu, query, nth: UnsupportedError("Not Supported") if gpu == 1 and query in unsupported else None
    )
    readings = sampled(opened(backend), 4)
    missing = {name for query in unsupported for name in VALUES[query]}  # type: ignore[index]
    first, *later = [sample for sample in samples(readings) if sample.subject == "gpu1"]
    assert {name for name, value in first.values.items() if value is None} == missing
    assert all(not missing & sample.values.keys() for sample in later)
    assert all(None not in sample.values.values() for sample in samples(readings) if sample.subject == "gpu0")
    assert notices(readings) == ["gpu1 does not report utilization, power (Not Supported)"]
    assert backend.asked.count((1, "power")) == 1
    assert backend.asked.count((0, "power")) == 4


def test_a_passing_error_is_none_for_that_sample_noticed_once_and_asked_again() -> None:
    backend = ScriptedBackend(
        1, lambda gpu, query, nth: NvmlError("Timeout") if query == "power" and nth in (2, 3) else None
    )
    readings = sampled(opened(backend), 5)
    assert [sample.values["power_w"] for sample in samples(readings)] == [POWER, None, None, POWER, POWER]
    assert notices(readings) == ["gpu0 did not report power (Timeout); trying again"]


def test_processes_of_a_container_that_cannot_be_separated_are_noticed_once() -> None:
    class InContainer(ScriptedBackend):
        def read(self, device: NvmlDevice, query: Query) -> Answer:
            return (2.0, 0.0, None, None, None) if query == "processes" else super().read(device, query)

    readings = sampled(opened(InContainer(1, always_answers)), 25)
    (message,) = notices(readings)
    assert message.startswith("gpu0: the driver lists processes by the machine's process ids")


def test_a_lost_gpu_is_left_out_and_the_other_goes_on() -> None:
    sampler = opened(
        ScriptedBackend(2, lambda gpu, query, nth: GpuLostError("GPU is lost") if gpu == 0 and nth == 2 else None)
    )
    readings = sampled(sampler, 4)
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1", "gpu1", "gpu1", "gpu1"]
    assert notices(readings) == ["gpu0 stopped responding: GPU is lost; not measured from here on"]


def test_a_gpu_that_answers_nothing_for_three_samples_counts_as_lost_with_one_notice() -> None:
    sampler = opened(
        ScriptedBackend(
            2,
            lambda gpu, query, nth: (
                NvmlError("Unknown Error") if gpu == 1 and (nth > 1 or query == "pcie_throughput") else None
            ),
        )
    )
    readings = sampled(sampler, 6)
    assert [sample.subject for sample in samples(readings)].count("gpu0") == 6
    of_lost = [sample for sample in samples(readings) if sample.subject == "gpu1"]
    assert [any(sample.values.values()) for sample in of_lost] == [True, False, False]
    assert notices(readings) == ["gpu1 stopped responding: Unknown Error; not measured from here on"]


def test_a_gpu_that_misses_one_sample_is_kept() -> None:
    first = {"pcie_throughput": 1}  # the counters spare the first sample this query
    sampler = opened(
        ScriptedBackend(1, lambda gpu, query, nth: NvmlError("Timeout") if nth == first.get(query, 2) else None)
    )
    readings = sampled(sampler, 6)
    assert [sample.values["power_w"] for sample in samples(readings)] == [POWER, None, POWER, POWER, POWER, POWER]
    assert notices(readings) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GpuLostError("GPU is lost"), "gpu0 stopped responding: GPU is lost"),
        (DriverGoneError("Driver Not Loaded"), "NVML stopped responding: Driver Not Loaded"),
    ],
)
def test_when_no_gpu_is_left_the_sampler_ends(error: NvmlError, words: str) -> None:
    backend = ScriptedBackend(1, lambda gpu, query, nth: error if nth == 2 else None)
    sampler = opened(backend)
    sampler.sample(1)
    with pytest.raises(SourceUnavailableError, match=words):
        sampler.sample(2)
    sampler.close()
    assert backend.closed == 1


def test_without_nvml_one_sentence_says_what_is_missing() -> None:
    def no_library() -> ScriptedBackend:
        raise DriverGoneError("NVML Shared Library Not Found")

    sampler = NvmlSampler(None, {}, connect=no_library)
    with pytest.raises(SourceUnavailableError) as caught:
        sampler.open()
    assert str(caught.value) == (
        "NVML not available: NVML Shared Library Not Found; GPU utilization, power and temperature are not measured"
    )
    assert sampler.close() == ()


def test_a_process_that_sees_no_gpu_samples_none() -> None:
    sampler = NvmlSampler(None, {"CUDA_VISIBLE_DEVICES": ""}, connect=lambda: ScriptedBackend(2, always_answers))
    with pytest.raises(SourceUnavailableError, match="no GPU is visible to this process"):
        sampler.open()


# The real pynvml on a scripted library ------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(builder.compiler() is None, reason="no C compiler (cc) to build the fake NVML")

OTHERS_PID = 1
"""A process that is on every machine, and neither ours nor a child of ours."""

TWO = (
    FakeGpu(uuid="GPU-11111111-aaaa-bbbb-cccc-000000000000", links=2, ecc_rises=True),
    FakeGpu(
        uuid="GPU-22222222-aaaa-bbbb-cccc-000000000000",
        name="NVIDIA Other 200",
        utilization_percent=0,
        fan_percent=None,
    ),
)
MIB = 1 << 20
FAST: Mapping[str, float] = {
    "utilization_ratio": 0.83,
    "memory_utilization_ratio": 0.41,
    "memory_used_bytes": 20e9,
    "memory_free_bytes": 59.5e9,
    "power_w": 412.5,
    "temperature_c": 61.0,
    "sm_clock_mhz": 1755.0,
    "memory_clock_mhz": 2619.0,
    "clocks_event_reasons_mask": 0.0,
    "sm_active_ratio": 0.71,
    "sm_occupancy_ratio": 0.33,
    "tensor_active_ratio": 0.52,
    "tensor_hmma_active_ratio": 0.50,
    "dram_active_ratio": 0.44,
    "pcie_tx_bytes_per_s": 100.0 * MIB,
    "pcie_rx_bytes_per_s": 2000.0 * MIB,
    "nvlink_tx_bytes_per_s": 3000.0 * MIB,
    "nvlink_rx_bytes_per_s": 3000.0 * MIB,
}
SLOW_VALUES: Mapping[str, float] = {
    "power_limit_w": 700.0,
    "performance_state": 0.0,
    "pcie_generation": 5.0,
    "pcie_width": 16.0,
    "fan_ratio": 0.34,
    "compute_processes_count": 1.0,
    "graphics_processes_count": 0.0,
    "foreign_processes_count": 0.0,
    "memory_own_bytes": 18e9,
    "memory_others_bytes": 0.0,
}


def without_energy(sample: Sample) -> dict[str, float | None]:
    return {name: value for name, value in sample.values.items() if name != "energy_j"}


@needs_compiler
def test_values_arrive_in_our_units_through_the_real_binding(tmp_path: Path) -> None:
    readings = builder.run_sampler(builder.build(Scenario(gpus=TWO), tmp_path), samples=7, environ=BY_BUS)
    of_first = [sample for sample in samples(readings) if sample.subject == "gpu0"]
    assert without_energy(of_first[1]) == pytest.approx({**FAST, **SLOW_VALUES})
    assert without_energy(of_first[2]) == pytest.approx(FAST)
    energies = [sample.values["energy_j"] for sample in of_first[:3]]
    assert energies == pytest.approx([1206.25, 1412.5, 1618.75])  # half a second of its power at each asking
    errors = {"ecc_corrected_count": 2.0, "ecc_uncorrected_count": 0.0, "remapped_rows_count": 1.0}
    assert errors.items() <= of_first[0].values.items()
    assert of_first[0].values["nvlink_replay_count"] == 2.0
    assert of_first[-1].values["ecc_corrected_count"] == 3.0
    assert notices(readings) == []
    of_second = next(sample for sample in samples(readings) if sample.subject == "gpu1")
    assert of_second.values["utilization_ratio"] == 0.0
    assert of_second.values["fan_ratio"] is None  # which is nothing to note


@needs_compiler
def test_facts_are_given_once_and_what_a_gpu_does_not_have_is_left_out(tmp_path: Path) -> None:
    old = FakeGpu(uuid="GPU-2", gpm=False, fails={"nvlink": 3, "ecc": 3, "refresh": 3, "power_limit": 3})
    readings = builder.run_sampler(builder.build(Scenario(gpus=(TWO[0], old)), tmp_path), samples=2)
    facts = [reading.values for reading in readings if isinstance(reading, Conditions)]
    assert len(facts) == 1
    assert {name.removeprefix("gpu0."): value for name, value in facts[0].items() if name.startswith("gpu0.")} == {
        "name": "NVIDIA Fake 100",
        "uuid": TWO[0].uuid,
        "pci_bus_id": "00000000:01:00.0",
        "compute_capability": "9.0",
        "driver_version": "999.01",
        "cuda_driver_version": "12.8",
        "memory_total_bytes": 80e9,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_max_mhz": 2619.0,
        "fans_count": 1,
        "pcie_generation_max": 5.0,
        "pcie_width_max": 16.0,
        "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 700.0,
        "ecc": True,
        "mig": False,
        "nvlink_active_count": 2,
        "nvlink_version": 4,
        "persistence_mode": True,
        "compute_mode": "default",
        "gpm": "supported",
        "utilization_refresh_s": 0.2,
    }
    of_old = {name.removeprefix("gpu1.") for name in facts[0] if name.startswith("gpu1.")}
    assert not of_old & {"nvlink_active_count", "ecc", "utilization_refresh_s", "power_limit_max_w"}
    assert facts[0]["gpu1.gpm"] == "Not Supported"


@needs_compiler
def test_cuda_order_is_kept_by_uuid_and_by_environment(tmp_path: Path) -> None:
    library = builder.build(Scenario(gpus=TWO), tmp_path)
    by_uuid = builder.run_sampler(library, samples=1, uuids=(TWO[1].uuid.removeprefix("GPU-"),))
    by_environ = builder.run_sampler(library, samples=1, environ={"CUDA_VISIBLE_DEVICES": "GPU-2222"})
    for readings in (by_uuid, by_environ):
        assert isinstance(readings[0], Conditions)
        assert readings[0].values["gpu0.name"] == TWO[1].name
        assert readings[0].values["gpu0.uuid"] == TWO[1].uuid
        assert {sample.subject for sample in samples(readings)} == {"gpu0"}


@needs_compiler
def test_unsupported_values_and_functions_that_the_driver_lacks_are_none_with_one_notice(tmp_path: Path) -> None:
    gpu = FakeGpu(
        uuid="GPU-1",
        fails={"utilization": builder.NOT_SUPPORTED, "power": builder.NO_PERMISSION, "clock": 2},
        power_limit_mw=0xFFFF_FFFF,
    )
    old_driver = frozenset(
        {
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetRemappedRows",
            "nvmlGpmQueryDeviceSupport",
        }
    )
    readings = builder.run_sampler(builder.build(Scenario(gpus=(gpu,), without=old_driver), tmp_path), samples=3)
    first = samples(readings)[0].values
    # The older functions answer instead; theirs counts the driver's reserve as used.
    assert first["temperature_c"] == 61.0
    assert first["memory_used_bytes"] == 20.5e9
    assert first["clocks_event_reasons_mask"] == 0.0
    assert first["compute_processes_count"] == 1.0
    assert (first["remapped_rows_count"], first["retired_pages_count"]) == (None, 2.0)
    assert first["pcie_tx_bytes_per_s"] == 1_024_000.0
    assert {"utilization_ratio", "power_w", "power_limit_w", "sm_clock_mhz", "sm_active_ratio"} <= {
        name for name, value in first.items() if value is None
    }
    assert notices(readings) == [
        "gpu0 does not report utilization (Not Supported); power (Insufficient Permissions); "
        "SM clock, memory clock (Invalid Argument); "
        "activity of SMs, tensor cores and DRAM by GPM (Function Not Found); "
        "power limit (Not Available)"
    ]


@needs_compiler
@pytest.mark.parametrize("visible", ["0", "MIG-7777", "MIG-GPU-1/3/0"])
def test_a_partitioned_gpu_is_measured_by_its_mig_device(tmp_path: Path, visible: str) -> None:
    mig = FakeGpu(uuid="MIG-7777", name="NVIDIA Fake 100 MIG 1g", fails={"utilization": builder.NOT_SUPPORTED})
    readings = builder.run_sampler(
        builder.build(Scenario(gpus=(FakeGpu(uuid="GPU-1", mig=(mig,)), TWO[1])), tmp_path),
        samples=3,
        environ={"CUDA_VISIBLE_DEVICES": visible},
    )
    sample = samples(readings)[0]
    assert sample.values["utilization_ratio"] is None
    assert sample.values["memory_used_bytes"] == 20e9
    assert samples(readings)[1].values["sm_active_ratio"] == pytest.approx(0.71)  # of its slice
    assert isinstance(readings[0], Conditions)
    assert readings[0].values["gpu0.uuid"] == "MIG-7777"
    assert readings[0].values["gpu0.mig"] is True


@needs_compiler
def test_counters_that_another_client_holds_are_absent_and_asked_again(tmp_path: Path) -> None:
    gpu = FakeGpu(uuid="GPU-1", fails={"gpm": builder.IN_USE})
    readings = builder.run_sampler(builder.build(Scenario(gpus=(gpu,)), tmp_path), samples=4)
    for sample in samples(readings)[:4]:
        assert sample.values["sm_active_ratio"] is None
        assert sample.values["utilization_ratio"] == 0.83
    assert samples(readings)[1].values["pcie_rx_bytes_per_s"] == 5_120_000.0  # the other way to know it
    (message,) = notices(readings)
    assert message.startswith("gpu0 did not report activity of SMs, tensor cores and DRAM by GPM")
    assert message.endswith("(In use by another client); trying again")


@needs_compiler
def test_processes_of_others_are_counted_with_their_memory(tmp_path: Path) -> None:
    gpu = FakeGpu(
        uuid="GPU-1", processes=((0, 5 << 30, False), (OTHERS_PID, 3 << 30, False), (OTHERS_PID, 3 << 30, True))
    )
    readings = builder.run_sampler(builder.build(Scenario(gpus=(gpu,)), tmp_path), samples=1)
    values = samples(readings)[0].values
    assert values["compute_processes_count"] == 2.0
    assert values["graphics_processes_count"] == 1.0
    assert values["foreign_processes_count"] == 1.0
    assert values["memory_own_bytes"] == float(5 << 30)
    assert values["memory_others_bytes"] == float(3 << 30)


@needs_compiler
def test_a_forked_child_reaches_no_function_of_the_driver(tmp_path: Path) -> None:
    readings = builder.run_sampler(builder.build(Scenario(gpus=TWO[:1]), tmp_path), samples=3, fork=True)
    assert len(samples(readings)) >= 3
    assert notices(readings) == []


@needs_compiler
def test_a_gpu_that_cannot_be_opened_leaves_the_others(tmp_path: Path) -> None:
    gpus = (FakeGpu(uuid="GPU-1", open_fails=builder.GPU_IS_LOST), TWO[1])
    library = builder.build(Scenario(gpus=gpus), tmp_path)
    readings = builder.run_sampler(library, samples=1, uuids=(TWO[1].uuid,))
    assert samples(readings)[0].subject == "gpu0"


@needs_compiler
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (builder.GPU_IS_LOST, "stopped responding: GPU is lost"),
        (builder.DRIVER_NOT_LOADED, "NVML stopped responding: Driver Not Loaded"),
        (builder.UNKNOWN, "stopped responding: Unknown Error"),
    ],
)
def test_a_driver_that_goes_in_mid_run_ends_the_sampling_with_one_notice_each(
    tmp_path: Path, code: int, words: str
) -> None:
    scenario = Scenario(gpus=TWO[:1], fail_after=2, fail_with=code)
    readings = builder.run_sampler(builder.build(scenario, tmp_path), samples=1000)
    assert without_energy(samples(readings)[1]) == pytest.approx({**FAST, **SLOW_VALUES})
    assert all(value is None for sample in samples(readings)[2:] for value in sample.values.values())
    (message,) = notices(readings)
    assert words in message


def codes(readings: Sequence[Reading]) -> list[float | None]:
    return [sample.values["xid"] for sample in samples(readings) if "xid" in sample.values]


@needs_compiler
def test_critical_errors_are_noted_once_with_what_they_mean(tmp_path: Path) -> None:
    scenario = Scenario(gpus=(FakeGpu(uuid="GPU-1", xids=(31, 31)), FakeGpu(uuid="GPU-2", xids=(999,))))
    readings = builder.run_sampler(builder.build(scenario, tmp_path), samples=8, environ=BY_BUS)
    assert sorted(codes(readings)) == [31, 31, 999]
    assert sorted(notices(readings)) == ["gpu0: Xid 31 (GPU memory page fault)", "gpu1: Xid 999"]


@needs_compiler
def test_the_error_of_a_gpu_that_is_lost_is_noted(tmp_path: Path) -> None:
    scenario = Scenario(gpus=(FakeGpu(uuid="GPU-1", xids=(79,)),), fail_after=2, fail_with=builder.GPU_IS_LOST)
    readings = builder.run_sampler(builder.build(scenario, tmp_path), samples=1000)
    assert codes(readings) == [79]
    said, lost = notices(readings)
    assert said == "gpu0: Xid 79 (GPU has fallen off the bus)"
    assert "stopped responding: GPU is lost" in lost


@needs_compiler
@pytest.mark.parametrize("without", [frozenset(), frozenset({"nvmlEventSetCreate"})])
def test_a_driver_that_reports_no_errors_is_nothing_to_note(tmp_path: Path, without: frozenset[str]) -> None:
    gpu = FakeGpu(uuid="GPU-1", xids=(79,), fails={"events": builder.NOT_SUPPORTED})
    readings = builder.run_sampler(builder.build(Scenario(gpus=(gpu,), without=without), tmp_path), samples=3)
    assert codes(readings) == []
    assert notices(readings) == []


@needs_compiler
def test_a_machine_whose_driver_is_not_loaded_says_so_in_one_line(tmp_path: Path) -> None:
    readings = builder.run_sampler(
        builder.build(Scenario(gpus=TWO, init_fails=builder.DRIVER_NOT_LOADED), tmp_path), samples=1
    )
    assert readings == [
        Notice(
            part="nvml",
            message="NVML not available: Driver Not Loaded; GPU utilization, power and temperature are not measured",
        )
    ]


@needs_compiler
def test_a_hanging_call_reaches_neither_the_main_thread_nor_the_end_of_the_process(tmp_path: Path) -> None:
    scenario = Scenario(gpus=TWO, hang_after=1)
    readings = builder.run_sampler(builder.build(scenario, tmp_path), until_hang=True, environ=BY_BUS)
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1"]
    (message,) = notices(readings)
    assert message.startswith("no answer for ")


PARENTS = {30: 20, 20: 10, 10: 1, 77: 1}


def process(pid: int, memory: float | None = 5.0) -> GpuProcess:
    return GpuProcess(pid=pid, memory_bytes=memory)


@pytest.mark.parametrize(
    ("compute", "graphics", "sees_all", "expected"),
    [
        pytest.param(
            [process(10), process(30, 2.0), process(77, 3.0)],
            [],
            True,
            (3.0, 0.0, 1.0, 7.0, 3.0),
            id="children and their children are ours",
        ),
        pytest.param(
            [process(77)], [process(77)], True, (1.0, 1.0, 1.0, None, 5.0), id="one with both contexts counts once"
        ),
        pytest.param([process(5000)], None, False, (1.0, None, None, None, None), id="a container that hides our id"),
        pytest.param(
            [process(10), process(5000)], [], False, (2.0, 0.0, 1.0, 5.0, 5.0), id="a container that shows our id"
        ),
        pytest.param([], [], False, (0.0, 0.0, 0.0, None, 0.0), id="an empty list has no others anywhere"),
        pytest.param(
            [process(10, None), process(77, None), process(78)],
            [],
            True,
            (3.0, 0.0, 2.0, None, None),
            id="unknown memory is none and not zero",
        ),
    ],
)
def test_whose_processes_are_on_a_gpu(
    compute: list[GpuProcess], graphics: list[GpuProcess] | None, sees_all: bool, expected: tuple[float | None, ...]
) -> None:
    family = Family(pid=10, sees_all=sees_all, parent_of=lambda pid: PARENTS.get(pid, 0))
    assert summary(compute, graphics, family) == expected


def test_a_family_is_read_from_the_process_table(tmp_path: Path) -> None:
    for pid, parent in ((4711, 4710), (4710, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (name) with (brackets)) S {parent} 0 0")
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    found = Family.of_this_process(tmp_path)
    assert found.sees_all
    assert found.parent_of(4711) == 4710
    assert found.parent_of(9999) == 0
    (tmp_path / "self" / "ns" / "pid").unlink()
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    assert not Family.of_this_process(tmp_path).sees_all
