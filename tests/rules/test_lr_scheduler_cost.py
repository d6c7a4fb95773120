import math

import pytest
from metrics_builder import build, replace, share

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.loop.lr_scheduler_cost import LrSchedulerCost
from lightning_gpuprof.rules.steps.blocked_in_step import BlockedInStep

RULE = LrSchedulerCost()


def stepping(ms: float) -> Metrics:
    """Steps of 50 ms of which the scheduler takes so much."""
    return replace(build(), lr_scheduler=share(ms, 50.0))


@pytest.mark.parametrize(("ms", "fires"), [(2.5, False), (2.6, True)])
def test_a_twentieth_of_the_step_decides(ms: float, fires: bool) -> None:
    assert (RULE.check(stepping(ms)) is not None) is fires


@pytest.mark.parametrize(("blocked_ms", "other_ms"), [(10.5, None), (22.0, 12.0)])
def test_a_scheduler_that_waits_is_gained_once(blocked_ms: float, other_ms: float | None) -> None:
    times: dict[Phase, float] = {"optimizer": 24.0, "forward": 10.0, "backward": 10.0}
    blocked: dict[Phase, float] = {"optimizer": blocked_ms}
    metrics = build(times_ms=times, blocked_ms=blocked)
    assert metrics.period_ms is not None
    metrics = replace(metrics, lr_scheduler=share(10.0, metrics.period_ms))
    found = diagnose(metrics, [RULE, BlockedInStep()]).findings
    gains = {f.rule: f.gain.saved_ms_per_step for f in found if f.gain is not None}
    expected = {"lr-scheduler-cost": 10.0} | ({} if other_ms is None else {"blocked-in-step": other_ms})
    assert gains == pytest.approx(expected)


def test_what_cannot_be_told_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not a valid number"):
        RULE.check(stepping(math.nan))
