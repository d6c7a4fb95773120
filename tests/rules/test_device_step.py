import msgspec
import pytest
from device_builder import on_gpu
from late_steps import training
from metrics_builder import build, outliers, replace, scaled
from trace_metrics import metrics_of, recorded_steps
from traced_builder import gpu, window

from lightning_gpuprof.analyze.device_step import clock_loss, pace_ms
from lightning_gpuprof.model.finding import Verdict
from lightning_gpuprof.model.numbers import percent
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Device, SpeedLevel
from lightning_gpuprof.model.signals import rank_wait_ratio, step_idle_ratio
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import device_idle_ratio, device_step
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.verdict import decide


def verdict_of(*windows: WindowFacts, devices: tuple[Device, ...] = ()) -> Verdict:
    return decide(on_gpu(*windows, devices=devices))


def test_a_device_at_work_is_compute_bound() -> None:
    verdict = verdict_of(window(causes={"launch": 0.04, "back_to_back": 0.02}))
    assert verdict.kind == "compute-bound"
    assert "the GPU is busy for 94 % of the step (trace windows)" in verdict.summary


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (window(causes={"launch": 0.30}), "host-bound"),
        (window(causes={"host_work": 0.30}), "host-bound"),
        (window(causes={"allocator": 0.30}), "host-bound"),
        (window(causes={"host_sync": 0.30}), "sync-bound"),
        (window(exposed_communication=0.35), "comm-bound"),
        (window(causes={"communication": 0.35}), "comm-bound"),
        (window(causes={"queued": 0.3}), "compute-bound"),
        (window(causes={"launch": 0.30, "host_sync": 0.28}), "mixed"),
    ],
)
def test_what_a_device_waits_for_is_the_verdict(facts: WindowFacts, kind: str) -> None:
    assert verdict_of(facts).kind == kind


def test_allocating_memory_is_named() -> None:
    assert "freeing memory" in verdict_of(window(causes={"allocator": 0.30, "launch": 0.1})).summary
    assert "freeing memory" not in verdict_of(window(causes={"allocator": 0.05, "launch": 0.35})).summary


@pytest.mark.parametrize(
    ("below", "above", "kind"),
    [
        (window(causes={"host_sync": 0.19}), window(causes={"host_sync": 0.25}), "sync-bound"),
        (window(exposed_communication=0.19), window(exposed_communication=0.21), "comm-bound"),
    ],
)
def test_each_threshold_is_held(below: WindowFacts, above: WindowFacts, kind: str) -> None:
    # Of idle time a share of 6 % belongs to loop, logging, callbacks, fetch and transfer.
    assert verdict_of(below).kind == "compute-bound"
    assert verdict_of(above).kind == kind


def test_idle_time_that_tracing_makes_is_not_the_runs_own() -> None:
    assert verdict_of(window(causes={"launch": 0.05}, inflation=2.0)).kind == "compute-bound"


def test_a_wait_for_the_batch_costs_what_the_device_waits() -> None:
    times_ms: dict[Phase, float] = {"data_wait": 30.0, "forward": 3.0, "backward": 10.0}
    period_ms = sum(build(times_ms=times_ms).shares[p].median_ms for p in build(times_ms=times_ms).shares)
    hidden = window(period_ms=period_ms, causes={"launch": 0.3}, host_ms={"data_wait": 30.0, "forward": 5.0})
    verdict = decide(on_gpu(hidden, times_ms=times_ms))
    assert verdict.kind == "host-bound", verdict.summary
    seen = window(period_ms=period_ms, causes={"data": 0.5}, host_ms={"data_wait": 30.0, "forward": 5.0})
    assert decide(on_gpu(seen, times_ms=times_ms)).kind == "input-bound"


def test_a_wait_for_other_ranks_is_told_from_transfer() -> None:
    late = verdict_of(window(exposed_communication=0.4, above_fastest=0.6))
    assert late.kind == "comm-bound"
    assert "60 % of the time in collectives is waiting for other ranks, not transfer" in late.summary
    assert "transfer" not in verdict_of(window(exposed_communication=0.4, above_fastest=0.1)).summary


