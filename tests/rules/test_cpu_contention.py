from collections.abc import Sequence

import msgspec
import pytest
from feeding_builder import starved
from findings_builder import fired
from metrics_builder import build, replace, share

from lightning_gpuprof.model.host import GroupUse, HostUse, Level, MachineUse, ProcessUse, WorkerUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.worker_thread_oversub import WorkerThreadOversub
from lightning_gpuprof.rules.steps.cpu_contention import CpuContention
from lightning_gpuprof.rules.steps.cpu_oversubscription import CpuOversubscription

RULE = CpuContention()
OWN = CpuOversubscription()


def delayed(
    ms: float,
    *,
    others: float | None = 0.0,
    ranks: float | None = None,
    threads: int = 1,
    workers: int = 2,
    used: Sequence[float] = (1.0, 0.3),
    samples: int = 40,
    throttled: float | None = None,
    device: str = "cpu",
    idle_ratio: float | None = None,
) -> Metrics:
    """A run on 4 CPUs whose main thread waits so long for one in each step of 50 ms."""
    level = None if others is None else Level(mean=others, max=others)
    host = HostUse(
        machine=MachineUse(
            cpu_others_cpus=level, cpu_ranks_cpus=None if ranks is None else Level(mean=ranks, max=ranks)
        ),
        cgroup=GroupUse(throttled_ratio=throttled),
    )
    metrics = build(
        host=host,
        run={"torch.num_threads": threads, "device.type": device},
        num_workers=workers,
        process_cpus=used[0],
        worker_cpus=used[1],
        idle_ratio=idle_ratio,
    )
    cpu = replace(metrics.cpu, run_delay_ratio=ms / 50, run_delay=share(ms, 50.0), run_delay_samples=samples)
    return replace(metrics, cpu=cpu)


def with_waiting_workers(metrics: Metrics, delay: float) -> Metrics:
    use = ProcessUse(run_delay_ratio=Level(mean=delay, max=delay))
    rows = tuple(WorkerUse(number=n, samples=9, use=use) for n in range(2))
    return replace(metrics, host=msgspec.structs.replace(metrics.host, worker_rows=rows))


def test_other_programs_change_no_finding() -> None:
    quiet, loaded = delayed(0.1), delayed(20.0, others=3.2)
    assert [f.rule for f in diagnose(loaded).findings] == [f.rule for f in diagnose(quiet).findings] == []


def test_its_threads_are_not_blamed_for_what_other_programs_take() -> None:
    loaded = delayed(12.0, others=1.5, threads=4, workers=3, used=(1.4, 0.9))
    assert OWN.check(loaded) is None
    assert diagnose(loaded, [RULE, OWN]).findings == ()


@pytest.mark.parametrize(
    ("ms", "others", "used", "delay", "fires"),
    [
        # 2.0 and 1.0 CPUs are used, the main thread waits for 0.2 and each of two workers for so much.
        pytest.param(10.0, 0.5, (2.0, 1.0), 0.49, False, id="hardly more than the CPUs"),
        pytest.param(10.0, 0.5, (2.0, 1.0), 0.51, True, id="a twentieth above the CPUs is too much"),
        pytest.param(10.0, 0.0, (1.0, 2.0), 0.6, True, id="what workers wait for is wanted, too"),
        # It used 1.5 CPUs, and its threads waited for another 3.2 of four.
        pytest.param(40.0, 1.4, (0.5, 1.0), 1.2, True, id="others have less of the CPUs"),
        pytest.param(40.0, 1.6, (0.5, 1.0), 1.2, False, id="others have more: it does not hold itself up"),
    ],
)
def test_what_is_wanted_beyond_the_cpus_decides(
    ms: float, others: float, used: Sequence[float], delay: float, fires: bool
) -> None:
    assert (RULE.check(with_waiting_workers(delayed(ms, others=others, used=used), delay)) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "fires"),
    [
        pytest.param(delayed(10.0, others=0.1, threads=8, used=(3.79, 0.0)), False, id="a CPU is free"),
        pytest.param(delayed(10.0, others=0.1, threads=8, used=(3.81, 0.0)), True, id="threads wait for each other"),
        pytest.param(delayed(2.5, used=(1.0, 3.2)), False, id="less than a twentieth of the step"),
        pytest.param(delayed(2.6, used=(1.0, 3.2)), True, id="more than a twentieth of the step"),
        pytest.param(delayed(10.0, used=(1.0, 2.0)), False, id="nobody else waits"),
    ],
)
def test_the_use_of_the_cpus_and_the_share_of_the_step_decide(metrics: Metrics, fires: bool) -> None:
    assert (RULE.check(metrics) is not None) is fires


