"""The sampler against a scripted backend, and against a C library through the real ``pynvml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from fake_nvml import builder
from fake_nvml.builder import FakeGpu, Scenario

from lightning_gpuprof.capture.nvml import NvmlSampler
from lightning_gpuprof.capture.nvml_backend import (
    VALUES,
    DriverGoneError,
    GpuLostError,
    NvmlDevice,
    NvmlError,
    Query,
    UnsupportedError,
)
from lightning_gpuprof.capture.recorder import Reading, SourceUnavailableError
from lightning_gpuprof.model.journal import Conditions, Notice, Sample

BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Keeps the doubt about the order of GPUs of different kinds out of the notices."""

ALL_NAMES = {name for names in VALUES.values() for name in names}

ANSWERS: dict[Query, tuple[float, ...]] = {
    "utilization": (0.5, 0.25),
    "memory": (10.0, 20.0),
    "power": (100.0,),
    "power_limit": (300.0,),
    "temperature": (50.0,),
    "sm_clock": (1000.0,),
    "memory_clock": (2000.0,),
    "sm_clock_max": (1500.0,),
}


class ScriptedBackend:
    """Answers the same each time, unless the script has an error for the GPU, the query and the sample."""

    def __init__(self, gpus: int, script: Callable[[int, Query, int], NvmlError | None]) -> None:
        self._gpus = gpus
        self._script = script
        self.asked: list[tuple[int, Query]] = []
        self.closed = 0

    def devices(self) -> Sequence[NvmlDevice]:
        return [NvmlDevice(index=n, uuid=f"GPU-{n}", name=f"Fake {n}", handle=n) for n in range(self._gpus)]

    def read(self, device: NvmlDevice, query: Query) -> tuple[float, ...]:
        self.asked.append((device.index, query))
        error = self._script(device.index, query, self.asked.count((device.index, query)))
        if error is not None:
            raise error
        return ANSWERS[query]

    def close(self) -> None:
        self.closed += 1


def opened(backend: ScriptedBackend) -> NvmlSampler:
    sampler = NvmlSampler(None, BY_BUS, connect=lambda: backend)
    sampler.open()
    return sampler


def samples(readings: Sequence[Reading]) -> list[Sample]:
    return [each for each in readings if isinstance(each, Sample)]


def notices(readings: Sequence[Reading]) -> list[str]:
    assert all(each.part == "nvml" for each in readings if isinstance(each, Notice))
    return [each.message for each in readings if isinstance(each, Notice)]


def test_each_gpu_has_one_sample_with_all_values_and_the_given_time() -> None:
    sampler = opened(ScriptedBackend(2, lambda gpu, query, nth: None))
    readings = sampler.sample(7)
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1"]
    for sample in samples(readings):
        assert sample.source == "nvml"
        assert sample.t_ns == 7
        assert sample.values.keys() == ALL_NAMES
        assert sample.values["memory_total_bytes"] == 20.0
    assert notices(readings) == []


def test_the_first_reading_says_which_gpus_they_are_and_says_it_once() -> None:
    sampler = opened(ScriptedBackend(2, lambda gpu, query, nth: None))
    assert sampler.device_names() == [("gpu0", "Fake 0", "GPU-0"), ("gpu1", "Fake 1", "GPU-1")]
    first, second = sampler.sample(1), sampler.sample(2)
    assert first[0] == Conditions(
        values={"gpu0.name": "Fake 0", "gpu0.uuid": "GPU-0", "gpu1.name": "Fake 1", "gpu1.uuid": "GPU-1"}
    )
    assert len(samples(second)) == len(second) == 2


def test_an_unsupported_value_is_none_noticed_once_per_value_and_gpu_and_not_asked_again() -> None:
    unsupported = {"utilization", "power"}
    backend = ScriptedBackend(
        2, lambda gpu, query, nth: UnsupportedError("Not Supported") if gpu == 1 and query in unsupported else None
    )
    sampler = opened(backend)
    readings = [reading for t_ns in range(4) for reading in sampler.sample(t_ns)]
    for sample in samples(readings):
        missing = {name for name, value in sample.values.items() if value is None}
        expected = {"utilization_ratio", "memory_utilization_ratio", "power_w"} if sample.subject == "gpu1" else set()
        assert missing == expected
        assert sample.values.keys() == ALL_NAMES
    assert sorted(notices(readings)) == [
        "gpu1.memory_utilization_ratio is not measured: Not Supported",
        "gpu1.power_w is not measured: Not Supported",
        "gpu1.utilization_ratio is not measured: Not Supported",
    ]
    assert backend.asked.count((1, "power")) == 1
    assert backend.asked.count((0, "power")) == 4


