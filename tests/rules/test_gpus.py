"""What rules about a GPU share; and that broken numbers of a GPU make none of them fail."""

from __future__ import annotations

import random

import pytest
from broken_numbers import assert_calm, mutated
from gpu_builder import copying_window, errors, gpu, held, idle_window, kernels_window, on
from memory_builder import GIB, allocator, grows, memory
from metrics_builder import replace
from msgspec.structs import replace as replace_struct

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.gpu import Gpu
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import gib, lower_share
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.hardware.gpu_rule import GpuRule

IDS = frozenset(
    {
        "activations-dominate",
        "alloc-retries",
        "cudamalloc-steady",
        "ecc-xid",
        "empty-cache-in-loop",
        "fragmentation",
        "gpu-shared",
        "gpu-util-low",
        "grads-live-in-forward",
        "h2d-slow-link",
        "low-clocks",
        "memory-headroom",
        "memory-leak",
        "mig-slice",
        "nvlink-down",
        "oom-risk",
        "optimizer-state-dominates",
        "pcie-degraded",
        "power-brake",
        "power-throttle",
        "thermal-throttle",
        "uneven-peak-phase",
        "util-misleading",
    }
)
RULES = [rule for rule in discover(entry_points=()).rules if rule.id in IDS]


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


def test_they_are_all_there() -> None:
    assert {rule.id for rule in RULES} == IDS


def test_a_healthy_run_on_a_healthy_gpu_has_no_finding_of_them() -> None:
    healthy = replace(on(gpu(errors=errors())), memory=memory(growth=(grows(0.0, p_value=0.9),)))
    diagnosis = diagnose(replace(healthy, windows=(copying_window(h2d_ms=1.2),)), RULES)
    assert diagnosis.findings == ()
    assert diagnosis.not_evaluated == ()


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
