"""Metrics from built journals, where every number is known."""

import tracemalloc

import msgspec
import numpy as np
import pytest
from built_journals import MS, build, charge, ints, journal

from lightning_gpuprof.analyze import budget, statistics
from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal_columns import CpuColumns, Journal
from lightning_gpuprof.model.journal import LAST_OF_EPOCH, PROFILED, Notice, Sample, Segment, Slot
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.phases import PHASES


@pytest.fixture
def of() -> Journal:
    return journal()


def test_parts_and_shares_are_those_that_were_built(of: Journal) -> None:
    charge(of, 5, 50, 200 * MS)
    charge(of, 6, 60, 30 * MS)
    m = build(of)
    assert m.wall.total_s == pytest.approx(0.1 + 1.0 + 0.23)
    assert m.wall.parts == pytest.approx(
        {
            "setup": 0.08,
            "sanity": 0.02,
            "train": 1.0,
            "validation": 0.2,
            "checkpoint": 0.03,
            "epoch_gap": 0,
            "teardown": 0,
            "unexplained": 0,
        }
    )
    assert sum(row.share for row in m.phases) == pytest.approx(1)
    share = m.share("data_wait")
    assert (share.median_ratio, share.lower_ratio) == pytest.approx((0.4, 0.4))
    assert m.period_ms == pytest.approx(10)
    assert m.steps.samples_per_s == pytest.approx(3200)
    assert (m.validation.count, m.checkpoint.count) == (1, 1)


def test_time_that_no_record_accounts_for_is_unexplained(of: Journal) -> None:
    of.segments.clear()
    assert build(of).wall.parts["unexplained"] == pytest.approx(0.1)


def test_warm_up_profiled_and_validating_steps_do_not_enter_the_statistics() -> None:
    of = journal(warmup=12)
    of.steps.flags[40:45] |= PROFILED
    charge(of, 2, 42, 500 * MS)
    charge(of, 5, 70, 500 * MS)
    m = build(of)
    assert m.steps.steady_from is not None
    assert m.steps.steady_from >= 12
    assert m.steps.period_ms.max == pytest.approx(10)
    assert m.steps.steady_count == 100 - m.steps.steady_from - 5 - 2  # the step after validation, too


def test_a_slow_first_half_is_no_warm_up() -> None:
    of = journal(200, warmup=100)
    m = build(of)
    assert m.steps.steady_from <= 41


def test_callbacks_are_named_without_their_arguments_and_without_ourselves(of: Journal) -> None:
    charge(of, 4, 3, 7 * MS)
    m = build(of)
    assert [(c.name, c.hook) for c in m.callback_shares] == [("Slow", "on_train_batch_end")]
    assert m.callback_shares[0].share.median_ratio == pytest.approx(0.1)
    assert {row.name for row in m.callbacks} == {"Slow", "GpuProfiler"}
    assert m.overhead["boundary_us_per_step"] == pytest.approx(70)


def test_what_our_own_hooks_take_outside_the_steps_is_in_our_cost(of: Journal) -> None:
    of.slots = [*of.slots, Slot(id=9, action="a", phase="callbacks", callback="GpuProfiler", hook="on_train_start")]
    end = int(of.steps.start_ns[-1] + of.steps.period_ns[-1])
    of.segments = [
        Segment(kind="setup", start_ns=0, end_ns=100 * MS, charged={0: 40 * MS, 9: 60 * MS}),
        Segment(kind="teardown", start_ns=end, end_ns=end + 9 * MS, charged={0: 2 * MS, 4: 7 * MS}),
    ]
    charge(of, 4, 3, 7 * MS)
    assert build(of).overhead["hooks_s"] == pytest.approx(0.067)


def test_stalls_are_outliers_of_the_phase_that_holds_them() -> None:
    of = journal(200)
    for index in range(20, 200, 40):
        charge(of, 1, index, 400 * MS)
    outliers = build(of).outliers
    assert outliers.count == 5
    assert outliers.excess_ms == pytest.approx(2000)
    assert outliers.rest_excess_ms == pytest.approx(1200)  # without the two longest
    assert outliers.excess_by_phase_ms == pytest.approx({"data_wait": 2000})
    assert set(outliers.batches) == set(range(20, 200, 40))
    assert build(journal(30)).outliers is None


