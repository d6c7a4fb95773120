"""What rules about a GPU share; and that broken numbers of a GPU make none of them fail."""

import random

import msgspec
import pytest
from broken_numbers import assert_calm, mutated
from findings_builder import fired
from gpu_builder import constant, copying_window, errors, gpu, held, idle_window, kernels_window, on
from memory_builder import GIB, allocator, grows, memory
from metrics_builder import replace
from msgspec.structs import replace as replace_struct
from rules_in import rules_in

from lightning_gpuprof.model.device import ErrorCounter
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.gpu import Gpu
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import gib, lower_share
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.hardware.ecc_xid import EccXid
from lightning_gpuprof.rules.hardware.gpu_rule import GpuRule
from lightning_gpuprof.rules.hardware.gpu_shared import GpuShared
from lightning_gpuprof.rules.hardware.gpu_util_low import GpuUtilLow
from lightning_gpuprof.rules.hardware.pcie_degraded import PcieDegraded
from lightning_gpuprof.rules.hardware.thermal_throttle import ThermalThrottle
from lightning_gpuprof.rules.hardware.util_misleading import UtilMisleading
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.transfers.h2d_slow_link import H2dSlowLink

RULES = [*rules_in("hardware", "memory", besides=("host-leak",)).values(), H2dSlowLink()]


def everything_is_wrong() -> Metrics:
    throttled = [held(reason, 0.6, 900.0) for reason in ("sw_thermal", "hw_power_brake", "sw_power_cap", "app_clocks")]
    device = gpu(
        *throttled,
        values={
            "utilization_ratio": 0.5,
            "sm_active_ratio": 0.1,
            "pcie_width": 4.0,
            "foreign_processes_count": 2.0,
            "memory_others_bytes": 9.0 * GIB,
        },
        clock_mhz=900.0,
        free_mhz=1900.0,
        errors=errors(ecc_uncorrected_count=1, nvlink_recovery_count=2),
    )
    full = allocator(
        allocated_gib=130.0,
        reserved_gib=139.0,
        activations_gib=80.0,
        fragmentation_ratio=0.4,
        peak_phase="forward",
        retries_steady_count=9,
        device_allocs_steady_count=900,
        device_frees_steady_count=900,
    )
    windows = (copying_window(h2d_ms=20.0), idle_window(allocator=0.2, launch=0.2), kernels_window(efficiency=0.1))
    metrics = on(device, times_ms={"h2d": 20.0})
    return replace(metrics, memory=memory(full, growth=(grows(2**23),)), windows=windows)


def test_a_healthy_run_on_a_healthy_gpu_has_no_finding_of_them() -> None:
    healthy = replace(
        on(gpu(errors=errors()), run={"machine.numa_nodes": 1}), memory=memory(growth=(grows(0.0, p_value=0.9),))
    )
    diagnosis = diagnose(replace(healthy, windows=(copying_window(h2d_ms=1.2),)), RULES)
    assert (diagnosis.findings, diagnosis.not_evaluated) == ((), ())


def test_everything_is_found_at_once_and_gains_fit_into_the_run() -> None:
    metrics = everything_is_wrong()
    findings = diagnose(metrics, RULES).findings
    assert len(findings) >= 12
    assert sum(f.gain.saved_ms_per_step for f in findings if f.gain is not None) <= (metrics.period_ms or 0) + 2.0
    assert sum(f.explains == claims.CLOCKS and f.gain is not None for f in findings) == 1


def test_a_reason_that_several_gpus_share_is_given_once() -> None:
    class NotEnough(GpuRule):
        id = "not-enough"

        def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
            raise MissingSignal("no clocks" if gpu.device.subject != "gpu1" else "no power")

    metrics = on(*(replace_struct(gpu(), subject=f"gpu{i}") for i in range(3)))
    with pytest.raises(MissingSignal, match=r"^gpu0, gpu2: no clocks; gpu1: no power$"):
        NotEnough().check(metrics)


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 1.0])
def test_broken_numbers_make_no_rule_fail(chance: float) -> None:
    base = everything_is_wrong()
    for seed in range(40):
        assert_calm(diagnose(mutated(base, chance, random.Random(f"{seed} {chance}")), RULES))


@pytest.mark.parametrize(
    ("ratio", "count", "lower"),
    [(1.0, 20, 0.8808), (0.5, 40, 0.3741), (0.0, 40, 0.0), (0.1, 40, 0.0455), (0.5, 0, 0.0)],
)
def test_the_lower_bound_of_a_share_is_wilson_s(ratio: float, count: int, lower: float) -> None:
    assert lower_share(ratio, count) == pytest.approx(lower, abs=2e-4)


@pytest.mark.parametrize(
    ("value", "words"),
    [(300 * 2**20, "300 MiB"), (2**30, "1 GiB"), (18.64 * GIB, "18.6 GiB"), (1024 * GIB, "1,024 GiB")],
)
def test_memory_is_said_in_three_digits(value: float, words: str) -> None:
    assert gib(value) == words


SLOW = gpu(values={"pcie_generation": 3.0, "pcie_width": 8.0})


def test_a_slow_link_that_holds_the_step_is_a_warning() -> None:
    finding = fired(PcieDegraded(), on(SLOW, times_ms={"h2d": 20.0}))
    assert finding.severity == "warning"
    assert finding.gain.saved_ms_per_step == pytest.approx(20.0 * 7 / 8)
    assert finding.gain.saved_lower_ms_per_step == 0
    assert finding.explains == claims.BATCH_COPIES


