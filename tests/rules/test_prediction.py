"""What a change is expected to bring, beside the bound of it; the planted truths are those of fits that were run."""

from typing import Any

import pytest
from empty_structs import empty
from feeding_builder import starved
from findings_builder import finding, gain
from metrics_builder import build, replace
from msgspec.structs import replace as stored

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import CRITICAL_STEPS, SEVERITIES, Expected, Finding, severity
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.loading import HANDOVER_MS, LIKELY_RECEIVE_MS, SHARING_MS, CpuTime
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.prediction import (
    BETWEEN_RUNS_RATIO,
    FREED_RATIO,
    WARM_MS,
    WARM_RATIO,
    expected,
    with_workers,
)
from lightning_gpuprof.sinks import wording

CHANGE = Change(call="Trainer", arguments={"log_every_n_steps": 50})
MORE_WORKERS = Change(call="DataLoader", arguments={"num_workers": 4})


def loads_by_itself(make_ms: float, rest_ms: float, *, cpu: float, cpus: float = 2.0, others: float = 0.0) -> Metrics:
    """Without workers; ``cpu`` is the part of the making that is CPU work."""
    return build(
        times_ms={**dict.fromkeys(PHASES, 0.0), "data_wait": make_ms, "forward": rest_ms / 2, "backward": rest_ms / 2},
        num_workers=0,
        usable_cpus=cpus,
        process_cpus=(rest_ms + cpu * make_ms) / (make_ms + rest_ms),
        worker_cpus=None,
        host=HostUse(machine=MachineUse(cpu_others_cpus=Level(mean=others, max=others))),
        run={"device.type": "cpu", "torch.num_threads": 1},
    )


def callbacks(metrics: Metrics, saved_ms: float = 20.0) -> Finding:
    """A finding on them."""
    period_ms = metrics.period_ms
    assert period_ms is not None
    return empty(
        Finding,
        rule="callback-slow",
        severity="warning",
        gain=gain(saved_ms, 0.95 * saved_ms, period_ms),
        explains=claims.CALLBACKS,
        change=CHANGE,
    )


def first(metrics: Metrics, rule: str) -> Finding:
    return next(finding for finding in diagnose(metrics).findings if finding.rule == rule)


# Mean steps of fits on two CPUs, run as they were and with the workers.
@pytest.mark.parametrize(
    ("make_ms", "rest_ms", "cpu", "workers", "after_ms"),
    [
        (81.4, 3.6, 0.03, 2, 41.8),
        (16.9, 2.5, 0.05, 1, 17.3),
        (8.8, 1.8, 0.07, 2, 4.7),
        (132.0, 2.1, 0.02, 2, 67.4),
        (8.2, 2.3, 1.0, 2, 7.0),
        (16.4, 3.5, 1.0, 2, 11.8),
        (16.4, 3.5, 1.0, 1, 18.2),
        (32.7, 1.95, 1.0, 1, 34.3),
    ],
)
def test_the_step_with_workers_is_that_of_the_fits_that_were_run(
    make_ms: float, rest_ms: float, cpu: float, workers: int, after_ms: float
) -> None:
    metrics = loads_by_itself(make_ms, rest_ms, cpu=cpu)
    found = with_workers(measured(metrics.loading), workers, metrics)
    assert abs(found.step_ms - after_ms) / found.whole_ms < 0.05
    assert found.lower_ms < after_ms < found.upper_ms


@pytest.mark.parametrize(("make_ms", "rest_ms", "after_ms"), [(137.7, 56.8, 110.3), (143.1, 84.9, 114.5)])
def test_long_steps_that_use_all_cpus_are_within_the_interval(make_ms: float, rest_ms: float, after_ms: float) -> None:
    metrics = loads_by_itself(make_ms, rest_ms, cpu=1.0)
    found = with_workers(measured(metrics.loading), 2, metrics)
    assert found.lower_ms < after_ms < found.upper_ms