@pytest.mark.parametrize(("waits_ms", "sampled", "ratio"), [(380, 1, 0.93), (380, 20, 0.1), (0, 1, 0.0)])
def test_stalls_are_held_against_waiting_for_a_cpu(waits_ms: int, sampled: int, ratio: float) -> None:
    """Of 402 ms beyond the median, 374 ms more than an ordinary step waits; where no stall was read, all steps tell."""
    of = journal(200)
    for index in range(20, 200, 40):
        charge(of, 1, index, 402 * MS)
    batches = np.arange(sampled - 1, 200, sampled)
    waited = np.where(batches % 40 == 20, waits_ms * MS, (1 if waits_ms else 0) * MS)
    of.cpu = CpuColumns(batch=batches, charged={}, run_delay_ns=waited)
    found = build(of).outliers
    assert found.delayed_ratio == pytest.approx(ratio, abs=0.02)


def test_short_stalls_that_others_made_do_not_explain_long_ones_that_were_not_read() -> None:
    """Four of 30 ms wait for a CPU, and say nothing of five of 400 ms: of 2.12 s others made 9 * 30 ms at most."""
    of = journal(200)
    read = np.arange(19, 200, 20)
    for index in range(20, 200, 40):
        charge(of, 1, index, 400 * MS)
    for index in read[:4]:
        charge(of, 1, int(index), 30 * MS)
    waited = np.where(np.arange(10) < 4, 30 * MS, 0)
    of.cpu = CpuColumns(batch=read, charged={}, run_delay_ns=waited)
    found = build(of).outliers
    assert found.count == 9
    assert found.delayed_ratio == pytest.approx(270 / 2120, abs=0.01)


def test_without_stalls_the_seconds_of_the_host_say_nothing() -> None:
    of = journal(200)
    of.cpu = CpuColumns(batch=np.arange(19, 200, 20), charged={}, run_delay_ns=np.full(10, 1 * MS))
    of.samples += [Sample(source="host", subject="process", t_ns=t * MS, values={}) for t in (0, 700, 1400)]
    found = build(of).outliers
    assert (found.count, found.delayed_ratio) == (0, pytest.approx(0.1))


@pytest.mark.parametrize("waits_ratio", [0.0, 0.5, 1.0])
def test_stalls_that_were_not_read_are_held_against_the_seconds_in_which_they_lie(waits_ratio: float) -> None:
    """Ordinary steps wait 1 of 10 ms; a stall that sleeps does not become shorter for that."""
    of = journal(200)
    stalls = range(20, 200, 40)
    for index in stalls:
        charge(of, 1, index, 400 * MS)
    begins = [int(of.steps.start_ns[index]) for index in stalls]
    of.cpu = CpuColumns(batch=np.arange(19, 200, 20), charged={}, run_delay_ns=np.full(10, 1 * MS))

    def waited_ms(at_ms: int) -> float:
        return waits_ratio if any(begin <= at_ms * MS < begin + 410 * MS for begin in begins) else 0.1

    for until in range(0, 5000, 700):
        ratio = sum(map(waited_ms, range(until - 700, until))) / 700
        values = {"run_delay_ratio": ratio} if until else {}
        of.samples.append(Sample(source="host", subject="process", t_ns=until * MS, values=values))
    found = build(of).outliers
    assert found.delayed_ratio == pytest.approx(waits_ratio, abs=0.03)


def accumulating(n: int, every: int) -> Journal:
    """Micro-steps of 10 ms, of which each so many-th ends with an update of 8 ms."""
    of = journal(n)
    of.slots = [*of.slots, Slot(id=9, action="update", phase="optimizer")]
    of.steps.stepped[:] = (np.arange(n) % every == 0) & (np.arange(n) > 0)
    for index in range(every - 1, n, every):
        charge(of, 9, index, 8 * MS)
    return of


@pytest.mark.parametrize("every", [2, 3, 4, 16])
def test_steps_that_update_after_accumulating_gradients_are_no_stalls(every: int) -> None:
    found = build(accumulating(200, every)).outliers
    assert (found.count, found.excess_ms, dict(found.excess_by_phase_ms)) == (0, 0.0, {})


