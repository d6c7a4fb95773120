"""Metrics with broken numbers flow in; whatever comes out is calm: no exception, no "nan", no gain without bound."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from metrics_builder import build, outliers

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import Diagnosis, diagnose

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
        return type(value)(**{f.name: mutated(getattr(value, f.name), chance, dice) for f in dataclasses.fields(value)})
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
        host={"host.cpu_busy_ratio_mean": 0.3},
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