def test_a_passing_error_is_none_for_that_sample_noticed_once_and_asked_again() -> None:
    backend = ScriptedBackend(
        1, lambda gpu, query, nth: NvmlError("Timeout") if query == "power" and nth in (2, 3) else None
    )
    sampler = opened(backend)
    readings = [reading for t_ns in range(5) for reading in sampler.sample(t_ns)]
    assert [sample.values["power_w"] for sample in samples(readings)] == [100.0, None, None, 100.0, 100.0]
    assert notices(readings) == ["gpu0.power_w is not measured: Timeout"]


def test_a_lost_gpu_is_left_out_and_the_other_goes_on() -> None:
    sampler = opened(
        ScriptedBackend(2, lambda gpu, query, nth: GpuLostError("GPU is lost") if gpu == 0 and nth == 2 else None)
    )
    readings = [reading for t_ns in range(4) for reading in sampler.sample(t_ns)]
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1", "gpu1", "gpu1", "gpu1"]
    assert notices(readings) == ["gpu0 does not answer any more: GPU is lost; it is not measured from here on"]


def test_a_gpu_that_answers_nothing_for_three_samples_counts_as_lost_with_one_notice() -> None:
    sampler = opened(
        ScriptedBackend(2, lambda gpu, query, nth: NvmlError("Unknown Error") if gpu == 1 and nth > 1 else None)
    )
    readings = [reading for t_ns in range(6) for reading in sampler.sample(t_ns)]
    assert [sample.subject for sample in samples(readings)].count("gpu0") == 6
    of_lost = [sample for sample in samples(readings) if sample.subject == "gpu1"]
    assert [any(sample.values.values()) for sample in of_lost] == [True, False, False]
    assert notices(readings) == ["gpu1 does not answer any more: Unknown Error; it is not measured from here on"]


def test_a_gpu_that_misses_one_sample_is_kept() -> None:
    sampler = opened(ScriptedBackend(1, lambda gpu, query, nth: NvmlError("Timeout") if nth == 2 else None))
    readings = [reading for t_ns in range(6) for reading in sampler.sample(t_ns)]
    assert [sample.values["power_w"] for sample in samples(readings)] == [100.0, None, 100.0, 100.0, 100.0, 100.0]
    assert notices(readings) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GpuLostError("GPU is lost"), "gpu0 does not answer any more: GPU is lost"),
        (DriverGoneError("Driver Not Loaded"), "NVML does not answer any more: Driver Not Loaded"),
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
    sampler = NvmlSampler(
        None, {"CUDA_VISIBLE_DEVICES": ""}, connect=lambda: ScriptedBackend(2, lambda gpu, query, nth: None)
    )
    with pytest.raises(SourceUnavailableError, match="no GPU is visible to this process"):
        sampler.open()


# The real pynvml on a scripted library ------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(builder.compiler() is None, reason="no C compiler (cc) to build the fake NVML")

TWO = (
    FakeGpu(uuid="GPU-11111111-aaaa-bbbb-cccc-000000000000"),
    FakeGpu(uuid="GPU-22222222-aaaa-bbbb-cccc-000000000000", name="NVIDIA Other 200", utilization_percent=0),
)
EXPECTED: Mapping[str, float] = {
    "utilization_ratio": 0.83,
    "memory_utilization_ratio": 0.41,
    "memory_used_bytes": 20e9,
    "memory_total_bytes": 80e9,
    "power_w": 412.5,
    "power_limit_w": 700.0,
    "temperature_c": 61.0,
    "sm_clock_mhz": 1755.0,
    "memory_clock_mhz": 2619.0,
    "sm_clock_max_mhz": 1980.0,
}


@needs_compiler
def test_values_arrive_in_our_units_through_the_real_binding(tmp_path: Path) -> None:
    readings = builder.run_sampler(builder.build(Scenario(gpus=TWO), tmp_path), samples=4, environ=BY_BUS)
    of_first, of_second = samples(readings)[:2]
    assert of_first.values == EXPECTED
    assert of_second.values["utilization_ratio"] == 0.0
    assert isinstance(readings[0], Conditions)
    assert readings[0].values["gpu1.name"] == "NVIDIA Other 200"
    assert readings[0].values["gpu1.uuid"] == TWO[1].uuid