def test_stalls_between_and_in_updates_are_held_against_their_own_kind() -> None:
    of = accumulating(200, 4)
    charge(of, 1, 61, 30 * MS)  # a micro-step
    charge(of, 1, 103, 40 * MS)  # one with an update
    found = build(of).outliers
    assert found.batches == (103, 61)
    assert found.excess_ms == pytest.approx(70)
    assert found.excess_by_phase_ms == pytest.approx({"data_wait": 70})
    assert (found.limit_ms, found.worst_ms) == pytest.approx((15, 58))


def test_an_epochs_start_is_separated_from_validation_in_its_gap() -> None:
    of = journal(100, epochs=2)
    at = int(of.steps.start_ns[50])
    of.steps.start_ns[50:] += 300 * MS
    of.segments.append(
        Segment(kind="epoch_gap", start_ns=at, end_ns=at + 300 * MS, charged={0: 20 * MS, 5: 200 * MS, 7: 80 * MS})
    )
    first, second = build(of).epoch_starts
    assert (first.gap_s, second.epoch) == (0, 1)
    assert (second.gap_s, second.iterator_s, second.first_wait_s) == pytest.approx((0.1, 0.08, 0.004))


@pytest.mark.parametrize(("delay_ms", "blocked"), [(None, 0.3), (0, 0.3), (3, 0.0), (1, 0.2)])
def test_blocked_is_wall_without_cpu_and_without_waiting_for_a_cpu(
    delay_ms: int | None, blocked: float, of: Journal
) -> None:
    sampled = range(0, 100, 4)
    of.cpu = CpuColumns(
        batch=ints(sampled),
        charged={2: ints([2 * MS for _ in sampled])},
        run_delay_ns=None if delay_ms is None else ints([delay_ms * MS for _ in sampled]),
    )
    found = build(of).blocked
    assert found[0].phase == "forward"
    assert found[0].blocked.median_ratio == pytest.approx(blocked)
    assert found[0].samples >= 20


@pytest.mark.parametrize(("delay_ms", "own_ratio"), [(None, None), (0.4, None), (0.8, 0.22), (1.5, 0.15), (9.0, 0.1)])
def test_logging_is_also_known_without_waiting_for_a_cpu(
    delay_ms: float | None, own_ratio: float | None, of: Journal
) -> None:
    of.slots = [*of.slots, Slot(id=9, action="log", phase="logging")]
    of.steps.charged.update({1: of.steps.charged[1] - 3 * MS, 9: ints(np.full(100, 3 * MS))})
    sampled = range(0, 100, 4)
    cpu_ms = {2: 5, 3: 1, 9: 1}  # of logging two are idle, of which the wait for a CPU is a part
    of.cpu = CpuColumns(
        batch=ints(sampled),
        charged={slot: ints([ms * MS for _ in sampled]) for slot, ms in cpu_ms.items()},
        run_delay_ns=None if delay_ms is None else ints([delay_ms * MS for _ in sampled]),
    )
    m = build(of)
    assert m.shares["logging"].median_ratio == pytest.approx(0.3)
    own = m.logging_without_delay
    assert (own and own.median_ratio) == (own_ratio and pytest.approx(own_ratio))


def test_nothing_measured_is_none_and_not_zero() -> None:
    m = build(journal())
    assert m.blocked is None
    assert m.cpu.process_cpus is None
    assert m.cpu.run_delay_ratio is None
    assert m.devices == ()
    assert m.memory == Memory()


def test_devices_are_summed_up_over_the_steps_only(of: Journal) -> None:
    of.conditions |= {"gpu0.name": "Card", "gpu0.uuid": "GPU-1"}
    for t_ms, used, power in ((10, 0.0, 50.0), (300, 0.5, None), (500, 0.7, None), (5000, 0.0, 50.0)):
        of.samples.append(
            Sample(
                source="nvml",
                subject="gpu0",
                t_ns=t_ms * MS,
                values={"utilization_ratio": used, "power_w": power},
            )
        )
    (device,) = build(of).devices
    assert (device.name, device.uuid, device.samples) == ("Card", "GPU-1", 2)
    utilization = device.values["utilization_ratio"]
    assert utilization.mean == pytest.approx(0.6)
    assert device.values["power_w"] is None


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_runs_too_short_to_judge_are_reported_calmly(n: int) -> None:
    m = build(journal(n))
    assert m.steps.count == n
    assert m.period_ms is None
    assert not m.validity.ok
    assert sum(m.wall.parts.values()) == pytest.approx(m.wall.total_s)


