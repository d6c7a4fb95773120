"""Runs in which everything about steps is wrong, with broken numbers: the rules stay calm."""

import random

import host_builder
import pytest
from broken_numbers import assert_calm, mutated
from compile_builder import compiled, graph_break, recompile
from metrics_builder import build, replace, share
from uneven_builder import of_fifths, of_speed_levels, stretch

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import diagnose

FACTS = {
    "model.parameter_tensors": 2000,
    "model.parameter_bytes": 64_000,
    "model.optimizer": "AdamW",
    "trainer.gradient_clip_val": 1.0,
}


def everything_is_wrong() -> Metrics:
    base = build(times_ms={"optimizer": 60.0, "clip": 10.0}, run=FACTS, usable_cpus=1.0)  # type: ignore[arg-type]
    speed_levels = of_speed_levels(stretch(), stretch({"data_wait": 50.0}, start=100)).evenness
    drift = of_fifths("forward", (0.0, 10.0, 20.0, 30.0, 40.0)).evenness.drift
    collecting, growing = host_builder.collecting(0.3), host_builder.growing(1024.0)
    return replace(
        base,
        evenness=type(speed_levels)(
            speed_levels=speed_levels.speed_levels, drift=drift, warmup_steps=10, warmup_excess_s=8.0
        ),
        compile=compiled([recompile(i) for i in range(50, 80)], [graph_break("print")], limit_hits=1).compile,
        host=type(growing)(gc=collecting.gc, growth=growing.growth, machine=growing.machine),
        cpu=replace(base.cpu, run_delay_ratio=0.3, run_delay=share(30.0, 100.0), run_delay_samples=40),
        lr_scheduler=share(10.0, 100.0),
        overhead={"share_of_step_ratio": 0.02, "background_cpu_ratio": 0.05, "windows_s": 8.0},
    )


def test_everything_is_found_where_the_numbers_are_right() -> None:
    found = {finding.rule for finding in diagnose(everything_is_wrong()).findings}
    expected = {"gc-pauses", "optimizer-slow", "grad-clip-cost", "recompiles", "graph-breaks", "cpu-contention"}
    assert expected | {"host-leak", "slow-first-steps", "lr-scheduler-cost", "step-drift", "profiler-overhead"} <= found


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 1.0])
def test_broken_numbers_make_no_rule_fail(chance: float) -> None:
    base = everything_is_wrong()
    for seed in range(30):
        assert_calm(diagnose(mutated(base, chance, random.Random(f"{seed} {chance}"))))
