from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import shares_of, starved, worker_row
from metrics_builder import replace

from lightning_gpuprof.model.input_pipeline import InputVerdictKind, InputWorker
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.input_jitter import InputJitter

RULE = InputJitter()


def slowest(mean_ms: float = 1.0, max_ms: float | None = 200.0) -> InputWorker:
    return InputWorker(
        loader=0,
        process="worker0",
        batches=200,
        measured=200,
        items=1600,
        item_mean_ms=mean_ms,
        item_p95_ms=2.0,
        item_max_ms=max_ms,
        items_ms=8.0,
        collate_mean_ms=0.1,
        collate_max_ms=0.1,
        idle_ms=80.0,
        idle_ratio=0.5,
    )


def planted(
    total: float = 0.3,
    lower: float | None = 0.25,
    *,
    items_ms: float = 15.0,
    one: InputWorker | None = None,
    **changes: Any,
) -> Metrics:
    """Steps of 10 ms that find their batch ready, but for some that wait for long."""
    verdict: InputVerdictKind = changes.pop("verdict", "compute")
    metrics = starved(items_ms=items_ms, verdict=verdict, slowest=one or slowest(), **changes)
    wait = replace(metrics.shares["data_wait"], median_ms=0.1, median_ratio=0.01, lower_ratio=0.01)
    return shares_of(metrics, "data_wait", replace(wait, total_ratio=total, total_lower_ratio=lower))


def test_it_gives_the_queue_that_hides_the_slowest_sample() -> None:
    finding = RULE.check(planted(run={"loader.in_order": True}))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.explains == claims.OUTLIERS
    assert "The slowest sample took 200 ms, the mean 1.00 ms" in finding.summary
    # ((200 + 16) / 10 + 1) / 2
    assert "prefetch_factor=12). Why 12: 24 batches" in finding.advice
    assert "in_order=False" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(0.29 * 10 / 0.7, rel=0.02)


@pytest.mark.parametrize(("lower", "fires"), [(0.058, False), (0.061, True)])
def test_a_twentieth_beyond_the_median_decides(lower: float, fires: bool) -> None:
    assert (RULE.check(planted(lower=lower)) is not None) is fires


def test_a_single_stall_does_not_pass() -> None:
    assert RULE.check(planted(lower=0.0)) is None


@pytest.mark.parametrize(("longest_ms", "fires"), [(19.0, False), (21.0, True)])
def test_samples_must_differ_by_much(longest_ms: float, fires: bool) -> None:
    finding = RULE.check(planted(one=slowest(mean_ms=4.0, max_ms=longest_ms)))
    assert (finding is not None) is fires


def test_workers_that_are_behind_are_no_jitter() -> None:
    assert RULE.check(planted(verdict="processing")) is None


def test_stalls_that_the_making_of_batches_cannot_hold_are_left_to_others() -> None:
    assert RULE.check(planted(items_ms=2.0)) is None  # 4 ms a step are wait, 3 ms of making a batch


def test_workers_without_a_cpu_are_no_slow_samples() -> None:
    crowded = worker_row(cpu=0.1, delay=0.4)
    assert RULE.check(planted(rows=(crowded, crowded), idle_ratio=0.4)) is None
    calm = worker_row(cpu=0.1, delay=0.02)
    assert RULE.check(planted(rows=(calm, calm), idle_ratio=0.4)) is not None


@pytest.mark.parametrize(("longest_ms", "fires"), [(90.0, False), (200.0, True)])
def test_on_cpus_that_others_use_only_very_slow_samples_count_and_as_information(
    longest_ms: float, fires: bool
) -> None:
    finding = RULE.check(planted(one=slowest(max_ms=longest_ms), others_cpus=1.5))
    assert (finding is not None) is fires
    assert finding is None or finding.severity == "info"


def test_a_long_queue_leaves_only_the_samples() -> None:
    metrics = planted()
    assert metrics.loader is not None
    finding = RULE.check(replace(metrics, loader=replace(metrics.loader, prefetch_factor=30)))
    assert finding is not None
    assert finding.advice.startswith("Make slow samples like the others")


def test_it_is_quiet_on_a_healthy_run_and_without_workers() -> None:
    assert RULE.check(planted(total=0.012, lower=0.011)) is None
    assert RULE.check(planted(workers=0)) is None


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="bound of the wait"):
        RULE.check(planted(lower=None))
    with pytest.raises(MissingSignal, match="not measured from inside"):
        RULE.check(planted(measured=False))
    with pytest.raises(MissingSignal, match="makes them together"):
        RULE.check(planted(one=slowest(max_ms=None)))
    with pytest.raises(MissingSignal, match="40 steady steps, 50 are needed"):
        RULE.check(planted(steady=40))


def test_waits_that_the_device_works_through_are_free() -> None:
    assert RULE.check(planted(run={"device.type": "cuda"}, device_idle=-0.4)) is None
    seen = RULE.check(planted(run={"device.type": "cuda"}, device_idle=0.3))
    unseen = RULE.check(planted(run={"device.type": "cuda"}))
    assert seen is not None
    assert unseen is not None
    assert (seen.severity, unseen.severity) == ("critical", "warning")
