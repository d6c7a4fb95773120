from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.during_steps import StepTime, host_samples
from lightning_gpuprof.analyze.host_use import growth, host_use
from lightning_gpuprof.analyze.journal_columns import CpuColumns, Journal
from lightning_gpuprof.analyze.signals import caveats
from lightning_gpuprof.model.host import HostUse, Level, LongPause, MachineUse
from lightning_gpuprof.model.journal import PROFILED, Sample, WindowRecord
from lightning_gpuprof.model.metrics import CpuFacts
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.rules.memory.host_leak import HostLeak

SETUP_NS = 100 * MS
"""The first step begins here; 100 steps of 10 ms follow."""


def add(of: Journal, subject: str, rows: Iterable[tuple[int, dict[str, float | None]]]) -> None:
    """Samples at times in ms after the first step's start."""
    for t_ms, values in rows:
        of.samples.append(Sample(source="host", subject=subject, t_ns=SETUP_NS + t_ms * MS, values=values))


def sampled(subject: str, *rows: dict[str, float | None], every_ms: int = 100, n: int = 100) -> Journal:
    of = journal(n)
    of.conditions["cpu.usable"] = 4.0
    add(of, subject, ((number * every_ms, row) for number, row in enumerate(rows)))
    return of


def test_nothing_sampled_is_nothing_known() -> None:
    assert host_use(journal()) == HostUse()
    m = build(journal())
    assert (m.host, m.cpu.process_cpus, m.cpu.worker_cpus) == (HostUse(), None, None)


def test_means_and_peaks_are_those_during_the_steps() -> None:
    of = sampled(
        "process", {"rss_bytes": 10.0}, {"cpu_cpus": 1.0, "rss_bytes": 30.0}, {"cpu_cpus": 2.0, "rss_bytes": 20.0}
    )
    add(of, "process", [(-50, {"rss_bytes": 999.0}), (3000, {"cpu_cpus": 9.0, "rss_bytes": 999.0})])
    of.samples.sort(key=lambda sample: sample.t_ns)
    found = host_use(of)
    assert found.samples == 2  # the sample at the first step's start is of the time before it
    assert found.process.cpu_cpus == Level(mean=pytest.approx(1.5), max=2.0)
    assert found.process.rss_bytes == Level(mean=25, max=30)
    m = build(of)
    assert (m.cpu.usable_cpus, m.cpu.process_cpus) == (4.0, pytest.approx(1.5))
    assert m.memory.process_rss_peak_bytes == 30


def test_a_mean_is_over_the_time_and_not_over_the_samples() -> None:
    """Of a long run samples become rarer."""
    of = journal(100)
    add(of, "process", [(0, {}), (100, {"cpu_cpus": 8.0}), (200, {"cpu_cpus": 8.0}), (800, {"cpu_cpus": 1.0})])
    found = host_use(of).process
    assert found.cpu_cpus == Level(mean=pytest.approx((8 + 8 + 6 * 1) / 8), max=8.0)


def test_samples_of_a_stretch_that_was_mostly_no_step_do_not_count() -> None:
    of = journal(100)
    of.steps.start_ns[50:] += 1000 * MS  # validation
    add(of, "process", ((t_ms, {"cpu_cpus": t_ms / 100}) for t_ms in range(0, 2000, 100)))
    counted = [round((sample.t_ns - SETUP_NS) / MS) for sample, _ in host_samples(of)["process"]]
    assert counted == [0, 100, 200, 300, 400, 500, 1600, 1700, 1800, 1900]


def test_moments_belong_to_the_step_that_they_lie_in() -> None:
    of = journal(100, epochs=4)
    of.steps.start_ns[50:] += 1000 * MS
    time = StepTime(of)
    assert time.at(SETUP_NS - 1) is None
    assert time.at(SETUP_NS + 255 * MS) == (25, 1)
    assert time.at(SETUP_NS + 700 * MS) is None
    assert time.until_ns(SETUP_NS + 700 * MS) == 500 * MS
    assert time.until_ns(SETUP_NS + 1510 * MS) == 510 * MS