def test_a_quota_that_is_used_up_is_named() -> None:
    assert fired(RULE, delayed(10.0, others=3.0, throttled=0.4)).subject == "CPU quota"


def test_no_number_is_advised_that_is_set_already() -> None:
    advice = fired(RULE, delayed(10.0, workers=0, used=(4.5, 0.0)))
    assert "set_num_threads" not in advice.advice
    assert advice.change is None


def test_fewer_workers_are_not_advised_where_they_would_not_keep_pace() -> None:
    needed = replace(delayed(10.0, workers=4, used=(1.0, 3.0)), input=starved(enough=5).input)
    finding = fired(RULE, needed)
    assert "No setting helps" in finding.advice
    assert finding.change is None
    assert (finding.severity, finding.title) == ("info", "The run has too few CPUs")
    fewer = fired(RULE, replace(needed, input=starved(enough=4).input))
    assert fewer.change.added == ("DataLoader(..., num_workers=3)",)
    fitting = fired(RULE, replace(delayed(10.0, workers=3, used=(1.0, 3.0)), input=starved(enough=3).input))
    assert "find the other threads that compute" in fitting.advice
    assert fitting.severity != "info"


@pytest.mark.parametrize("rule", [RULE, OWN])
def test_what_no_setting_helps_is_information_however_long_the_wait(rule: CpuContention | CpuOversubscription) -> None:
    metrics = replace(delayed(40.0, workers=7, used=(1.0, 3.0)), input=starved(enough=8).input)
    (finding,) = diagnose(metrics, [rule]).findings
    assert finding.gain is not None
    assert finding.gain.speedup_max > 2
    assert (finding.severity, finding.change) == ("info", None)
    for enough, kept in ((3, 3), (5, 4), (7, 6)):
        fewer = fired(rule, replace(metrics, input=starved(enough=enough).input))
        assert fewer.severity == "critical"
        assert fewer.change.added == (f"DataLoader(..., num_workers={kept})",)
        assert ("Fit the run into 4 CPUs" in fewer.advice) is (kept <= 3)
        assert fewer.leaves == ("" if kept <= 3 else f"{kept} workers on 4 CPUs, as many as the step needs")


@pytest.mark.parametrize("main_thread_cpus", [0.1, 0.38])
def test_where_workers_compute_on_several_threads_that_is_what_to_set(main_thread_cpus: float) -> None:
    """Beside other programs: a worker gets 0.4 CPUs, of which its main thread uses a quarter, or nearly all."""
    metrics = starved(
        each_worker={"cpu": 0.4, "delay": 0.5, "threads": 6.0, "main_thread_cpus": main_thread_cpus},
        usable_cpus=2.0,
        process_cpus=0.5,
        worker_cpus=0.8,
        others_cpus=0.7,
        run={"torch.num_threads": 1, "device.type": "cpu"},
    )
    cpu = replace(metrics.cpu, run_delay_ratio=0.2, run_delay=share(8.0, 40.0), run_delay_samples=40)
    found = {f.rule: f for f in diagnose(replace(metrics, cpu=cpu), [RULE, WorkerThreadOversub()]).findings}
    pools = main_thread_cpus < 0.2
    assert list(found) == (["worker-thread-oversub", "cpu-contention"] if pools else ["cpu-contention"])
    assert ("on one thread instead of 4" in found["cpu-contention"].advice) is pools
    assert ("num_workers=1" in found["cpu-contention"].advice) is not pools


@pytest.mark.parametrize("others", [0.1, 0.7])
def test_other_programs_are_named_where_they_take_much_of_what_the_run_wants(others: float) -> None:
    found = fired(RULE, delayed(20.0, others=others, threads=4, workers=3, used=(1.4, 2.7)))
    said = "needs all 4 CPUs for 4 torch threads and 3 workers" + (
        ", and other programs take 0.7 CPUs." * (others > 0.5)
    )
    assert said in found.summary


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="12 of the 20 steps"):
        RULE.check(delayed(20.0, samples=12))


