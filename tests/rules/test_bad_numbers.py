"""Broken numbers in Metrics raise no exception and give no "nan" and no gain without bound."""

import random

import pytest
from broken_numbers import assert_calm, mutated
from faulty_runs import everything_is_wrong, everything_is_wrong_in_steps, everything_is_wrong_on_a_gpu
from metrics_builder import build, replace
from traced_builder import gpu, window

from lightning_gpuprof.analyze.training_cost import training_cost
from lightning_gpuprof.model.method import Method
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.method import method
from lightning_gpuprof.rules.targets import outlook

RUNS = {"all phases": everything_is_wrong(), "steps": everything_is_wrong_in_steps()}


def test_everything_is_found_of_the_steps_where_the_numbers_are_right() -> None:
    found = {finding.rule for finding in diagnose(RUNS["steps"]).findings}
    expected = {"gc-pauses", "optimizer-slow", "grad-clip-cost", "recompiles", "graph-breaks", "cpu-contention"}
    assert expected | {"host-leak", "slow-first-steps", "lr-scheduler-cost", "step-drift", "profiler-overhead"} <= found


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("run", "seeds"), [("all phases", 150), ("steps", 30)])
def test_broken_numbers_make_no_rule_fail(run: str, seeds: int, chance: float) -> None:
    for seed in range(seeds):
        assert_calm(diagnose(mutated(RUNS[run], chance, random.Random(f"{seed} {chance}"))))


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
        assert "nan" not in target.summary.split()
        assert training_cost(metrics) is not None
        for text in texts(method(metrics, diagnosis, outlook=target, cost=training_cost(metrics))):
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
