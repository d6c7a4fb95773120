from __future__ import annotations

from dataclasses import replace

import pytest
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.sanity_check_cost import SanityCheckCost

RULE = SanityCheckCost()


def checked(sanity_s: float, *, steps: int = 400, stage: str = "fit") -> Metrics:
    metrics = build(steps=steps, run={"trainer.num_sanity_val_steps": 50, "stage": stage})
    wall = replace_parts(metrics, sanity_s)
    return replace(metrics, wall=wall)


def replace_parts(metrics: Metrics, sanity_s: float):  # type: ignore[no-untyped-def]
    parts = {**metrics.wall.parts, "sanity": sanity_s}
    return type(metrics.wall)(total_s=sum(parts.values()), parts=parts)


def test_a_long_check_is_told_with_the_setting() -> None:
    finding = RULE.check(checked(5.0))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.subject == "num_sanity_val_steps=50"
    assert finding.summary.startswith("50 validation batches before the training take 5.00 s, 19 % of the run")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(12.5)


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(checked(0.05)) is None
    assert RULE.check(checked(5.0, stage="test")) is None


@pytest.mark.parametrize(
    ("sanity_s", "steps", "fires"), [(0.9, 400, False), (1.1, 400, True), (20.0, 40_000, False), (31.0, 40_000, True)]
)
def test_a_part_of_the_run_or_half_a_minute_decides(sanity_s: float, steps: int, fires: bool) -> None:
    assert (RULE.check(checked(sanity_s, steps=steps)) is not None) is fires


def test_an_unknown_time_is_not_judged() -> None:
    metrics = build()
    parts = {name: s for name, s in metrics.wall.parts.items() if name != "sanity"}
    with pytest.raises(MissingSignal, match="sanity"):
        RULE.check(replace(metrics, wall=type(metrics.wall)(total_s=metrics.wall.total_s, parts=parts)))