def test_what_makes_a_measurement_invalid_is_told_before_other_caveats() -> None:
    of = journal(warmup=12)
    of.footer = None
    assert build(of).validity.ok
    of.steps.flags[15:] |= PROFILED
    validity = build(of).validity
    assert not validity.ok
    assert "steady steps" in validity.caveats[0]
    assert "was killed or is still running" in validity.caveats[1]


def test_a_run_that_never_ended_and_notices_are_caveats() -> None:
    of = journal(finished=False)
    of.notices.append(Notice(part="nvml", message="not available"))
    caveats = build(of).validity.caveats
    assert any("was killed or is still running" in c for c in caveats)
    assert "nvml: not available" in caveats


def test_long_runs_are_thinned_without_losing_an_outlier() -> None:
    of = journal(10_000)
    charge(of, 1, 7777, 100 * MS)
    series = build(of).series
    assert len(series["batch"]) <= analyze_metrics.SERIES_POINTS + analyze_metrics.LONGEST_STEPS
    assert {len(column) for column in series.values()} == {len(series["batch"])}
    assert 7777.0 in series["batch"]
    assert max(series["period_ms"]) == pytest.approx(110)


def test_the_largest_outliers_of_a_hundred_thousand_steps_are_all_in_the_curves_and_marked() -> None:
    n = 100_000
    forward = np.random.default_rng(3).normal(5.0, 0.2, n)
    far = np.r_[40_000:40_040, 99_000:99_030]  # many within one stretch: only one is its longest
    forward[far] += 50.0 + np.arange(len(far))
    metrics = build(journal(n, forward_ms=forward))
    series = metrics.series
    assert set(far) <= {int(batch) for batch in series["batch"]}
    assert len(series["batch"]) <= analyze_metrics.SERIES_POINTS + 2 * analyze_metrics.LONGEST_STEPS
    assert series["batch"] == sorted(set(series["batch"]))
    outliers = next(found for found in metrics.marks if found.kind == "outlier")
    assert outliers.count == len(far)
    assert [mark.from_batch for mark in outliers.marks] == list(far)


def test_times_scaled_by_any_factor_leave_every_share_alone() -> None:
    plain, scaled = journal(), journal()
    for column in (scaled.steps.period_ns, scaled.steps.start_ns, *scaled.steps.charged.values()):
        column *= 7
    for phase, share in build(plain).shares.items():
        other = build(scaled).shares[phase]
        assert other.median_ratio == pytest.approx(share.median_ratio)
        assert other.lower_ratio == pytest.approx(share.lower_ratio)


def test_the_lower_bound_is_below_the_median_and_repeats() -> None:
    values, ones = np.random.default_rng(0).normal(0.3, 0.1, 500), np.ones(500)
    bound = statistics.lower_bound_of_share(values, ones)
    assert np.quantile(values, 0.25) < bound < np.median(values)
    assert bound == statistics.lower_bound_of_share(values, ones)
    assert statistics.lower_bound_of_share(np.array([0.5]), np.array([1.0])) == 0.5


def test_a_share_is_what_its_time_and_the_period_divide_to() -> None:
    """Short steps that wait, long ones that wait for long, and long ones that do not: each ratio's median is 63 %."""
    kinds = np.random.default_rng(0).choice(3, 400, p=[0.35, 0.3, 0.35])
    wait, period = ints(np.array([1.45, 6.0, 0.1]) * MS)[kinds], ints(np.array([2.3, 9.0, 8.73]) * MS)[kinds]
    share = statistics.share(wait, period)
    assert share.median_ratio == pytest.approx(1.45 / 8.73)
    assert share.lower_ratio <= share.median_ratio
    assert share.median_ms == pytest.approx(1.45)


def test_a_share_read_in_longer_steps_is_told_of_the_ordinary_step() -> None:
    share = statistics.share(ints([4 * MS] * 20), ints([20 * MS] * 20), ordinary_ns=10 * MS)
    assert (share.median_ratio, share.median_ms) == (pytest.approx(0.2), pytest.approx(2.0))


def test_a_share_of_nothing_is_none() -> None:
    assert statistics.share(ints([]), ints([])) is None
    assert statistics.share(ints([1]), ints([0])) is None
    assert statistics.distribution(np.array([])) is None
    one = statistics.distribution(np.array([3.0]))
    assert (one.std, one.min, one.max) == (0.0, 3.0, 3.0)