def test_waiting_is_the_rest_of_a_single_process_s_time() -> None:
    of = sampled("worker3", *[{"cpu_cpus": 0.25, "run_delay_ratio": 0.125, "io_wait_ratio": 0.5}] * 3)
    (row,) = host_use(of).worker_rows
    assert (row.number, row.samples) == (3, 3)
    assert row.use.waiting_ratio == 0.125
    assert host_use(sampled("worker0", {"cpu_cpus": 0.25})).worker_rows[0].use.waiting_ratio is None


def test_workers_are_those_of_the_loader_and_absent_if_there_were_none() -> None:
    of = sampled("workers", {"count": 2.0, "cpu_cpus": 1.0}, {"count": 2.0, "cpu_cpus": 2.0})
    add(of, "children", [(0, {"count": 0.0, "cpu_cpus": 0.0})])
    assert build(of).cpu.worker_cpus is None  # num_workers is 0: they belong to another loader
    of.conditions["loader.num_workers"] = 2
    m = build(of)
    assert m.cpu.worker_cpus == pytest.approx(1.5)
    assert m.host.workers.count == 2
    assert m.host.children is None


def test_threads_are_listed_by_their_work() -> None:
    of = sampled("thread.main", {"threads_count": 1.0, "cpu_cpus": 0.5, "run_delay_ratio": 0.1})
    add(of, "thread.native", [(0, {"threads_count": 8.0, "cpu_cpus": 3.0})])
    assert [(row.kind, row.threads_count, row.cpu_cpus) for row in host_use(of).threads] == [
        ("native", 8, 3.0),
        ("main", 1, 0.5),
    ]


def test_the_machine_with_its_least_memory_and_samples_of_swapping() -> None:
    of = sampled(
        "host",
        {"memory_available_bytes": 50.0},
        {"memory_available_bytes": 20.0, "swap_in_bytes_per_s": 0.0, "swap_out_bytes_per_s": 4096.0},
        {"memory_available_bytes": 30.0, "swap_in_bytes_per_s": 0.0, "swap_out_bytes_per_s": 0.0},
    )
    of.conditions |= {"host.memory_total_bytes": 100.0, "host.shm_size_bytes": 7.0}
    machine = host_use(of).machine
    assert (machine.memory_available_min_bytes, machine.swapping_samples, machine.memory_total_bytes) == (20, 1, 100)
    assert machine.shm_size_bytes == 7
    assert machine.cpu_busy_ratio is None


def test_shares_of_the_machine_s_time_are_means() -> None:
    shares = {"cpu_user_ratio": 0.5, "cpu_system_ratio": 0.25, "cpu_io_wait_ratio": 0.125}
    machine = host_use(sampled("host", {}, shares, {name: share / 2 for name, share in shares.items()})).machine
    assert machine.cpu_user_ratio == pytest.approx(0.375)
    assert machine.cpu_system_ratio == pytest.approx(0.1875)
    assert machine.cpu_io_wait_ratio == pytest.approx(0.09375)


def test_pressure_of_machine_and_group_by_resource() -> None:
    of = sampled("host", {}, {"pressure_io_some_ratio": 0.5, "pressure_io_full_ratio": 0.25})
    add(of, "cgroup", [(0, {}), (100, {"pressure_cpu_some_ratio": 0.125})])
    assert [(row.scope, row.resource, row.some_ratio, row.full_ratio) for row in host_use(of).pressure] == [
        ("machine", "io", Level(mean=0.5, max=0.5), Level(mean=0.25, max=0.25)),
        ("cgroup", "cpu", Level(mean=0.125, max=0.125), None),
    ]


def test_throttling_is_of_the_quota_s_periods_during_the_steps() -> None:
    row: dict[str, float | None] = {"cpu_periods_count": 10.0, "cpu_throttled_count": 4.0, "cpu_throttled_s": 0.05}
    of = sampled("cgroup", {}, row, row, {**row, "cpu_throttled_count": 1.0, "oom_kill_count": 1.0})
    of.conditions |= {"host.cpu_quota_cpus": 2.5, "host.memory_limit_bytes": 4000}
    group = host_use(of).cgroup
    assert (group.periods_count, group.throttled_count, group.throttled_ratio) == (30, 9, 0.3)
    assert group.throttled_cpus == pytest.approx(0.5)
    assert (group.quota_cpus, group.memory_limit_bytes, group.oom_kill_count) == (2.5, 4000, 1)
    assert group.memory_high_count is None


