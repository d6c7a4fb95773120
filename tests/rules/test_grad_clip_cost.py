from __future__ import annotations

import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.steps.grad_clip_cost import GradClipCost

RULE = GradClipCost()
CLIPPED: dict[str, Value] = {"trainer.gradient_clip_val": 1.0, "model.parameter_tensors": 1006}


def clipping(ms: float, run: dict[str, Value] | None = None, idle_ratio: float | None = None) -> Metrics:
    return build(times_ms={"clip": ms}, run=CLIPPED if run is None else run, idle_ratio=idle_ratio)


def test_costly_clipping_is_found() -> None:
    finding = fired(RULE, clipping(10.0))
    assert finding.severity == "warning"
    assert finding.subject == "gradient_clip_val=1.0"
    assert finding.summary == "Clipping 1,006 gradients by norm to 1.0 takes 10.0 ms of each 60.0 ms step (17 %)."
    assert "accumulate_grad_batches=2" in finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(10)


def test_a_hook_of_ones_own_is_named() -> None:
    finding = fired(RULE, clipping(10.0, {"trainer.accumulate_grad_batches": 4}))
    assert finding.subject == "configure_gradient_clipping"
    assert "accumulate_grad_batches=8" in finding.advice
