from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from metrics_builder import build, distribution

from lightning_gpuprof.model.report import Wall
from lightning_gpuprof.rules.base import (
    MissingSignal,
    device_idle_ratio,
    gain,
    run_ms_per_step,
    run_s,
    severity,
    steady_period_ms,
    worthwhile,
)


@pytest.mark.parametrize(
    ("lower_ratio", "steps", "expected"),
    [
        (0.0999, 100, "info"),
        (0.10, 100, "warning"),
        (0.1999, 100, "warning"),
        (0.20, 100, "critical"),
        (0.90, 19, "warning"),
        (0.90, 20, "critical"),
        (0.90, 9, "info"),
    ],
)
def test_severity_needs_share_and_steps(lower_ratio: float, steps: int, expected: str) -> None:
    assert severity(lower_ratio, steps) == expected


@pytest.mark.parametrize(
    ("recoverable_ms", "period_ms", "expected"),
    [(0.19, 1.0, False), (0.2, 1.0, True), (0.2, 100.0, False), (2.9, 100.0, False), (3.0, 100.0, True)],
)
def test_a_gain_must_be_worth_a_word(recoverable_ms: float, period_ms: float, expected: bool) -> None:
    assert worthwhile(recoverable_ms, period_ms) is expected


def test_gain_is_amdahls_bound_with_a_lower_bound_within() -> None:
    found = gain(20.0, 30.0, 50.0)
    assert found.speedup_max == pytest.approx(50 / 30)
    assert found.saved_lower_ms_per_step == 20.0
    assert gain(20.0, -3.0, 50.0).saved_lower_ms_per_step == 0.0


@pytest.mark.parametrize("period_ms", [math.nan, math.inf, 0.0, -1.0])
def test_a_period_that_is_no_positive_number_is_not_measured(period_ms: float) -> None:
    metrics = build()
    broken = msgspec.structs.replace(metrics.steps, period_ms=distribution(period_ms))
    with pytest.raises(MissingSignal, match="period"):
        steady_period_ms(replace(metrics, steps=broken))


def test_run_time_leaves_set_up_and_tear_down_out() -> None:
    metrics = build()
    parts = metrics.wall.parts
    assert run_s(metrics) == pytest.approx(metrics.wall.total_s - parts["setup"] - parts["teardown"])
    assert run_ms_per_step(metrics) * metrics.steps.count == pytest.approx(run_s(metrics) * 1e3)


def test_a_remainder_a_little_below_zero_is_no_broken_number() -> None:
    metrics = build()
    parts = {**metrics.wall.parts, "unexplained": -1e-6}
    assert run_s(replace(metrics, wall=Wall(total_s=metrics.wall.total_s, parts=parts))) > 0
    with pytest.raises(MissingSignal, match="part of the wall time"):
        run_s(replace(metrics, wall=Wall(total_s=metrics.wall.total_s, parts={**parts, "validation": -1.0})))


def test_a_run_without_wall_time_is_not_measured() -> None:
    with pytest.raises(MissingSignal, match="wall time"):
        run_s(replace(build(), wall=Wall(total_s=math.nan, parts={})))


def test_device_idle_time_is_held_against_untraced_steps() -> None:
    metrics = build(idle_ratio=0.3)
    assert metrics.period_ms is not None
    assert device_idle_ratio(metrics, metrics.period_ms) == pytest.approx(0.3)
    assert device_idle_ratio(build(), 50.0) is None
    orphaned = msgspec.structs.replace(metrics.windows[0], launches_matched=100, launches_unmatched=400)
    assert device_idle_ratio(replace(metrics, windows=(orphaned,)), metrics.period_ms) is None