def test_a_group_without_a_quota_has_no_share_of_throttled_periods() -> None:
    row: dict[str, float | None] = {"cpu_periods_count": 0.0, "cpu_throttled_count": 0.0, "cpu_throttled_s": 0.0}
    group = host_use(sampled("cgroup", {}, row)).cgroup
    assert (group.quota_cpus, group.throttled_ratio) == (None, None)


def test_pauses_of_the_collector_are_a_share_of_the_steps_and_have_their_batch() -> None:
    rows: list[dict[str, float | None]] = [
        {"pause_ratio": 0.25, "longest_s": 0.02, "gen2_count": 2.0, "gen2_pause_s": 0.025, "gen2_longest_s": 0.02},
        {"pause_ratio": 0.0, "longest_s": 0.0},
        {"pause_ratio": 0.05, "longest_s": 0.001, "gen0_count": 9.0, "gen0_pause_s": 0.005, "gen0_longest_s": 0.001},
    ]
    of = sampled("gc")
    add(of, "gc", ((100 * (number + 1), row) for number, row in enumerate([rows[1], *rows])))
    add(of, "gc_pause", [(-20, {"pause_s": 0.5, "generation": 2.0}), (151, {"pause_s": 0.02, "generation": 2.0})])
    gc = host_use(of).gc
    of_generation = [(row.generation, row.count, row.longest_s) for row in gc.generations]
    assert of_generation == [(0, 9, 0.001), (2, 2, 0.02)]
    assert gc.longest == (LongPause(batch=15, generation=2, pause_s=0.02),)
    assert (gc.longest_s, gc.long_count) == (0.02, 1)
    assert 0 < gc.pause_ratio < 0.25
    assert gc.pause_ms_per_step == pytest.approx(10 * gc.pause_ratio)


def test_what_was_read_is_told_for_the_first_epoch_and_the_later_ones() -> None:
    of = journal(100, epochs=2)
    disk = [0, 0, 100, 100, 100, 100, 10, 10, 10, 10]
    add(of, "process", ((100 * n, {"read_bytes_per_s": rate * 1.0} if n else {}) for n, rate in enumerate(disk)))
    add(of, "workers", ((100 * n, {"read_call_bytes_per_s": 50.0}) for n in range(10)))
    found = host_use(of)
    assert found.first_epoch.disk_bytes == pytest.approx(30)
    assert found.first_epoch.call_bytes == pytest.approx(20)
    assert (found.later_epochs.epochs, found.later_epochs.disk_bytes) == (1, pytest.approx(14))


def test_memory_that_grows_is_told_with_its_slope_from_warm_up_on() -> None:
    of = journal(300)
    noise = np.random.default_rng(0).normal(0, 50, 60)
    rows = ((50 * n, {"rss_bytes": (1e6 if n < 10 else 5000.0 + 100 * n) + noise[n]}) for n in range(60))
    add(of, "process", rows)
    (row,) = host_use(of, SETUP_NS + 500 * MS).growth
    assert (row.of, row.samples) == ("process", 50)
    assert row.slope_bytes_per_s == pytest.approx(2000, rel=0.05)  # 100 bytes each 50 ms
    assert row.slope_bytes_per_step == pytest.approx(20, rel=0.05)
    assert row.p_value < 1e-6
    assert 6000 < row.first_bytes < row.last_bytes < 12000


def test_memory_that_stays_has_no_trend() -> None:
    t_ns = [n * MS for n in range(100)]
    still = growth("process", t_ns, [5.0] * 100, None)
    assert (still.slope_bytes_per_s, still.slope_bytes_per_step, still.p_value) == (0, None, 1)
    noisy = growth("process", t_ns, np.random.default_rng(1).normal(100, 5, 100).tolist(), None)
    assert noisy.p_value > 0.05


def test_growth_that_ended_in_the_first_half_is_not_in_the_later_one_where_most_samples_are_early() -> None:
    t_s = np.concatenate([np.arange(0, 20, 0.2), np.arange(20, 60, 1.0)])
    found = growth("process", (t_s * 1e9).astype(int).tolist(), (500e6 + 2e6 * np.minimum(t_s, 20)).tolist(), None)
    assert found is not None
    assert found.slope_bytes_per_s > 0
    assert found.late_slope_bytes_per_s == 0