def test_copies_that_nothing_covers_are_transfer() -> None:
    facts = window(uploads=0.2)
    times_ms: dict[Phase, float] = {"h2d": 10.0, "forward": 10.0}
    assert decide(on_gpu(facts, times_ms=times_ms)).kind == "transfer-bound"
    assert decide(on_gpu(window(), times_ms=times_ms)).kind == "compute-bound"  # the device works meanwhile


def test_a_copy_that_does_not_block_the_host_is_transfer() -> None:
    pinned: dict[Phase, float] = {"h2d": 0.2}
    verdict = decide(on_gpu(window(uploads=0.3), times_ms=pinned))
    assert verdict.kind == "transfer-bound", verdict.summary
    assert "the GPU copies the batch without computing for 30 % of the step" in verdict.summary
    assert decide(on_gpu(window(uploads=0.08), times_ms=pinned)).kind == "compute-bound"


def test_staging_by_the_host_and_copies_of_the_device_add_up() -> None:
    staged: dict[Phase, float] = {"h2d": 8.5, "forward": 11.6}
    facts = window(causes={"host_work": 0.08}, uploads=0.09)
    verdict = decide(on_gpu(facts, times_ms=staged))
    assert verdict.kind == "transfer-bound", verdict.summary
    assert "costs 15 % of the step: the GPU copies the batch without computing for 9.0 % of the step" in verdict.summary
    beside = decide(on_gpu(facts, times_ms=staged, validation=(1, 5.0)))
    assert "costs 15 % of the step: the GPU copies the batch without computing for 9.0 % of the step" in beside.summary


def test_callbacks_while_the_device_works_are_free() -> None:
    times_ms: dict[Phase, float] = {"callbacks": 20.0, "forward": 2.0}
    assert decide(on_gpu(window(), times_ms=times_ms)).kind == "compute-bound"
    assert decide(on_gpu(window(causes={"callbacks": 0.4}), times_ms=times_ms)).kind == "loop-bound"


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        (gpu(sm=0.9, dram=0.85, tensor=0.2), "memory-bound"),
        (gpu(sm=0.9, dram=0.3, tensor=0.7), "compute-bound"),
        (gpu(sm=0.9, dram=0.65, tensor=0.8), "compute-bound"),
        (gpu(sm=0.3, dram=0.2, tensor=0.1), "latency-bound"),
        (gpu(sm=0.3, dram=0.2, samples=10), "compute-bound"),
        (gpu(sm=None, dram=0.9), "compute-bound"),
    ],
)
def test_counters_tell_what_limits_the_device(device: Device, kind: str) -> None:
    assert verdict_of(window(causes={"launch": 0.02}), devices=(device,)).kind == kind


def test_counters_are_held_against_the_time_that_the_device_works() -> None:
    facts = window(causes={"launch": 0.08})
    assert verdict_of(facts, devices=(gpu(sm=0.48, dram=0.1),)).kind == "compute-bound"
    assert verdict_of(facts, devices=(gpu(sm=0.40, dram=0.1),)).kind == "latency-bound"


def test_without_counters_geometry_and_roofline_tell() -> None:
    assert verdict_of(window(sm_efficiency=0.2)).kind == "latency-bound"
    assert verdict_of(window(sm_efficiency=0.8)).kind == "compute-bound"
    assert verdict_of(window(at_roof={("memory", 0.7): 0.6, ("compute", 0.4): 0.4})).kind == "memory-bound"
    assert verdict_of(window(at_roof={("memory", 0.2): 0.9})).kind == "compute-bound"  # bytes are a lower bound


def test_held_clocks_limit_a_device_that_sets_the_pace() -> None:
    hot = gpu(clock_mhz=1200.0, reasons={"sw_thermal": 0.6})
    verdict = verdict_of(window(), devices=(hot,))
    assert verdict.kind == "hardware-limited"
    assert "gpu0 runs at 1,200 MHz instead of 1,980" in verdict.summary
    assert "too hot" in verdict.summary
    assert verdict_of(window(causes={"launch": 0.6}), devices=(hot,)).kind == "host-bound"