def test_of_workers_less_is_expected_where_others_use_cpus_and_nothing_is_said_where_they_use_all() -> None:
    alone, few, some, many = (loads_by_itself(82.0, 10.0, cpu=1.0, others=others) for others in (0.0, 0.4, 0.5, 1.9))
    finding = stored(callbacks(alone), explains=claims.WAIT_FOR_BATCHES, change=MORE_WORKERS)
    found = [expected(finding, metrics) for metrics in (alone, few, some, many)]
    assert found[1].upper_ms > found[0].upper_ms
    assert found[2].step_ms > found[0].step_ms
    assert found[3] is None
    why = [first(metrics, "single-process-loading").advice.partition("Why 2: ")[2] for metrics in (alone, many)]
    assert why[0].startswith("a batch costs 82.0 ms of CPU time")
    assert why[1].startswith("a batch took 82.0 ms while other programs ran, and you have")
    assert "Other processes use 1.9 CPUs: while they do, workers gain less." in why[1]
    assert why[1].endswith("Remaining cost: a wait of at least 36.0 ms in each step.")


def test_beside_others_no_step_with_workers_is_expected_to_take_longer_than_now() -> None:
    metrics = loads_by_itself(20.0, 12.0, cpu=0.03, cpus=1.0, others=1.5)
    found = with_workers(measured(metrics.loading), 3, metrics)
    assert found.step_ms < found.upper_ms <= found.whole_ms


@pytest.mark.parametrize("others", [1.9, 1.0, 0.6, 0.5, 0.3, 0.0])
def test_no_finding_is_more_severe_than_what_its_change_is_expected_to_bring(others: float) -> None:
    found = first(loads_by_itself(20.0, 60.0, cpu=1.0, others=others), "single-process-loading")
    assert found.gain is not None
    times = found.gain.speedup_max if found.expected is None else found.expected.speedup
    assert SEVERITIES.index(found.severity) >= SEVERITIES.index(severity(1 - 1 / times, CRITICAL_STEPS))


def test_little_is_expected_of_workers_where_the_model_computes_on_all_cpus() -> None:
    """Two threads compute for 50 ms, and one of them makes the batch in 30 ms: 130 of 160 ms of two CPUs."""
    quiet = loads_by_itself(30.0, 50.0, cpu=1.0)
    run = {**quiet.run, "torch.num_threads": 2}
    busy = replace(quiet, cpu=replace(quiet.cpu, process_cpus=(2 * 50.0 + 30.0 + 5.0) / 80.0), run=run)
    found = with_workers(measured(busy.loading), 2, busy)
    assert found.step_ms == pytest.approx((130.0 + SHARING_MS) / 2, rel=0.04)  # the model alone takes 50 of it
    assert found.step_ms > with_workers(measured(quiet.loading), 2, quiet).step_ms


def test_more_workers_than_the_step_needs_leave_the_step_and_the_receipt_of_a_batch() -> None:
    metrics = starved(items_ms=39.0, workers=1, usable_cpus=16.0)
    state = measured(metrics.loading)
    assert with_workers(state, 16, metrics).step_ms == pytest.approx(
        state.compute_ms - WARM_MS + LIKELY_RECEIVE_MS, rel=0.01
    )


def test_two_limits_alike_hold_up_a_step_for_longer_than_one() -> None:
    """Workers and the rest of the step, each as slow as the other, are 12 % slower than each alone."""
    metrics = starved(items_ms=39.0, workers=1, usable_cpus=16.0)
    state = measured(metrics.loading)
    alike = replace(
        state,
        batch_ms=4 * (state.compute_ms + LIKELY_RECEIVE_MS) - HANDOVER_MS,
        cpu_ms=CpuTime(least_ms=0.1, most_ms=0.1),
    )
    found = alike.step_times_ms(4)[1]
    assert found == pytest.approx(2 ** (1 / 6) * (state.compute_ms + LIKELY_RECEIVE_MS), rel=0.01)


def test_a_device_that_works_meanwhile_leaves_less_to_gain() -> None:
    metrics = starved(items_ms=39.0, workers=1, usable_cpus=16.0, device_idle=0.2, run={"device.type": "cuda"})
    state = measured(metrics.loading)
    assert with_workers(state, 16, metrics).step_ms == pytest.approx(0.8 * state.period_ms)