@pytest.mark.parametrize("n", [0, 19])
def test_few_samples_say_nothing_about_growth(n: int) -> None:
    assert growth("process", list(range(n)), [1.0] * n, None) is None


def test_a_long_run_is_thinned_for_the_slope() -> None:
    n = 20_000
    found = growth("process", [k * MS for k in range(n)], [float(k) for k in range(n)], None)
    assert found.slope_bytes_per_s == pytest.approx(1000)
    assert found.samples == n


def test_a_journal_of_one_step_or_none_is_calm() -> None:
    for n in (0, 1):
        of = sampled("process", {"cpu_cpus": 1.0}, n=n)
        add(of, "gc", [(5, {"pause_ratio": 0.1})])
        build(of)
    charge(of, 1, 0, 7)
    assert host_use(of).samples == 1


def test_memory_that_stops_growing_has_a_late_slope_of_its_own() -> None:
    t_ns = [int(i * 1e9) for i in range(100)]
    filling = growth("process_private", t_ns, [min(i, 50) * 1e6 for i in range(100)], None)
    leaking = growth("process_private", t_ns, [i * 1e6 for i in range(100)], None)
    assert filling.late_slope_bytes_per_s == pytest.approx(0.0)
    assert leaking.late_slope_bytes_per_s == pytest.approx(1e6)


def memory(grown_mb: float, *, jumps: int = 0, n: int = 130, seed: int = 0) -> list[float]:
    """500 MB that grow evenly, and by 200 MB at each jump; gradients of 100 MB are there a third of the time."""
    rng = np.random.default_rng(seed)
    at = np.arange(n) / n
    level = 500 + grown_mb * at + 100 * rng.choice([0, 0, 1], n) + 5 * rng.normal(size=n)
    return list(1e6 * (level + 200 * sum((at > (k + 1) / (jumps + 1)).astype(float) for k in range(jumps))))


@pytest.mark.parametrize("n", [90, 130, 400])
@pytest.mark.parametrize(("grown_mb", "jumps", "fires"), [(0, 1, False), (0, 2, False), (0, 3, False), (400, 0, True)])
def test_memory_that_grows_in_a_few_jumps_is_no_leak(n: int, grown_mb: float, jumps: int, fires: bool) -> None:
    found = [
        growth("process_private", [k * 10**9 for k in range(n)], memory(grown_mb, jumps=jumps, n=n, seed=seed), 0.2)
        for seed in range(5)
    ]
    assert [row is not None and HostLeak()._grows(row) for row in found] == [fires] * 5


def test_memory_of_layers_that_are_unfrozen_one_after_the_other_is_no_leak() -> None:
    """Two jumps, with dips while gradients are freed, as recorded from such a run; wherever the readings begin."""
    mb = [624, 625, 628, 628, 629, 629, 629, 821, 821, 758, 822, 846, 822, 822, 846, 822, 822, 822, 822, 822, 822, 822]
    mb += [822, 885, 822, 1014, 1043, 911, 1022, 1015, 1019, 1015, 1026, 1015, 1015, 1024, 1052, 1009, 942, 1015, 1015]
    mb += [1081, 1015, 1079, 1082, 1002, 1015, 1015, 1035, 951, 1015, 1015, 1064]
    for begin in range(8):
        later = mb[begin:]
        row = growth("process_private", [k * 10**9 for k in range(len(later))], [1e6 * x for x in later], 0.36)
        assert not HostLeak()._grows(row), begin