@pytest.mark.parametrize(
    "device",
    [
        gpu(clock_mhz=1700.0, reasons={"sw_power_cap": 0.9}),  # above 85 %
        gpu(clock_mhz=1200.0, reasons={"gpu_idle": 0.5}),
        gpu(clock_mhz=1200.0),
        gpu(clock_mhz=1200.0, reasons={"sw_thermal": 0.6}, samples=19),
        gpu(clock_mhz=None, reasons={"sw_thermal": 0.6}),
        gpu(clock_mhz=1500.0, reasons={"sw_power_cap": 0.97}),  # at its default limit, or that is not known
        gpu(clock_mhz=1500.0, reasons={"sw_power_cap": 0.97}, power_limit_w=700.0),
        gpu(clock_mhz=1500.0, reasons={"sw_power_cap": 0.97, "sw_thermal": 0.02}),
        gpu(clock_mhz=1500.0, reasons={"sw_thermal": 0.25}, held_mhz=900.0),  # an eighth of the speed
        gpu(clock_mhz=1200.0, reasons={"sw_thermal": 0.6}, held_mhz=1900.0),
    ],
)
def test_clocks_that_nothing_holds_down_are_no_limit(device: Device) -> None:
    assert verdict_of(window(), devices=(device,)).kind == "compute-bound"


def test_a_lowered_power_limit_holds_clocks_down() -> None:
    lowered = gpu(clock_mhz=1500.0, reasons={"sw_power_cap": 0.97}, power_limit_w=400.0)
    verdict = verdict_of(window(), devices=(lowered,))
    assert verdict.kind == "hardware-limited"
    assert "power cap" in verdict.summary


def test_the_clock_of_a_device_without_limits_is_not_known() -> None:
    assert clock_loss([gpu(clock_mhz=1200.0, clock_max_mhz=0.0, reasons={"sw_thermal": 0.6})]) is None


def test_without_windows_utilization_tells_the_idle_time() -> None:
    assert verdict_of(devices=(gpu(utilization=0.5),)).kind == "host-bound"
    assert "NVML" in verdict_of(devices=(gpu(utilization=0.5),)).summary
    assert verdict_of(devices=(gpu(utilization=0.97),)).kind == "compute-bound"
    assert "was not measured" in verdict_of(devices=(gpu(utilization=0.5, distinct=19),)).summary
    beside = on_gpu(devices=(gpu(utilization=0.5),), validation=(4, 5.0))
    assert device_step(beside) is None


def test_work_from_before_the_window_is_held_against_its_own_time() -> None:
    facts = window(causes={"launch": 0.3}, unmatched=300)
    assert verdict_of(facts).kind == "host-bound"
    assert "was not measured" in verdict_of(msgspec.structs.replace(facts, inflation_ratio=None)).summary


@pytest.mark.parametrize("unmatched", [0, 50, 170, 600])
@pytest.mark.parametrize("idle", [0.05, 0.3, 0.6])
def test_verdict_engine_and_rules_have_one_answer_to_how_idle_the_device_is(unmatched: int, idle: float) -> None:
    metrics = on_gpu(window(causes={"host_sync": idle}, unmatched=unmatched, inflation=1.2))
    summary = decide(metrics).summary
    assert f"in all it idles for {percent(idle)}" in summary or f"busy for {percent(1 - idle)} of the step" in summary
    answers = (
        device_idle_ratio(metrics),
        step_idle_ratio(metrics),
        metrics.host_limit.by_phase["forward"],
        metrics.host_limit.ratio,
        metrics.host_limit.stalls_ratio,
        rank_wait_ratio(metrics),
    )
    assert answers == (pytest.approx(idle),) * len(answers)


@pytest.mark.parametrize("unmatched_ratio", [0.0, 0.05, 0.17, 0.6])
def test_one_report_never_says_two_idle_shares(unmatched_ratio: float) -> None:
    """The host is far ahead, as where work from before the window is in it: a rule and the verdict tell of the rest."""
    facts = recorded_steps(lambda trace: training(trace, kernels=500, kernel_us=100.0, fetch_us=10.0))
    unmatched = round(unmatched_ratio * facts.device_work)
    facts = msgspec.structs.replace(
        facts,
        launches_matched=facts.device_work - unmatched,
        launches_unmatched=unmatched,
        inflation_ratio=0.96,
    )
    said = diagnose(metrics_of(facts, period_ms=52.0))
    (queue_full,) = [finding for finding in said.findings if finding.rule == "queue-full"]
    (idle,) = [evidence.value for evidence in queue_full.evidence if evidence.name == "GPU idle, share of the step"]
    assert isinstance(idle, float)
    assert f"is busy for {percent(1.0 - idle)} of the step" in said.verdict.summary