def test_more_threads_and_workers_than_cpus_explain_the_waiting() -> None:
    metrics = delayed(20.0, threads=8, workers=2, used=(3.4, 0.5))
    found = diagnose(metrics, [RULE, OWN]).findings
    assert [(f.rule, f.gain is not None) for f in found] == [("cpu-oversubscription", True), ("cpu-contention", False)]
    assert found[0].subject == "8 torch threads, 2 workers"
    assert found[0].change.added == ("torch.set_num_threads(2)",)


@pytest.mark.parametrize(("worker_cpus", "counted"), [(0.2, False), (1.9, True)])
def test_workers_that_wait_for_storage_take_no_cpu(worker_cpus: float, counted: bool) -> None:
    host = HostUse(machine=MachineUse(cpu_others_cpus=Level(mean=0.0, max=0.0)))
    values: dict[str, object] = {"usable_cpus": 2.0, "process_cpus": 1.9, "worker_cpus": worker_cpus, "host": host}
    metrics = starved(items_ms=159.0, workers=3, run={"torch.num_threads": 2, "device.type": "cpu"}, **values)
    cpu = replace(metrics.cpu, run_delay_ratio=0.2, run_delay=share(8.0, 40.0), run_delay_samples=40)
    metrics = replace(metrics, cpu=cpu)
    assert (OWN.check(metrics) is not None) is counted
    assert ("num_workers=1 instead of 3" in fired(RULE, metrics).advice) is counted


@pytest.mark.parametrize(("threads", "fires"), [(4, False), (5, True)])
def test_more_than_one_and_a_half_per_cpu_decides(threads: int, fires: bool) -> None:
    assert (OWN.check(delayed(20.0, threads=threads, workers=2, used=(3.6, 0.3))) is not None) is fires


def test_other_ranks_of_the_job_are_no_other_processes() -> None:
    finding = fired(RULE, delayed(20.0, others=0.1, ranks=3.0, used=(1.0, 3.0)))
    used = {row.name: row.value for row in finding.evidence if row.name.startswith("used by other")}
    assert used == {"used by other ranks": 3.0, "used by other processes": 0.1}


@pytest.mark.parametrize("rule", [RULE, OWN])
def test_on_a_device_only_what_it_idles_counts(rule: CpuContention | CpuOversubscription) -> None:
    with pytest.raises(MissingSignal, match="no trace window"):
        rule.check(delayed(20.0, threads=8, used=(3.4, 0.5), device="cuda"))
    assert rule.check(delayed(20.0, threads=8, used=(3.4, 0.5), device="cuda", idle_ratio=0.02)) is None
    finding = fired(rule, delayed(20.0, threads=8, used=(3.4, 0.5), device="cuda", idle_ratio=0.12))
    assert finding.severity == "warning"
    assert finding.gain.saved_ms_per_step == pytest.approx(6)


def test_workers_that_take_the_model_its_cpu_cost_what_their_batches_cost() -> None:
    metrics = starved(
        transforms={"Blur": 0.95}, enough=6, burst=0.4, usable_cpus=2.0, process_cpus=0.6, worker_cpus=1.4
    )
    rows = [replace(row, cpu_ms=row.median_ms and row.median_ms * 0.75) for row in metrics.phases]
    step_ms = metrics.step_ms
    cpu = replace(metrics.cpu, run_delay_ratio=0.3, run_delay=share(0.3 * step_ms, step_ms), run_delay_samples=40)
    mean_s = 10.0 / 0.6 / 1e3
    wall = replace(metrics.wall, parts={**metrics.wall.parts, "train": mean_s * metrics.steps.count})
    assert metrics.steps.period_ms is not None
    alone = msgspec.structs.replace(metrics.steps.period_ms, p05=7.0)  # a step whose batch is there, and a CPU
    steps = msgspec.structs.replace(metrics.steps, period_ms=alone)
    both = diagnose(replace(metrics, phases=rows, cpu=cpu, wall=wall, steps=steps)).findings
    found = {finding.rule: finding for finding in both}
    model_ms = 0.25 * sum(row.median_ms or 0.0 for row in rows if row.phase in COMPUTE_PHASES)
    saved = found["transform-hotspot"].gain
    # the wait of the mean step, 40 % of 10 ms / 0.6, and what the model's own phases wait for a CPU
    assert saved is not None
    assert saved.saved_ms_per_step == pytest.approx(0.4 * 10.0 / 0.6 + model_ms, rel=0.02)
    assert found["cpu-contention"].gain is None
    assert found["cpu-contention"].summary.endswith("Same time as transform-hotspot; fixing that fixes this.")
