from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.loop.barebones_gap import BarebonesGap

RULE = BarebonesGap()


def short(loop_ms: float, rest_ms: float = 4.0, **more: object) -> Metrics:
    """Steps of which the loop takes so much and everything else so much."""
    times: dict[Phase, float] = dict.fromkeys(
        ("data_wait", "h2d", "backward", "optimizer", "zero_grad", "callbacks", "logging"), 0.0
    )
    return build(times_ms={**times, "forward": rest_ms, "loop": loop_ms}, **more)  # type: ignore[arg-type]


def test_short_steps_get_larger_batches() -> None:
    finding = RULE.check(short(1.0))
    assert finding is not None
    assert finding.severity == "info"
    assert "1.00 ms of a step of 5.00 ms (20 %), whatever the size of the batch (batch_size is 32)" in finding.summary
    assert finding.advice.startswith("Set batch_size=128")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(0.75)


@pytest.mark.parametrize(("loop_ms", "fires"), [(0.44, False), (0.46, True)])
def test_a_tenth_of_the_step_decides(loop_ms: float, fires: bool) -> None:
    assert (RULE.check(short(loop_ms)) is not None) is fires