GIB = 2.0**30
HIDDEN = {"foreign_processes_count": None, "memory_others_bytes": None, "memory_own_bytes": None}


def test_in_a_container_memory_that_torch_has_not_reserved_is_information() -> None:
    shared = gpu(values={**HIDDEN, "memory_used_bytes": 90 * GIB})
    finding = fired(GpuShared(), replace(on(shared), memory=memory(allocator(reserved_gib=62))))
    assert finding.severity == "info"
    assert "torch reserved only 62 GiB" in finding.summary
    alone = gpu(values={**HIDDEN, "memory_used_bytes": 65 * GIB})
    assert GpuShared().check(replace(on(alone), memory=memory(allocator(reserved_gib=62)))) is None


def test_without_counters_the_kernels_of_a_window_tell() -> None:
    blind = on(gpu(values={"sm_active_ratio": None}))
    finding = fired(UtilMisleading(), replace(blind, windows=(kernels_window(efficiency=0.1),)))
    assert "estimated from the kernels" in finding.summary
    assert UtilMisleading().check(replace(blind, windows=(kernels_window(efficiency=0.9),))) is None
    with pytest.raises(MissingSignal, match="nor the geometry"):
        UtilMisleading().check(replace(blind, windows=(kernels_window(efficiency=0.1, known=0.5),)))


@pytest.mark.parametrize(("dram_ratio", "lower_ms"), [(0.4, 0.5 * 0.95 * 50 * 0.6), (None, 0.0)])
def test_only_what_the_memory_leaves_is_certain_to_be_gained(dram_ratio: float | None, lower_ms: float) -> None:
    """Half the speed of 95 % of 50 ms."""
    hot = gpu(held("sw_thermal", 1.0, 990.0), values={"dram_active_ratio": dram_ratio})
    assert fired(ThermalThrottle(), on(hot)).gain.saved_lower_ms_per_step == pytest.approx(lower_ms, rel=0.07)


def test_the_worse_of_two_gpus_is_named() -> None:
    assert (
        fired(ThermalThrottle(), on(gpu(), gpu(held("sw_thermal", 1.0, 990.0), subject="gpu1"))).subject
        == "NVIDIA H200 (gpu1)"
    )


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (on(), "no GPU was sampled"),
        (on(gpu(), gpu(busy=0, subject="gpu1")), "gpu1: 0 of the 20"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        ThermalThrottle().check(metrics)


def test_the_notice_of_the_driver_is_quoted() -> None:
    metrics = on()
    told = replace(metrics, validity=type(metrics.validity)(ok=True, caveats=("nvml: Driver Not Loaded",)))
    with pytest.raises(MissingSignal, match=r"no GPU was sampled \(nvml: Driver Not Loaded\)"):
        ThermalThrottle().check(told)


LOW = gpu(values={"utilization_ratio": 0.3})


def test_it_comes_after_the_rule_that_explains_it() -> None:
    metrics = on(LOW, times_ms={"data_wait": 100.0}, fetch_waited_ratio=1.0)
    assert [f.rule for f in diagnose(metrics, [GpuUtilLow(), InputBound()]).findings] == ["input-bound", "gpu-util-low"]


def test_it_names_what_lies_beside_the_steps() -> None:
    assert "validation 50 % of the run (validation-stall)" in fired(GpuUtilLow(), on(LOW, validation=(4, 20.0))).summary


def test_a_window_tells_the_causes() -> None:
    finding = fired(GpuUtilLow(), replace(on(LOW), windows=(idle_window(launch=0.6, data=0.05),)))
    assert "60 % of a window" in finding.summary
    assert "data" not in finding.summary.split("causes")[1].split(",")[0]


@pytest.mark.parametrize(("mean", "std", "fires"), [(0.69, 0.0, True), (0.69, 0.1, False), (0.71, 0.0, False)])
def test_the_upper_bound_of_the_mean_decides(mean: float, std: float, fires: bool) -> None:
    spread = msgspec.structs.replace(constant(mean), std=std)
    assert (GpuUtilLow().check(on(gpu(values={"utilization_ratio": spread}))) is not None) is fires


def test_the_worst_of_several_decides() -> None:
    finding = fired(EccXid(), on(gpu(errors=errors(ecc_corrected_count=7, ecc_uncorrected_count=2))))
    assert finding.severity == "critical"
    assert "2 uncorrected ECC errors and 7 corrected ECC errors" in finding.summary


@pytest.mark.parametrize("counters", [(), (ErrorCounter(name="nvlink_crc_count", first=0, last=0),)])
def test_without_counters_of_memory_it_is_not_judged(counters: tuple[ErrorCounter, ...]) -> None:
    with pytest.raises(MissingSignal, match="has no counters of memory errors") as told:
        EccXid().check(on(gpu(errors=counters)))
    assert not isinstance(told.value, NotApplicable)


def test_a_gpu_without_ecc_has_nothing_to_judge() -> None:
    without = gpu(facts={"ecc": False})
    with pytest.raises(NotApplicable, match="ECC is off"):
        EccXid().check(on(without))
    assert EccXid().check(on(without, gpu(errors=errors()))) is None
    with pytest.raises(MissingSignal, match="gpu1: the GPU") as told:
        EccXid().check(on(without, gpu(subject="gpu1")))
    assert not isinstance(told.value, NotApplicable)


def test_retired_pages_count_without_ecc() -> None:
    retired = (ErrorCounter(name="retired_pages_count", first=0, last=1),)
    assert EccXid().check(on(gpu(facts={"ecc": False}, errors=retired))) is not None