@needs_compiler
def test_cuda_order_is_kept_by_uuid_and_by_environment(tmp_path: Path) -> None:
    library = builder.build(Scenario(gpus=TWO), tmp_path)
    by_uuid = builder.run_sampler(library, samples=1, uuids=(TWO[1].uuid.removeprefix("GPU-"),))
    by_environ = builder.run_sampler(library, samples=1, environ={"CUDA_VISIBLE_DEVICES": "GPU-2222"})
    for readings in (by_uuid, by_environ):
        assert isinstance(readings[0], Conditions)
        assert readings[0].values == {"gpu0.name": TWO[1].name, "gpu0.uuid": TWO[1].uuid}
        assert {sample.subject for sample in samples(readings)} == {"gpu0"}


@needs_compiler
def test_unsupported_values_and_functions_that_the_driver_lacks_are_none_with_a_notice(tmp_path: Path) -> None:
    gpu = FakeGpu(
        uuid="GPU-1",
        fails={"utilization": builder.NOT_SUPPORTED, "power": builder.NO_PERMISSION, "clock": 2},
        power_limit_mw=0xFFFF_FFFF,
    )
    old_driver = frozenset({"nvmlDeviceGetTemperatureV", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode"})
    readings = builder.run_sampler(builder.build(Scenario(gpus=(gpu,), without=old_driver), tmp_path), samples=3)
    missing = {
        "utilization_ratio",
        "memory_utilization_ratio",
        "power_w",
        "power_limit_w",
        "sm_clock_mhz",
        "memory_clock_mhz",
    }
    for sample in samples(readings):
        assert {name for name, value in sample.values.items() if value is None} == missing
        # The older functions answer instead; theirs counts the driver's reserve as used.
        assert sample.values["temperature_c"] == 61.0
        assert sample.values["memory_used_bytes"] == 20.5e9
    assert {text.split()[0] for text in notices(readings)} == {f"gpu0.{name}" for name in missing}
    assert len(notices(readings)) == len(missing)
    assert "gpu0.power_w is not measured: Insufficient Permissions" in notices(readings)


@needs_compiler
def test_a_partitioned_gpu_is_measured_by_its_mig_device(tmp_path: Path) -> None:
    mig = FakeGpu(uuid="MIG-7777", name="NVIDIA Fake 100 MIG 1g", fails={"utilization": builder.NOT_SUPPORTED})
    readings = builder.run_sampler(
        builder.build(Scenario(gpus=(FakeGpu(uuid="GPU-1", mig=(mig,)), TWO[1])), tmp_path),
        samples=1,
        environ={"CUDA_VISIBLE_DEVICES": "0"},
    )
    sample = samples(readings)[0]
    assert sample.values["utilization_ratio"] is None
    assert sample.values["memory_used_bytes"] == 20e9
    assert isinstance(readings[0], Conditions)
    assert readings[0].values["gpu0.uuid"] == "MIG-7777"


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
        (builder.GPU_IS_LOST, "does not answer any more: GPU is lost"),
        (builder.DRIVER_NOT_LOADED, "NVML does not answer any more: Driver Not Loaded"),
        (builder.UNKNOWN, "does not answer any more: Unknown Error"),
    ],
)
def test_a_driver_that_goes_in_mid_run_ends_the_sampling_with_one_notice_each(
    tmp_path: Path, code: int, words: str
) -> None:
    readings_of_two_samples = 2 * len(VALUES)
    scenario = Scenario(gpus=TWO[:1], fail_after=readings_of_two_samples, fail_with=code)
    readings = builder.run_sampler(builder.build(scenario, tmp_path), samples=1000)
    assert [sample.values for sample in samples(readings)][:2] == [EXPECTED, EXPECTED]
    assert all(value is None for sample in samples(readings)[2:] for value in sample.values.values())
    (message,) = notices(readings)
    assert words in message


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
    scenario = Scenario(gpus=TWO, hang_after=2 * len(VALUES))
    readings = builder.run_sampler(builder.build(scenario, tmp_path), until_hang=True, environ=BY_BUS)
    assert [sample.subject for sample in samples(readings)] == ["gpu0", "gpu1"]
    (message,) = notices(readings)
    assert message.startswith("no answer for ")
