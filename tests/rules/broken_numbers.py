"""Metrics with broken numbers, and what has to hold of whatever is said about them."""

import math
import random
from collections.abc import Mapping
from typing import Any

import msgspec
from metrics_builder import replace

from lightning_gpuprof.rules.engine import Diagnosis

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
        changes = {name: mutated(getattr(value, name), chance, dice) for name in value.__struct_fields__}
        return replace(value, **changes)  # what is computed from broken numbers is computed, too
    return value


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