def test_a_distribution_has_the_spread_and_the_quantiles_of_its_values() -> None:
    found = statistics.distribution(np.random.default_rng(0).permutation(np.arange(1.0, 102.0)))
    assert found is not None
    assert (found.min, found.p05, found.median, found.p95, found.p99, found.max) == (1, 6, 51, 96, 100, 101)
    assert found.mean == pytest.approx(51)
    assert found.std == pytest.approx((101 * 102 / 12) ** 0.5)


def test_a_run_too_short_for_samples_still_knows_the_cpus_of_its_process(of: Journal) -> None:
    of.samples.append(Sample(source="host", subject="training", t_ns=10**12, values={"process_cpus": 1.7}))
    m = build(of)
    assert m.cpu.process_cpus == 1.7
    assert m.host.process is None


@pytest.mark.parametrize("beside", ["validation", "last of epoch"])
def test_a_step_that_holds_more_than_a_checkpoint_is_no_outlier(beside: str) -> None:
    of = journal(200)
    for index in (49, 99, 149):
        charge(of, 6, index, 200 * MS)
        charge(of, 5 if beside == "validation" else 2, index, 500 * MS)
        of.steps.flags[index] |= LAST_OF_EPOCH if beside == "last of epoch" else 0
    found = build(of)
    assert found.outliers.count == 0


def test_what_a_callback_does_in_a_step_that_holds_a_checkpoint_is_seen() -> None:
    one = journal(200)
    for batch in range(50, 200, 25):
        charge(one, 3, batch, 500 * MS)  # its hook
        charge(one, 6, batch, 300 * MS)  # what it writes
    found = build(one)
    assert found.outliers.count == 6
    assert found.outliers.excess_by_phase_ms == {"callbacks": pytest.approx(3000.0)}
    assert found.outliers.worst_ms == pytest.approx(510.0)
    assert found.callback_shares[0].share.total_ratio > 0.5
    assert found.checkpoint.total_s == pytest.approx(1.8)


def test_what_a_callback_does_is_seen_where_every_step_holds_a_checkpoint() -> None:
    one = journal(100)
    for batch in range(100):
        charge(one, 3, batch, 50 * MS)
        charge(one, 6, batch, 30 * MS)
    found = build(one)
    assert found.steps.steady_count == 94
    assert found.steps.labels["checkpoint"] == 0
    assert found.callback_shares[0].share.total_ratio == pytest.approx(51 / 90)
    assert found.outliers.count == 0


def test_phases_of_an_ordinary_step_sum_to_it_where_their_medians_do_not(of: Journal) -> None:
    for step in range(20, 100):  # one phase or another is long, each in a third of the steps
        charge(of, 1 + step % 3, step, 6 * MS)
    m = build(of)
    assert m.period_ms is not None
    assert sum(row.median_ms or 0.0 for row in m.phases) < 0.8 * m.period_ms
    assert sum(row.ordinary_ms or 0.0 for row in m.phases) == pytest.approx(m.period_ms)
    assert all(row.ordinary_ms is None for row in build(journal(n=3)).phases)


def test_of_a_long_run_no_phase_is_held_whole() -> None:
    steps = statistics.MAX_WHOLE_STEPS + 20_000
    phases = {phase: ints(np.arange(steps) * (number + 1)) for number, phase in enumerate(PHASES)}
    steady = np.ones(steps, bool)
    tracemalloc.start()
    try:
        rows = budget.phase_rows(phases, steady, {}, {})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * phases[PHASES[0]].nbytes
    means = [float(column[steps // 4 : 3 * steps // 4].mean()) / 1e6 for column in phases.values()]
    assert [row.ordinary_ms for row in rows] == pytest.approx(means, rel=1e-3)


def test_two_steady_steps_are_both_ordinary() -> None:
    phases = {phase: ints([1 * MS, 3 * MS]) for phase in PHASES}
    rows = budget.phase_rows(phases, np.ones(2, bool), {}, {})
    assert [row.ordinary_ms for row in rows] == pytest.approx([2.0] * len(PHASES))


def test_a_run_without_a_step_has_no_cost_per_step() -> None:
    m = build(journal(n=3))
    none = msgspec.structs.replace(m, steps=msgspec.structs.replace(m.steps, count=0))
    with pytest.raises(MissingSignal, match="0 steps were run"):
        none.run_cost(1.0)