def test_memory_of_unfrozen_layers_is_no_leak_where_gradients_come_and_go_as_it_is_read() -> None:
    """Recorded on a busy machine, first several times a second, later once: dips blur both jumps."""
    mb = [500, 506, 506, 506, 506, 506, 506, 506, 506, 506, 506, 506, 506, 508, 508, 508, 508, 508, 508, 508, 508]
    mb += [508, 508, 508, 700, 700, 717, 700, 700, 700, 764, 701, 700, 701, 701, 701, 701, 701, 701, 701, 701, 828]
    mb += [814, 813, 701, 701, 701, 675, 639, 705, 680, 771, 701, 701, 637, 640, 701, 820, 787, 701, 701, 751, 701]
    mb += [824, 637, 701, 701, 790, 932, 936, 914, 1010, 808, 894, 904, 857, 1013, 974, 787, 958, 958, 952, 854, 979]
    mb += [889, 894, 933, 894, 894, 894, 894, 777, 894, 766, 894, 952, 894, 894, 830, 984, 894, 894, 943, 895]
    at_s = [0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 4.4, 4.8, 5.2, 5.6, 6.0, 6.5, 7.0, 7.4, 7.9, 8.3]
    at_s += [8.8, 9.2, 9.7, 10.2, 10.7, 11.2, 11.8, 12.4, 13.0, 13.4, 14.0, 14.4, 14.8, 15.5, 15.9, 16.3, 16.7, 17.1]
    at_s += [17.5, 18.0, 18.4, 18.9, 19.4, 19.9, 20.3, 20.9, 21.4, 21.9, 22.5, 23.0, 23.6, 24.2, 24.8, 25.4, 26.1]
    at_s += [26.8, 27.4, 28.1, 28.8, 29.5, 30.2, 31.0, 31.8, 32.6, 33.4, 34.2, 35.1, 35.9, 36.8, 37.8, 38.7, 39.7]
    at_s += [40.7, 41.7, 42.7, 43.7, 44.7, 45.7, 46.7, 47.7, 48.7, 49.7, 50.7, 51.7, 52.7, 53.7, 54.7, 55.7, 56.7]
    at_s += [57.7, 58.7, 59.7, 60.7, 61.7, 62.7, 63.7, 64.7, 65.7, 66.7, 67.7, 68.7, 69.7, 70.7]
    row = growth("process_private", [round(1e9 * t_s) for t_s in at_s], [1e6 * x for x in mb], 0.46)
    assert row.p_value < 0.001, "it grows"
    assert not HostLeak()._grows(row)


def leaking(samples: Iterable[tuple[int, float]], *, seen: str = "process_memory") -> Journal:
    """100 steps of 23 ms with these looks, in ms and MB, at the memory, of which 100 MB are shared."""
    of = journal(100)
    for step in range(100):
        charge(of, 2, step, 13 * MS)
    add(of, seen, ((t_ms, {"rss_bytes": (mb + 100) * 1e6, "shared_bytes": 1e8}) for t_ms, mb in samples))
    return of


def test_a_leak_of_two_seconds_has_a_trend() -> None:
    of = leaking((t_ms, 500 + 3 * t_ms / 23) for t_ms in range(0, 2300, 50))
    add(of, "process", [(1025, {"rss_bytes": 732e6, "shared_bytes": 1e8})])
    of.samples.sort(key=lambda sample: sample.t_ns)
    (row,) = (row for row in host_use(of).growth if row.of == "process_private")
    assert row.samples == 47
    assert row.slope_bytes_per_step == pytest.approx(3e6, rel=0.02)
    assert HostLeak()._grows(row)


def test_what_a_trace_window_takes_in_this_process_is_no_growth() -> None:
    """200 MB from its warm-up on, 400 more until the trace is written, and 150 stay."""

    def at(t_ms: int) -> float:
        return 500 + 200 * (t_ms >= 920) + 400 * (1035 <= t_ms < 1400) - 50 * (t_ms >= 1400)

    of = leaking((t_ms, at(t_ms)) for t_ms in range(0, 2300, 50))
    of.steps.flags[40:45] |= PROFILED
    window = WindowRecord(start_step=42, stop_step=44, start_ns=SETUP_NS + 966 * MS, stop_ns=SETUP_NS + 1035 * MS)
    of.windows.append(window)
    window.written_ns = SETUP_NS + 1410 * MS
    (row,) = (row for row in host_use(of).growth if row.of == "process_private")
    assert (row.first_bytes, row.last_bytes, row.slope_bytes_per_s) == (500e6, 500e6, 0.0)
    assert row.samples < 40


def test_a_long_run_is_not_told_by_its_first_seconds() -> None:
    of = journal(100)
    for step in range(100):
        charge(of, 2, step, 990 * MS)
    young = [(t_ms, {"rss_bytes": 5e8 + 1e5 * t_ms, "shared_bytes": 0.0}) for t_ms in range(0, 2000, 50)]
    add(of, "process_memory", young)
    add(of, "process", ((t_ms, {"rss_bytes": 7e8, "shared_bytes": 0.0}) for t_ms in range(2000, 100_000, 1000)))
    row = next(row for row in host_use(of).growth if row.of == "process_private")
    assert row.samples < 110
    assert row.slope_bytes_per_s == 0.0