def test_the_shares_of_a_step_sum_to_one() -> None:
    facts = window(causes={"launch": 0.2, "data": 0.1}, exposed_communication=0.2, uploads=0.1, inflation=1.4)
    step = device_step(on_gpu(facts))
    parts = (step.idle_ratio, step.computing_ratio, step.exposed_communication_ratio, step.exposed_copy_ratio)
    assert sum(parts) == pytest.approx(1.0)
    assert step.idle_ratio == pytest.approx(0.3)
    assert step.upload_ratio == pytest.approx(0.1)
    assert sum(step.causes.values()) == pytest.approx(1.0)


def test_the_median_window_counts() -> None:
    rare = window(causes={"host_sync": 0.9})
    assert verdict_of(window(), rare, window(), window()).kind == "compute-bound"
    assert verdict_of(rare, window(), window(), window()).kind == "compute-bound"


def test_of_two_windows_the_busier_counts_and_none_of_slow_steps() -> None:
    quiet, stalled = window(causes={"launch": 0.04}), window(causes={"host_sync": 0.6})
    slow = msgspec.structs.replace(stalled, reason="slow step 120")
    for windows in ((quiet, stalled), (stalled, quiet), (quiet, slow, slow), (slow, slow, quiet)):
        metrics = on_gpu(*windows)
        assert decide(metrics).kind == "compute-bound"
        assert device_idle_ratio(metrics) == pytest.approx(0.04)
    assert device_idle_ratio(on_gpu(slow)) is None
    assert device_step(on_gpu(slow)) is None


def test_a_host_that_is_ahead_gives_the_device_the_mean_of_its_steps() -> None:
    """It launches at once in some steps and waits for room in the queue at others: their median is no step's work."""
    metrics = on_gpu(window(causes={"queued": 0.06}))
    assert metrics.steps.period_ms is not None
    for mean_ms, idle_ratio in ((47.0, 0.0), (80.0, 0.06)):
        period = msgspec.structs.replace(metrics.steps.period_ms, mean=mean_ms)
        uneven = replace(metrics, steps=msgspec.structs.replace(metrics.steps, period_ms=period), outliers=None)
        step = device_step(uneven)
        assert step.idle_ratio == pytest.approx(idle_ratio, abs=1e-9)
        assert device_idle_ratio(uneven) == pytest.approx(idle_ratio, abs=1e-9)


def test_the_pace_of_a_device_is_without_stalls_and_of_an_even_run() -> None:
    metrics = on_gpu()
    assert metrics.steps.period_ms is not None
    uneven = msgspec.structs.replace(metrics.steps.period_ms, mean=60.0)
    stalls = outliers(count=4, stall_ms=500.0, phases="forward", steps=200, period_ms=46.0)
    stalled = replace(metrics, steps=msgspec.structs.replace(metrics.steps, period_ms=uneven), outliers=stalls)
    assert pace_ms(stalled, 50.0) == pytest.approx(46.0)
    fast, slow = (
        SpeedLevel(
            from_batch=at,
            to_batch=at + count - 1,
            count=count,
            period_ms=msgspec.structs.replace(uneven, mean=mean_ms, median=median_ms),
            phases_ms={},
        )
        for at, count, mean_ms, median_ms in ((0, 50, 10.0, 10.0), (50, 150, 54.0, 60.0))
    )
    parts = replace(stalled, steps=msgspec.structs.replace(stalled.steps, speed_levels=(fast, slow)))
    assert pace_ms(parts, 50.0) == pytest.approx(45.0)


@pytest.mark.parametrize("factor", [1.5, 10.0])
def test_a_run_in_which_all_takes_longer_has_the_same_verdict(factor: float) -> None:
    for facts in (window(causes={"launch": 0.3}), window(exposed_communication=0.3), window(causes={"host_sync": 0.3})):
        metrics = on_gpu(facts)
        assert decide(scaled(metrics, factor)).kind == decide(metrics).kind