def test_a_finding_on_workers_says_what_to_expect() -> None:
    finding = first(loads_by_itself(82.0, 5.0, cpu=0.05), "single-process-loading")
    assert finding.gain is not None
    lower, upper = finding.expected.speedup_range
    assert 1 < lower < finding.expected.speedup < upper


def slow_callback(**changes: Any) -> Metrics:
    """Of 20 ms in a step of 31 ms."""
    return build(times_ms={"callbacks": 20.0}, **changes)


@pytest.mark.parametrize(("callback_ms", "faster_ms"), [(20.0, WARM_MS), (4.0, WARM_RATIO * 4.0)])
def test_without_a_callback_the_rest_of_a_step_on_a_cpu_is_faster(callback_ms: float, faster_ms: float) -> None:
    metrics = build(times_ms={"callbacks": callback_ms}, run={"device.type": "cpu"})
    finding = callbacks(metrics, callback_ms)
    found = expected(finding, metrics)
    assert found is not None
    assert found.step_ms == pytest.approx(found.whole_ms - finding.gain.saved_ms_per_step - faster_ms)
    assert found.lower_ms == pytest.approx((1 - BETWEEN_RUNS_RATIO) * (found.step_ms - faster_ms))
    assert found.upper_ms <= found.whole_ms


def test_without_workers_a_cheaper_batch_ends_its_part_of_the_wait() -> None:
    metrics = loads_by_itself(12.0, 8.0, cpu=0.9)
    assert metrics.period_ms is not None
    finding = empty(
        Finding, rule="transform-hotspot", gain=gain(10.0, 0.0, metrics.period_ms), explains=claims.WAIT_FOR_BATCHES
    )
    found = expected(finding, metrics)
    assert found is not None
    assert found.step_ms == pytest.approx(found.whole_ms - 10.0 - WARM_RATIO * 10.0)
    whole = first(loads_by_itself(40.0, 10.0, cpu=1.0, cpus=1.0), "input-bound")
    assert whole.expected is None, "batches can be made cheaper, but not free"
    on_a_device = replace(metrics, run={**metrics.run, "device.type": "cuda"})
    assert expected(finding, on_a_device) is None


def crowded(workers_cpus: float, **changes: Any) -> Metrics:
    """The model computes for 10 ms on what two workers leave of two CPUs, and waits 2 ms for one of these."""
    metrics = starved(transforms={"Blur": 0.9}, usable_cpus=2.0, process_cpus=0.4, worker_cpus=workers_cpus, **changes)
    rows = tuple(
        stored(row, cpu_ms=(row.median_ms or 0.0) - 2.0) if row.phase == "forward" else row for row in metrics.phases
    )
    return replace(metrics, phases=rows, cpu=replace(metrics.cpu, run_delay_ratio=0.3))


def test_where_a_device_works_meanwhile_a_free_cpu_shortens_no_step() -> None:
    metrics = crowded(1.6, device_idle=0.3, run={"device.type": "cuda"})
    state, finding = measured(metrics.loading), first(metrics, "transform-hotspot")
    assert state.delayed_ms > 0
    assert finding.gain is not None
    whole_ms = finding.gain.whole_ms
    bound = empty(
        Finding, rule=finding.rule, gain=gain(state.wait.median_ms, 0.0, whole_ms), explains=claims.WAIT_FOR_BATCHES
    )
    found = expected(bound, metrics)
    assert found is not None
    assert found.step_ms == pytest.approx(0.7 * state.period_ms)


@pytest.mark.parametrize(("workers_cpus", "frees"), [(1.6, True), (0.2, False)])
def test_a_cheaper_batch_also_ends_what_the_model_waits_for_the_workers_cpus(workers_cpus: float, frees: bool) -> None:
    metrics = crowded(workers_cpus)
    finding = first(metrics, "transform-hotspot")
    assert finding.gain is not None
    assert (measured(metrics.loading).delayed_ms == pytest.approx(2.0)) is frees
    assert (finding.expected is not None) is frees
    if finding.expected is not None:
        saved_ms = finding.expected.whole_ms - finding.expected.step_ms
        assert saved_ms == pytest.approx(finding.gain.saved_ms_per_step + FREED_RATIO * 2.0)


