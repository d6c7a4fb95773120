"""What the examples of the rules on GPU memory cannot say: thresholds to both sides, what is missing, several rules."""

from typing import Any

import msgspec
import pytest
from gpu_builder import gpu, idle_window
from memory_builder import BLIND, GIB, SIZELESS, allocator, held, on_gpu
from rules_in import rules_in

from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.memory.memory_rule import AllocatorCallsRule

RULES = rules_in("memory", besides=("host-leak",))
OF_CALLS = {rule.id for rule in RULES.values() if isinstance(rule, AllocatorCallsRule)}
LEAKY = {"memory-leak"}
TWO_GPUS = (held(), msgspec.structs.replace(held(), device="cuda:1"))


def of_state(gib: int) -> Metrics:
    return on_gpu(allocator(allocated_gib=120.0), model=(held(optimizer_state_bytes=gib * GIB),))


def pieces(ratio: float, reserved_gib: float = 130.0) -> DeviceMemory:
    inactive = ratio * reserved_gib * GIB
    return allocator(
        allocated_gib=95.0, reserved_gib=reserved_gib, fragmentation_ratio=ratio, inactive_split_at_peak_bytes=inactive
    )


def small(allocated_gib: float = 22.0, *, active: float | None = 0.2, **parts: Any) -> Metrics:
    device = gpu(values={"memory_used_bytes": None, **({} if active == 0.85 else {"sm_active_ratio": active})})
    return on_gpu(allocator(allocated_gib=allocated_gib, activations_gib=10.0), gpus=(device,), **parts)


def calls(allocs: int = 0, frees: int = 0, **more: Any) -> Metrics:
    return on_gpu(allocator(device_allocs_steady_count=allocs, device_frees_steady_count=frees), **more)


@pytest.mark.parametrize(
    ("rule", "metrics", "severity"),
    [
        ("activations-dominate", on_gpu(allocator(allocated_gib=120.0, activations_gib=60.0)), None),
        ("activations-dominate", on_gpu(allocator(allocated_gib=120.0, activations_gib=60.2)), "info"),
        ("optimizer-state-dominates", of_state(48), None),
        ("optimizer-state-dominates", of_state(49), "info"),
        ("fragmentation", on_gpu(pieces(0.20)), None),
        ("fragmentation", on_gpu(pieces(0.21)), "info"),
        ("fragmentation", on_gpu(pieces(0.25, 100.0)), None),
        ("fragmentation", on_gpu(pieces(0.25, 100.0), gpus=(gpu(values={"memory_used_bytes": 120.0 * GIB}),)), "info"),
        ("memory-headroom", small(69.9), "info"),
        ("memory-headroom", small(70.1), None),
        ("memory-headroom", small(active=0.85, idle_ratio=0.29), None),
        ("memory-headroom", small(active=0.85, idle_ratio=0.31), "info"),
        ("alloc-retries", on_gpu(allocator(retries_steady_count=0)), None),
        ("alloc-retries", on_gpu(allocator(retries_steady_count=1)), "info"),
        ("alloc-retries", on_gpu(allocator(retries_steady_count=3)), "info"),
        ("alloc-retries", on_gpu(allocator(retries_steady_count=4)), "warning"),
        ("cudamalloc-steady", calls(38), None),
        ("cudamalloc-steady", calls(39), "info"),
        ("cudamalloc-steady", calls(190, windows=(idle_window(allocator=0.05, launch=0.1),)), "info"),
        ("cudamalloc-steady", calls(190, windows=(idle_window(allocator=0.12, launch=0.1),)), "warning"),
        ("cudamalloc-steady", calls(190, 190), None),
        ("empty-cache-in-loop", calls(900), None),
        ("empty-cache-in-loop", calls(900, 38), None),
        ("empty-cache-in-loop", calls(900, 39), "info"),
        ("empty-cache-in-loop", calls(900, 379), "info"),
        ("empty-cache-in-loop", calls(900, 380), "warning"),
    ],
)
def test_thresholds_decide(rule: str, metrics: Metrics, severity: str | None) -> None:
    finding = RULES[rule].check(metrics)
    assert (None if finding is None else finding.severity) == severity


@pytest.mark.parametrize("rule", RULES)
def test_without_an_allocator_no_rule_judges(rule: str) -> None:
    for metrics, why in BLIND:
        with pytest.raises(MissingSignal, match=why):
            RULES[rule].check(metrics)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - OF_CALLS - LEAKY))
def test_without_the_size_of_the_gpu_no_rule_on_its_use_judges(rule: str) -> None:
    metrics, why = SIZELESS
    with pytest.raises(MissingSignal, match=why):
        RULES[rule].check(metrics)


@pytest.mark.parametrize("rule", sorted(OF_CALLS))
@pytest.mark.parametrize("steps", [None, 19])
def test_calls_are_counted_over_twenty_steps(rule: str, steps: int | None) -> None:
    with pytest.raises(MissingSignal, match=f"over {steps or 0} of the 20 steady steps"):
        RULES[rule].check(on_gpu(allocator(steady_steps=steps)))


@pytest.mark.parametrize(
    ("rule", "metrics", "why"),
    [
        ("memory-headroom", small(active=None), "whether the GPU is underused was not measured"),
        ("optimizer-state-dominates", on_gpu(model=TWO_GPUS), "on several GPUs"),
    ],
)
def test_what_is_missing_is_said(rule: str, metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULES[rule].check(metrics)


def test_a_batch_that_accumulates_already_is_split_further() -> None:
    full = allocator(allocated_gib=120.0, activations_gib=96.0)
    finding = RULES["activations-dominate"].check(on_gpu(full, run={"trainer.accumulate_grad_batches": 4}))
    assert "accumulate_grad_batches=8" in finding.advice


def test_several_ranks_can_share_states() -> None:
    full = on_gpu(
        allocator(allocated_gib=120.0), model=(held(optimizer_state_bytes=60 * GIB),), run={"trainer.world_size": 8}
    )
    assert "shard over the 8 ranks" in RULES["optimizer-state-dominates"].check(full).advice


def test_a_window_tells_what_an_emptied_cache_costs_and_the_more_general_rule_is_silent() -> None:
    metrics = calls(1500, 1520, windows=(idle_window(allocator=0.3),))
    (finding,) = diagnose(metrics, [RULES["empty-cache-in-loop"], RULES["cudamalloc-steady"]]).findings
    assert finding.rule == "empty-cache-in-loop"
    assert finding.gain.saved_ms_per_step == pytest.approx(15)
