from __future__ import annotations

from typing import Any

import pytest
from findings_builder import fired
from memory_builder import allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.memory.uneven_peak_phase import UnevenPeakPhase

RULE = UnevenPeakPhase()


def run(facts: dict[str, Any] | None = None, *, fullest_gib: float = 98.0, **changes: Any) -> Metrics:
    ends = {"forward": fullest_gib, "backward": 90.0, "optimizer": 90.0, "step": 90.0}
    told = {"allocated_gib": 112.0, "peak_phase": "optimizer", "ends_gib": ends, **changes}
    return on_gpu(allocator(**told), run=facts)


@pytest.mark.parametrize(
    "look_alike",
    [
        {"facts": {"model.optimizer_foreach": False}},
        {"allocated_gib": 97.0, "fullest_gib": 60.0},
    ],
    ids=str,
)
def test_it_is_quiet_where_it_does_not_matter_or_is_not_foreach(look_alike: dict[str, Any]) -> None:
    assert RULE.check(run(**look_alike)) is None


@pytest.mark.parametrize(("fullest_gib", "fires"), [(100.5, True), (101.0, False)])
def test_a_tenth_of_the_peak_decides(fullest_gib: float, fires: bool) -> None:
    assert (RULE.check(run(fullest_gib=fullest_gib)) is not None) is fires


@pytest.mark.parametrize(
    ("facts", "advised"),
    [
        ({"model.optimizer": "RAdam"}, "RAdam(..., foreach=False)"),
        ({"trainer.precision": "16-mixed", "trainer.gradient_clip_val": 1.0}, "AdamW(..., foreach=False)"),
        ({"model.optimizer": "Lion"}, "whether Lion can"),
    ],
)
def test_fused_is_advised_only_where_it_is_possible(facts: dict[str, Any], advised: str) -> None:
    finding = fired(RULE, run(facts))
    assert advised in finding.advice
    assert "(..., fused=True)" not in finding.advice
