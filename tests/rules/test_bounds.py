"""No gain is above the time of what it ends, by the ledger; and gains together leave what nobody claims."""

import msgspec
import pytest
from findings_builder import finding
from host_builder import collecting
from late_steps import training
from metrics_builder import build, distribution, replace, share
from trace_metrics import metrics_of, recorded_steps

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.gains import combined_gain, most_ms


def saved_ms(metrics: Metrics, claim: Claim, promised_ms: float) -> float:
    whole_ms = metrics.run_ms_per_step
    gain = settle([finding("a", saved_ms=promised_ms, explains=claim, period_ms=whole_ms)], metrics)[0].gain
    return 0.0 if gain is None else gain.saved_ms_per_step


@pytest.mark.parametrize("claim", [claims.VALIDATION, claims.CHECKPOINT, claims.EPOCH_GAP], ids=str)
def test_what_is_outside_the_steps_gains_no_more_than_its_part_of_the_wall_time(claim: Claim) -> None:
    metrics = build(validation=(4, 8.0), checkpoint=(4, 4.0), iterator_s=1.0)
    part_ms = metrics.wall.parts[claim.part or "train"] * 1e3 / metrics.steps.count
    assert saved_ms(metrics, claim, 70.0) == pytest.approx(part_ms)


def test_a_phase_gains_no_more_than_it_takes_in_the_mean_step() -> None:
    """The data got slower in the middle of the run: most steps wait 60 ms, and the mean one 35."""
    metrics = build(times_ms={"data_wait": 60.0})
    period_ms = metrics.period_ms or 0.0
    mean = msgspec.structs.replace(distribution(period_ms), mean=period_ms - 25.0)
    shares = {**metrics.shares, "data_wait": share(60.0, period_ms, total_ratio=35.0 / (period_ms - 25.0))}
    changed = replace(metrics, shares=shares, steps=msgspec.structs.replace(metrics.steps, period_ms=mean))
    assert saved_ms(metrics, claims.WAIT_FOR_BATCHES, 90.0) == pytest.approx(60.0)
    assert saved_ms(changed, claims.WAIT_FOR_BATCHES, 60.0) == pytest.approx(35.0)


def test_one_phase_leaves_the_others_whatever_the_mean_step_is() -> None:
    """Forward holds half of each step: it cannot take nearly all of the whole away."""
    metrics = build(times_ms={"forward": 49.2})
    period_ms = metrics.period_ms or 0.0
    assert most_ms(claims.FORWARD, period_ms, metrics) == pytest.approx(49.2)
    assert most_ms(claims.FORWARD, 2 * period_ms, metrics) == pytest.approx(49.2)
    assert most_ms(claims.FORWARD, period_ms / 2, metrics) == pytest.approx(24.6, rel=0.01)


def test_stalls_gain_no_more_than_the_mean_step_has_above_the_quickest() -> None:
    metrics = build()
    assert saved_ms(metrics, claims.OUTLIERS, 40.0) == 0.0


def test_python_gains_what_a_finding_on_forward_leaves_of_forward_and_backward() -> None:
    """A loop in forward that grows with every step: its excess is Python's time, too."""
    metrics = build(times_ms={"forward": 60.0, "backward": 5.0})
    period_ms = metrics.period_ms or 0.0
    python = finding("python-overhead", saved_ms=62.0, explains=claims.PYTHON, period_ms=period_ms)
    grows = finding("step-drift", saved_ms=40.0, explains=claims.FORWARD, period_ms=period_ms)
    saved = {one.rule: one.gain for one in settle([python, grows], metrics)}
    assert saved["step-drift"].saved_ms_per_step == pytest.approx(40.0)
    assert saved["python-overhead"].saved_ms_per_step == pytest.approx(25.0)


def test_all_gains_together_leave_the_phases_that_none_of_them_takes() -> None:
    """Of a mean step that stalls make longer than the ordinary one, callbacks and logging gain more than they take."""
    metrics = build(times_ms={"callbacks": 30.0, "logging": 20.0})
    period_ms = metrics.period_ms or 0.0
    found = [
        finding("callback-slow", saved_ms=45.0, explains=claims.CALLBACKS, period_ms=2 * period_ms),
        finding("logging-overhead", saved_ms=45.0, explains=claims.LOGGING, period_ms=2 * period_ms),
    ]
    combined = combined_gain(found, metrics)
    others_ms = sum(share.median_ms for phase, share in metrics.shares.items() if phase not in ("callbacks", "logging"))
    assert others_ms > 5.0
    assert combined.period_ms - combined.saved_ms_per_step == pytest.approx(others_ms)


def test_gains_of_a_longer_mean_step_together_save_no_larger_part_of_the_ordinary_one() -> None:
    """Pauses of the collector and a slow second half of a mean step of 49 ms saved all of an ordinary one of 34."""
    metrics = build()
    period_ms = metrics.period_ms or 0.0
    found = [
        finding("phase-change", saved_ms=0.7 * period_ms, explains=claims.BACKWARD, period_ms=1.5 * period_ms),
        finding("gc-pauses", saved_ms=0.3 * period_ms, explains=claims.GARBAGE_COLLECTOR, period_ms=1.5 * period_ms),
    ]
    combined = combined_gain(found, metrics)
    assert combined.saved_ms_per_step == pytest.approx(0.7 * period_ms)
    assert combined.step_speedup_max < 3.4


def test_what_lies_anywhere_in_the_step_is_partly_what_others_save() -> None:
    """A wait in forward, and pauses of the collector that are a part of it, saved all of a step: 100x."""
    metrics = build(times_ms={"forward": 60.0})
    period_ms = metrics.period_ms or 0.0
    found = [
        finding("blocked-in-step", saved_ms=0.6 * period_ms, explains=claims.FORWARD, period_ms=period_ms),
        finding("gc-pauses", saved_ms=0.5 * period_ms, explains=claims.GARBAGE_COLLECTOR, period_ms=period_ms),
    ]
    combined = combined_gain(found, metrics)
    assert combined.step_speedup_max == pytest.approx(1 / (0.4 * 0.5))


def test_what_the_ledger_does_not_tell_has_no_bound() -> None:
    assert most_ms(claims.ALLOCATOR, 50.0, build()) == float("inf")
    assert most_ms(claims.WAIT_FOR_BATCHES, 50.0, build(steps=0, epochs=1)) == float("inf")


@pytest.mark.parametrize("ratio", [0.3, 0.5])
def test_whatever_keeps_the_host_from_launching_is_gained_from_one_idle_time(ratio: float) -> None:
    window = recorded_steps(lambda trace: training(trace, kernel_us=3.0), steps=5)
    metrics = metrics_of(window, run={"compile.state": "none", "model.optimizer": "AdamW"})
    period_ms = metrics.period_ms or 0.0
    delay = share(ratio * period_ms, period_ms)
    cpu = replace(metrics.cpu, usable_cpus=1.0, run_delay_ratio=ratio, run_delay=delay, run_delay_samples=60)
    pauses = replace(collecting(ratio).gc, pause_ms_per_step=ratio * period_ms)
    found = diagnose(replace(metrics, cpu=cpu, host=HostUse(gc=pauses)))
    assert {"launch-bound", "cpu-contention", "gc-pauses"} <= {f.rule for f in found.findings}
    assert found.combined.step_speedup_max < 5.2  # the device works 0.9 of 4.55 ms
    assert sum(f.gain.saved_ms_per_step for f in found.findings if f.gain is not None) < period_ms - 0.85
