import math
from typing import Any

import host_builder
import pytest
from findings_builder import fired
from metrics_builder import build, outliers

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.steps.gc_pauses import GcPauses
from lightning_gpuprof.rules.steps.step_outliers import StepOutliers

RULE = GcPauses()


def collecting(ratio: float, **more: Any) -> Metrics:
    """A run of 400 steps of 50 ms whose collector takes so much of the time."""
    return build(host=host_builder.collecting(ratio), **more)


def test_collections_of_the_oldest_generation_are_found_with_the_line_that_helps() -> None:
    finding = fired(RULE, collecting(0.3))
    assert finding.severity == "critical"
    assert finding.subject == "garbage collector, oldest generation"
    assert "takes 30 % of the time in steps, 6.00 s in all" in finding.summary
    assert "gc.collect() every 120 steps" in finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(15)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(15 * (1 - 1.645 / 10))


@pytest.mark.parametrize(("ratio", "fires"), [(0.0, False), (0.02, False), (0.034, False), (0.037, True)])
def test_the_lower_bound_must_pass_the_least_gain(ratio: float, fires: bool) -> None:
    assert (RULE.check(collecting(ratio)) is not None) is fires


def test_pauses_that_make_the_outlying_steps_carry_their_gain() -> None:
    stalls = outliers(count=8, stall_ms=500.0, phases="forward", steps=380, period_ms=50.0)
    found = diagnose(collecting(0.2, stalls=stalls), [StepOutliers(), RULE]).findings
    assert [(f.rule, f.gain is not None) for f in found] == [("gc-pauses", True), ("step-outliers", False)]


def test_pauses_of_ordinary_steps_are_no_outlying_ones_although_these_pause_too() -> None:
    stalls = outliers(count=8, stall_ms=100.0, phases="forward", steps=380, period_ms=50.0)  # 0.8 of 4 s
    assert fired(RULE, collecting(0.2, stalls=stalls)).explains == claims.GARBAGE_COLLECTOR


def test_stalls_of_something_else_stand_for_themselves() -> None:
    stalls = outliers(count=8, stall_ms=500.0, phases="forward", steps=380, period_ms=50.0, every=41)
    found = diagnose(collecting(0.2, stalls=stalls), [StepOutliers(), RULE]).findings
    assert {f.rule: f.explains for f in found} == {
        "gc-pauses": claims.GARBAGE_COLLECTOR,
        "step-outliers": claims.OUTLIERS,
    }


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="40 of the 50 steady steps"):
        RULE.check(collecting(0.3, steady=40))
    with pytest.raises(MissingSignal, match="not valid numbers"):
        RULE.check(collecting(math.nan))


@pytest.mark.parametrize(("idle_ratio", "severity"), [(None, "info"), (0.02, "info"), (0.15, "warning")])
def test_on_a_device_only_what_it_idles_counts(idle_ratio: float | None, severity: str) -> None:
    finding = fired(RULE, collecting(0.3, run={"device.type": "cuda"}, idle_ratio=idle_ratio))
    assert finding.severity == severity
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(50 * (idle_ratio or 0.0))
