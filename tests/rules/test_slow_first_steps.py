from __future__ import annotations

import pytest
from compile_builder import compiled
from findings_builder import fired
from metrics_builder import build, replace

from lightning_gpuprof.model.evenness import Evenness
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.steps.slow_first_steps import SlowFirstSteps

RULE = SlowFirstSteps()


def warming(excess_s: float, *, steps: int = 400) -> Metrics:
    """A run of 50 ms steps whose first 12 take so much more."""
    return replace(build(steps=steps), evenness=Evenness(warmup_steps=12, warmup_excess_s=excess_s))


def test_compiling_is_named() -> None:
    metrics = replace(compiled(compile_s=5.5), evenness=Evenness(warmup_steps=1, warmup_excess_s=6.0))
    finding = fired(RULE, metrics)
    assert finding.subject == "torch.compile"
    assert "TORCHINDUCTOR_CACHE_DIR" in finding.advice


@pytest.mark.parametrize(
    ("excess_s", "steps", "fires"), [(4.9, 400, False), (5.1, 400, True), (10.0, 12_000, False), (61.0, 100_000, True)]
)
def test_a_part_of_the_run_or_a_minute_decides(excess_s: float, steps: int, fires: bool) -> None:
    assert (RULE.check(warming(excess_s, steps=steps)) is not None) is fires
