"""Metrics with broken numbers flow in; whatever comes out is calm: no exception, no "nan", no gain without bound."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from metrics_builder import build, busy_machine, outliers, replace
from traced_builder import gpu, window

from lightning_gpuprof.model.device import DeviceEnergy
from lightning_gpuprof.model.method import Method
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import Diagnosis, diagnose
from lightning_gpuprof.rules.method import method
from lightning_gpuprof.rules.targets import cost, outlook

BROKEN = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e12)


def mutated(value: Any, chance: float, dice: random.Random) -> Any:
    """A copy in which each number is replaced by a broken one with some probability."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return dice.choice(BROKEN) if dice.random() < chance else value
    if isinstance(value, int):
        return dice.choice((0, -1, 10**9)) if dice.random() < chance else value
    if isinstance(value, tuple):
        return tuple(mutated(item, chance, dice) for item in value)
    if isinstance(value, Mapping):
        return {key: mutated(item, chance, dice) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: mutated(getattr(value, name), chance, dice) for name in value.__struct_fields__})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: mutated(getattr(value, f.name), chance, dice) for f in dataclasses.fields(value)}
        return replace(value, **changes)  # what is computed from broken numbers is computed, too
    return value


def everything_is_wrong() -> Metrics:
    return build(
        times_ms={"data_wait": 60.0, "callbacks": 40.0, "logging": 25.0, "forward": 60.0},
        num_workers=1,
        persistent_workers=False,
        fetch_waited_ratio=0.9,
        iterator_s=2.0,
        first_wait_s=3.0,
        callbacks_ms={("Slow", "on_train_batch_end"): 39.0},
        blocked_ms={"forward": 45.0},
        process_cpus=0.4,
        validation=(4, 60.0),
        checkpoint=(10, 30.0),
        stalls=outliers(count=12, stall_ms=2500, phases="backward", steps=380, period_ms=200.0),
        idle_ratio=0.4,
        host=busy_machine(0.3),
    )


def assert_calm(diagnosis: Diagnosis) -> None:
    assert [n for n in diagnosis.not_evaluated if n.why.startswith("failed")] == []
    for text in (
        diagnosis.verdict.summary,
        diagnosis.verdict.runner_up,
        *(t for f in diagnosis.findings for t in (f.summary, f.advice)),
    ):
        assert "nan" not in text.split()
        assert "inf" not in text.split()
    for finding in diagnosis.findings:
        if finding.gain is not None:
            assert math.isfinite(finding.gain.saved_ms_per_step)
            assert finding.gain.saved_ms_per_step >= 0
            assert 1 <= finding.gain.speedup_max <= 100.1


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 1.0])
def test_broken_numbers_make_no_rule_fail(chance: float) -> None:
    base = everything_is_wrong()
    for seed in range(150):
        dice = random.Random(f"{seed} {chance}")
        assert_calm(diagnose(mutated(base, chance, dice)))


def everything_is_wrong_on_a_gpu() -> Metrics:
    facts = window(
        period_ms=200.0,
        causes={"launch": 0.2, "host_sync": 0.2, "data": 0.1, "allocator": 0.05},
        exposed_communication=0.2,
        uploads=0.1,
        host_ms={"data_wait": 60.0, "forward": 60.0},
        inflation=1.3,
        sm_efficiency=0.3,
        at_roof={("memory", 0.7): 0.5, ("compute", 0.2): 0.3},
    )
    device = gpu(
        utilization=0.5,
        sm=0.3,
        dram=0.2,
        tensor=0.1,
        clock_mhz=1200.0,
        reasons={"sw_thermal": 0.6, "sw_power_cap": 0.2},
    )
    device = msgspec.structs.replace(
        device, energy=DeviceEnergy(total_j=4e4, per_step_j=32.0, mean_w=640.0, covered_ratio=0.98)
    )
    wrong = everything_is_wrong()
    targets = {"gpuprof.target": "1.5x", "gpuprof.price_per_gpu_hour": 2.5, "device.type": "cuda"}
    return replace(wrong, run={**wrong.run, **targets}, windows=(facts, facts), devices=(device,), blocked=None)


def texts(found: Method) -> list[str]:
    said = [text for level in found.levels for text in (level.answer, level.why, *level.lines)]
    return said + [check.evidence for check in found.checklist]


@pytest.mark.parametrize("chance", [0.0, 0.05, 0.5, 1.0])
def test_broken_numbers_of_a_gpu_are_taken_calmly(chance: float) -> None:
    base = everything_is_wrong_on_a_gpu()
    for seed in range(40):
        dice = random.Random(f"{seed} {chance}")
        metrics = replace(mutated(base, chance, dice), run=base.run)
        diagnosis = diagnose(metrics)
        assert_calm(diagnosis)
        combined = diagnosis.combined
        if combined is not None:
            assert 0 <= combined.saved_ms_per_step <= combined.saved_run_ms_per_step + 1e-9
            assert 1 <= combined.step_speedup_max <= 100.1
        target = outlook(metrics, diagnosis)
        assert target is not None
        assert "nan" not in target.summary.split()
        assert cost(metrics) is not None
        for text in texts(method(metrics, diagnosis, outlook=target, cost=cost(metrics))):
            assert not {"nan", "inf", "nanx", "infx"} & set(text.lower().replace(",", " ").split()), text


CONTRADICTIONS: dict[str, Metrics] = {
    "a device that works longer than the step": replace(
        build(run={"device.type": "cuda"}), windows=(window(period_ms=500.0),)
    ),
    "causes that sum to more than the idle time": replace(
        build(run={"device.type": "cuda"}),
        windows=(window(causes={"launch": 0.9, "host_sync": 0.9}),),
    ),
    "shares that sum to more than the step": build(times_ms={"data_wait": 60.0, "callbacks": 60.0}),
    "a GPU in a run on the CPU": replace(build(), devices=(gpu(utilization=0.9),)),
    "windows of a GPU in a run on the CPU": replace(build(), windows=(window(causes={"launch": 0.5}),)),
    "a clock above its maximum": replace(
        build(run={"device.type": "cuda"}),
        windows=(window(),),
        devices=(gpu(clock_mhz=3000.0, reasons={"sw_thermal": 1.0}),),
    ),
    "no condition at all": replace(build(), run={}),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_signals_that_contradict_each_other_are_taken_calmly(what: str) -> None:
    diagnosis = diagnose(CONTRADICTIONS[what])
    assert_calm(diagnosis)
    assert method(CONTRADICTIONS[what], diagnosis).levels
    assert diagnosis.verdict.kind != "hardware-limited"
