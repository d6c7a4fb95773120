import pytest
from empty_structs import empty
from feeding_builder import starved, worker_row
from findings_builder import fired
from metrics_builder import build, replace

from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline, enough_workers
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.input.loading import making_evidence
from lightning_gpuprof.rules.input.too_few_workers import TooFewWorkers

RULE = TooFewWorkers()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_takes_as_long_as_its_measured_parts_even_if_the_median_step_waits_for_less(num_workers: int) -> None:
    metrics = build(times_ms={"data_wait": 40.0, "forward": 10.0}, num_workers=num_workers, fetch_waited_ratio=0.9)
    made = InputLoader(
        loader=0,
        workers=num_workers,
        make_ms=400.0,
        items_ms=390.0,
        collate_ms=10.0,
        deliver_ms=400.0 / max(1, num_workers),
        idle_ratio=None,
    )
    found = empty(InputPipeline, loaders=(made,), slowest=0)
    whole, *parts = (one.value for one in making_evidence(measured(replace(metrics, input=found).loading)))
    assert whole == sum(parts) == 400.0


def test_bursts_that_few_steps_wait_for_get_the_number_as_well() -> None:
    finding = fired(RULE, starved(items_ms=59.0, workers=4, burst=0.4, usable_cpus=16.0, worker_cpus=3.8))
    assert finding.explains == claims.OUTLIERS
    assert "on average, a step takes 16.7 ms and waits 6.67 ms" in finding.summary
    assert "come in bursts" in finding.summary
    # ceil(60 / 9.98) + 1
    assert "num_workers=8)" in finding.advice
    # a mean step is 10 / (1 - 0.4); with 8 workers 10 and the receipt of a batch
    assert finding.gain.saved_ms_per_step == pytest.approx(10 / 0.6 - 10.5, abs=0.01)


@pytest.mark.parametrize(("burst", "fires"), [(0.4, True), (0.24, False)])
def test_bursts_do_not_hide_behind_a_wait_that_all_steps_have(burst: float, fires: bool) -> None:
    # 2.5 ms may be the price of a fetch; the mean step waits 6.7 ms, or 3.2 ms, which is 1.3 times as much.
    metrics = starved(items_ms=59.0, workers=4, burst=burst, ordinary_wait_ms=2.5, waited=0.9, usable_cpus=16.0)
    finding = RULE.check(metrics)
    assert (finding is not None) is fires
    assert (InputBound().check(metrics) is None) is fires  # the time of the wait is told once
    if finding is not None:
        assert finding.explains == claims.OUTLIERS
        assert "num_workers=8)" in finding.advice


@pytest.mark.parametrize("verdict", ["compute", "transfer"])
def test_long_waits_of_workers_that_are_fast_enough_are_no_bursts(verdict: str) -> None:
    metrics = starved(items_ms=20.0, workers=4, burst=0.4, usable_cpus=16.0, verdict=verdict)  # type: ignore[arg-type]
    assert RULE.check(metrics) is None


def test_a_single_stall_is_no_burst() -> None:
    metrics = starved(items_ms=59.0, workers=4, burst=0.4, usable_cpus=16.0)
    wait = replace(metrics.shares["data_wait"], total_lower_ratio=0.0)
    assert RULE.check(replace(metrics, shares={**metrics.shares, "data_wait": wait})) is None


@pytest.mark.parametrize(
    ("items_ms", "usable_cpus", "worker_cpus", "why"),
    [
        (59.0, 2.0, 0.95, "of CPU time and you have 2 CPUs"),
        (59.0, 2.0, None, "was not measured"),
        (294.0, 2.0, 0.02, "31 workers would remove the wait completely, but each is a process with its own memory"),
        (59.0, 16.0, 0.95, "plus a spare worker"),
    ],
)
def test_the_number_is_that_of_the_input_view_or_it_is_said_why_not(
    items_ms: float, usable_cpus: float, worker_cpus: float | None, why: str
) -> None:
    enough = enough_workers(items_ms + 1.0, 10.02)  # a step without its wait
    finding = fired(RULE, starved(items_ms=items_ms, workers=1, usable_cpus=usable_cpus, worker_cpus=worker_cpus))
    assert (finding.change.arguments["num_workers"] == enough) is (why == "plus a spare worker")
    assert why in finding.advice


def test_workers_that_wait_for_a_cpu_do_not_count_as_waiting_for_storage() -> None:
    queued = starved(workers=1, usable_cpus=2.0, worker_cpus=0.3, rows=(worker_row(cpu=0.3, delay=0.65),))
    waiting = starved(workers=1, usable_cpus=2.0, worker_cpus=0.3, rows=(worker_row(cpu=0.3, delay=0.05),))
    found = [RULE.check(metrics) for metrics in (queued, waiting)]
    assert all(f is not None for f in found)
    assert ["mostly wait" in f.advice for f in found if f is not None] == [False, True]


def test_cpus_that_others_use_are_not_free() -> None:
    finding = fired(RULE, starved(workers=1, usable_cpus=2.0, process_cpus=0.2, worker_cpus=0.4, others_cpus=1.4))
    assert "Other processes use 1.4 CPUs." in finding.advice


def test_on_a_device_only_what_it_idles_can_be_gained() -> None:
    def on_gpu(idle_ratio: float | None) -> Metrics:
        return starved(workers=1, usable_cpus=16.0, device_idle=idle_ratio, run={"device.type": "cuda"})

    assert RULE.check(on_gpu(0.03)) is None
    finding = fired(RULE, on_gpu(0.25))
    assert finding.severity == "critical"
    assert finding.gain.saved_ms_per_step == pytest.approx(0.25 * 40)
    assert fired(RULE, on_gpu(None)).severity == "warning"