@pytest.mark.parametrize(
    ("others", "delay_ms", "ranks", "reported"), [(1.6, 3, 1, 1), (0.1, 3, 1, 0), (1.6, 0, 1, 0), (1.6, 3, 2, 0)]
)
def test_other_programs_that_take_the_cpus_are_a_caveat(
    others: float, delay_ms: int, ranks: int, reported: int
) -> None:
    of = sampled("host", {"cpu_others_cpus": others})
    of.conditions["cpu.usable"] = 2.0
    of.header = msgspec.structs.replace(of.header, world_size=ranks)
    batches = np.arange(20, 60)
    of.cpu = CpuColumns(batch=batches, charged={}, run_delay_ns=np.full(40, delay_ms * MS))
    said = [caveat for caveat in build(of).validity.caveats if "other programs" in caveat]
    assert len(said) == reported
    if ranks > 1:
        apart = sampled("host", {"cpu_others_cpus": others, "cpu_ranks_cpus": 0.5})
        apart.header, apart.cpu, apart.conditions = of.header, of.cpu, of.conditions
        assert any("other programs used 1.6 CPUs of this machine" in one for one in build(apart).validity.caveats)
    if reported:
        assert said[0] == (
            "other programs used 1.6 of 2 CPUs; the main thread waited for a CPU in 30 % of the step, "
            "so steps can be much longer than on a quiet machine"
        )


def test_other_programs_that_take_the_cpus_in_bursts_are_a_caveat() -> None:
    """One step in five waits; the median one does not."""
    of = sampled("host", {"cpu_others_cpus": 1.1})
    of.conditions["cpu.usable"] = 2.0
    waits_ns = np.where(np.arange(40) % 5 == 0, 8 * MS, 0)
    of.cpu = CpuColumns(batch=np.arange(20, 60), charged={}, run_delay_ns=waits_ns)
    assert any("waited for a CPU in 16 % of the time" in one for one in build(of).validity.caveats)


def test_how_long_the_main_thread_waited_is_said_without_a_bound_on_the_step_time() -> None:
    waits = Share(median_ratio=0.88, lower_ratio=0.8, median_ms=2184.0, total_ratio=0.88)
    cpu = CpuFacts(usable_cpus=2.0, process_cpus=0.1, worker_cpus=None, run_delay=waits, run_delay_ratio=0.88)
    assert caveats(cpu, HostUse(), 1)[0].startswith(
        "the main thread waited for a CPU in 88 % of the step, so steps can be much longer than on a quiet machine;"
    )


def test_a_run_too_short_for_a_sample_of_the_host_still_says_that_it_waited_for_a_cpu() -> None:
    waits = Share(median_ratio=0.26, lower_ratio=0.2, median_ms=0.5, total_ratio=0.4)
    cpu = CpuFacts(usable_cpus=2.0, process_cpus=0.7, worker_cpus=None, run_delay=waits, run_delay_ratio=0.26)
    assert caveats(cpu, HostUse(), 1) == [
        "the main thread waited for a CPU in 26 % of the step, so steps can be much longer than on a quiet "
        "machine; the run was too short to measure who used the CPUs"
    ]
    assert caveats(cpu, HostUse(samples=5), 1) == []  # the machine does not say
    assert caveats(msgspec.structs.replace(cpu, usable_cpus=0.5), HostUse(), 1) == []  # it is the run's own want


@pytest.mark.parametrize(
    ("own", "others", "reported"),
    [(40.0, 17.0, False), (40.0, 18.0, True), (60.0, 3.5, True), (63.4, 0.5, False)],
)
def test_cpus_that_are_left_or_that_the_run_has_itself_are_no_caveat(own: float, others: float, reported: bool) -> None:
    """64 CPUs, half of the step without one."""
    machine = MachineUse(cpu_others_cpus=Level(mean=others, max=others))
    waits = Share(median_ratio=0.5, lower_ratio=0.4, median_ms=5.0, total_ratio=0.5)
    cpu = CpuFacts(usable_cpus=64.0, process_cpus=own, worker_cpus=None, run_delay=waits, run_delay_ratio=0.5)
    assert bool(caveats(cpu, HostUse(machine=machine), 1)) is reported