def test_a_wait_in_forward_goes_and_what_forward_computes_is_not_taken_for_one() -> None:
    metrics = build(times_ms={"forward": 20.0}, run={"device.type": "cpu"})
    finding = stored(callbacks(metrics), rule="blocked-in-step", explains=claims.FORWARD, change=None)
    found = []
    for cpu_ms in (0.5, 12.0, None):
        rows = tuple(stored(row, cpu_ms=cpu_ms) if row.phase == "forward" else row for row in metrics.phases)
        found.append(expected(finding, replace(metrics, phases=rows)))
    waits, computes, unknown = found
    assert waits is not None
    assert waits.step_ms == pytest.approx(waits.whole_ms - 20.0 - WARM_MS)
    assert computes is unknown is None


def test_no_end_of_what_is_outside_of_the_steps_is_expected_without_a_change() -> None:
    metrics = slow_callback(run={"device.type": "cpu"})
    assert expected(stored(callbacks(metrics), explains=claims.VALIDATION, change=None), metrics) is None
    assert expected(stored(callbacks(metrics), explains=claims.VALIDATION), metrics) is not None


@pytest.mark.parametrize(
    ("claim", "change", "metrics"),
    [
        (claims.CALLBACKS, CHANGE, slow_callback(run={"device.type": "cuda"})),  # no window: it may cost nothing
        (claims.MATRIX_KERNELS, CHANGE, slow_callback(run={"device.type": "cpu"})),
        (claims.OUTLIERS, MORE_WORKERS, loads_by_itself(82.0, 5.0, cpu=0.05)),  # no bursts
        (claims.WAIT_FOR_BATCHES, stored(MORE_WORKERS, inside="val_dataloader"), loads_by_itself(82.0, 5.0, cpu=0.05)),
        (claims.WAIT_FOR_BATCHES, MORE_WORKERS, starved(workers=4, run={"device.type": "cpu"})),  # no more than now
        (claims.CALLBACKS, CHANGE, starved(items_ms=59.0, workers=1, waited=0.9, run={"device.type": "cpu"})),  # paced
    ],
    ids=["unseen device", "kernels", "outliers", "validation", "as many workers", "workers are the bottleneck"],
)
def test_what_only_a_trial_tells_is_not_predicted(claim: Claim, change: Change, metrics: Metrics) -> None:
    finding = stored(callbacks(slow_callback(run={"device.type": "cpu"})), explains=claim, change=change)
    assert finding.gain is not None
    assert expected(finding, metrics) is None


def test_workers_that_the_cpus_have_no_room_for_are_no_fault() -> None:
    metrics = loads_by_itself(2.0, 1.0, cpu=1.0, cpus=1.2)
    loud = [f for f in diagnose(metrics).findings if f.severity != "info" and f.change is not None]
    assert not [f.rule for f in loud if f.change is not None and f.change.call == "DataLoader"]


def test_steps_that_are_long_and_short_in_turn_are_taken_at_their_mean() -> None:
    metrics = starved(items_ms=80.0, workers=2, usable_cpus=16.0, burst=0.5, ordinary_wait_ms=70.0, waited=0.6)
    found = [f for f in diagnose(metrics).findings if f.explains in (claims.WAIT_FOR_BATCHES, claims.OUTLIERS)]
    assert {f.explains for f in found} == {claims.OUTLIERS}
    assert sum(f.gain is not None for f in found) == 1


def test_the_words_have_the_bound_only_where_it_is_beyond_what_is_expected() -> None:
    bound, found = gain(80.0, 79.0, 87.0), finding("callback-slow")
    likely = stored(found, expected=Expected(whole_ms=87.0, step_ms=8.0, lower_ms=7.5, upper_ms=9.0))
    assert wording.gain(likely, stored(bound, speedup_max=20.0)).startswith(
        "about 10.9x (9.67 to 11.6), at most 20x (saves "
    )
    assert wording.gain(likely, stored(bound, speedup_max=11.0)) == "about 10.9x (9.67 to 11.6)"
    assert wording.gain(found, stored(bound, speedup_max=11.0)) == "up to 11x (saves 80 ms/step)"
    between = stored(found, explains=claims.VALIDATION)
    assert wording.gain(between, bound).endswith(" for the run without setup and teardown")
