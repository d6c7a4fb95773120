"""What is gained beside the making of batches: no step gets shorter than the pace of the workers."""

from typing import Any

import msgspec
import pytest
from empty_structs import empty
from feeding_builder import starved, worker_row
from findings_builder import finding, gain
from metrics_builder import replace

from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.model.finding import Finding, Gain
from lightning_gpuprof.model.input_pipeline import InputWorker
from lightning_gpuprof.model.loading import Loading, Pace
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.gains import combined_gain

SLOW = {("Slow", "on_train_batch_end"): 10.0}


def paced(every_ms: float = 12.0, *, workers: int = 2, callbacks: bool = False, **changes: Any) -> Metrics:
    """Steps of 15 ms, 10 of them in a callback, whose workers make a batch every 12 ms if nothing holds them up."""
    times = {"callbacks": 10.0, "forward": 2.0, "backward": 1.0, "optimizer": 0.5, "loop": 0.5, "logging": 0.5}
    times |= {"zero_grad": 0.2, "h2d": 0.2, **changes.pop("compute_ms", {})}
    return starved(
        items_ms=every_ms * max(1, workers) - 1.0,
        workers=workers,
        compute_ms=times,  # type: ignore[arg-type]
        callbacks_ms=SLOW if callbacks else None,
        **changes,
    )


def held(metrics: Metrics, *findings: Finding) -> dict[str, float | None]:
    return {f.rule: None if f.gain is None else round(f.gain.saved_ms_per_step, 6) for f in settle(findings, metrics)}


def pace(metrics: Metrics) -> Pace | None:
    state = with_derived(metrics).loading
    assert isinstance(state, Loading)
    return state.pace


def gain_of(of: Finding, metrics: Metrics) -> Gain | None:
    """The gain of a finding, of the steps of these metrics."""
    return None if of.gain is None else gain(of.gain.saved_ms_per_step, 0.0, metrics.period_ms or 0.0)


def worker(*, item_max_ms: float, measured: int) -> InputWorker:
    return empty(
        InputWorker,
        process="worker0",
        batches=measured,
        measured=measured,
        items=measured,
        item_mean_ms=1.0,
        item_p95_ms=1.0,
        item_max_ms=item_max_ms,
        items_ms=1.0,
        collate_mean_ms=1.0,
    )


CALLBACK = finding("callback-slow", saved_ms=10.0, explains=claims.CALLBACKS, severity="critical", period_ms=15.0)
LOGGING = finding("logging-overhead", saved_ms=2.0, explains=claims.LOGGING, period_ms=15.0)
WAIT = finding("input-bound", saved_ms=3.0, explains=claims.WAIT_FOR_BATCHES, period_ms=15.0)


def test_a_slow_callback_promises_what_the_workers_leave() -> None:
    metrics = paced(callbacks=True)
    assert metrics.period_ms == pytest.approx(15.0)
    first = diagnose(metrics).findings[0]
    assert first.rule == "callback-slow"
    assert first.gain.saved_ms_per_step == pytest.approx(3.0)
    assert first.gain.speedup_max == pytest.approx(15 / 12)
    assert "2 workers deliver a batch every 12.0 ms at best, so no step can be shorter" in first.summary


def test_workers_that_are_fast_enough_bound_nothing() -> None:
    assert held(paced(4.9), CALLBACK) == {"callback-slow": 10.0}


@pytest.mark.parametrize("metrics", [paced(workers=0), paced(measured=False)])
def test_without_workers_that_were_measured_there_is_no_pace(metrics: Metrics) -> None:
    assert pace(metrics) is None
    callback = finding("callback-slow", saved_ms=10.0, explains=claims.CALLBACKS, period_ms=metrics.period_ms or 0.0)
    assert held(metrics, callback) == {"callback-slow": 10.0}


def test_all_cures_together_keep_the_pace() -> None:
    metrics = paced()
    found = settle([LOGGING, CALLBACK], metrics)
    assert [f.gain.saved_ms_per_step for f in found if f.gain is not None] == pytest.approx([3.0])
    combined = combined_gain(found, metrics)
    assert combined.saved_ms_per_step == pytest.approx(3.0)


def test_what_lies_beside_the_step_and_what_makes_batches_faster_is_free_of_the_pace() -> None:
    metrics = paced(13.0, validation=(4, 60.0))
    waits = finding("cpu-contention", saved_ms=3.0, explains=claims.NO_CPU, period_ms=15.0)
    quota = finding("host-cpu-quota", saved_ms=3.5, explains=claims.SWAPPING, period_ms=15.0)
    validation = finding("validation-stall", saved_ms=40.0, explains=claims.VALIDATION, period_ms=200.0)
    assert held(metrics, waits, quota, validation) == {
        "cpu-contention": 3.0,
        "host-cpu-quota": 3.5,
        "validation-stall": 40.0,
    }


def test_where_nothing_is_left_it_is_information_and_does_not_come_first() -> None:
    metrics = paced(14.9)
    found = settle([CALLBACK, finding("other", severity="warning")], metrics)
    assert [(f.rule, f.severity, f.gain) for f in found] == [
        ("other", "warning", None),
        ("callback-slow", "info", None),
    ]


def test_the_severity_is_that_of_what_is_left() -> None:
    assert [f.severity for f in settle([CALLBACK], paced(13.0))] == ["warning"]


def test_with_a_cure_for_the_workers_gains_stay_and_tell_what_they_need() -> None:
    behind = paced(18.0, verdict="processing")
    wait, callback = (msgspec.structs.replace(f, gain=gain_of(f, behind)) for f in (WAIT, CALLBACK))
    assert held(behind, wait, callback) == {"callback-slow": 10.0, "input-bound": 3.0}
    told = next(f for f in settle([wait, callback], behind) if f.rule == "callback-slow")
    assert told.summary.endswith("to gain more, load batches faster as well.")
    assert told.severity == "critical"


def test_bursts_of_batches_are_a_wait_for_workers_too() -> None:
    behind = paced(18.0, burst=0.2)
    few = finding("too-few-workers", saved_ms=3.0, explains=claims.OUTLIERS, period_ms=18.0)
    assert held(behind, few, CALLBACK)["callback-slow"] == 10.0
    assert held(behind, CALLBACK)["callback-slow"] is None


def test_a_wait_that_is_none_for_the_workers_lifts_no_pace() -> None:
    assert held(paced(verdict="transfer"), WAIT, CALLBACK)["callback-slow"] == pytest.approx(3.0)


def test_workers_without_a_cpu_may_get_faster_by_the_cure() -> None:
    queued = paced(rows=(worker_row(0, delay=0.1), worker_row(1, delay=0.1)))
    found = pace(queued)
    assert found.batch_ms == pytest.approx(12.0 - 0.1 * 15.0)


def test_the_longest_item_of_a_worker_is_no_pace() -> None:
    metrics = paced(workers=1)
    assert metrics.input is not None
    late = msgspec.structs.replace(metrics.input, workers=(worker(item_max_ms=500.0, measured=100),))
    found = pace(replace(metrics, input=late))
    assert found.batch_ms == pytest.approx(12.0 - 500.0 / 100)
