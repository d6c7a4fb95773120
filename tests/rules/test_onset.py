import msgspec
import pytest
from metrics_builder import build, replace
from uneven_builder import stretch

from lightning_gpuprof.model.evenness import Evenness, Stretch
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.engine import diagnose, with_onset
from lightning_gpuprof.rules.input.single_process_loading import SingleProcessLoading
from lightning_gpuprof.rules.steps.phase_change import PhaseChange

WORK: dict[Phase, float] = {"forward": 1.0, "backward": 0.8, "optimizer": 0.3, "loop": 0.3}


def part(wait_ms: float, *, start: int, count: int, factor: float = 1.0, **more: float) -> Stretch:
    """Steps of 2.4 ms of work that wait so long; ``factor`` makes all of it longer."""
    phases: dict[Phase, float] = {name: factor * ms for name, ms in {**WORK, "data_wait": wait_ms}.items()}
    whole = sum(phases.values())
    return stretch(
        start=start, count=count, phases_ms=phases, period_ms=whole, interval_ms=(0.99 * whole, 1.01 * whole), **more
    )


def slower_from_121(
    before_ms: float = 4.1, after_ms: float = 8.3, *, median_ms: float = 8.3, steps: int = 240
) -> Metrics:
    """Batches are made in the main process, from batch 121 on in more time."""
    times: dict[Phase, float] = {**WORK, "data_wait": median_ms, "h2d": 0.0, "zero_grad": 0.0, "callbacks": 0.0}
    found = build(times_ms={**times, "logging": 0.0}, num_workers=0, usable_cpus=8.0, process_cpus=0.4, steps=steps)
    parts = (part(before_ms, start=1, count=120), part(after_ms, start=121, count=steps - 120, from_s=1.2))
    mean_ms = sum(one.period_ms * one.count for one in parts) / steps
    wait, period = found.shares["data_wait"], found.steps.period_ms
    assert period is not None
    wait = replace(wait, total_ratio=(mean_ms - sum(WORK.values())) / mean_ms)
    return replace(
        found,
        shares={**found.shares, "data_wait": wait},
        steps=msgspec.structs.replace(found.steps, period_ms=msgspec.structs.replace(period, mean=mean_ms)),
        evenness=Evenness(speed_levels=parts),
    )


def loading_of(metrics: Metrics) -> Finding:
    return next(f for f in diagnose(metrics, [SingleProcessLoading()]).findings)


def test_the_cause_says_since_when_with_before_and_after() -> None:
    assert loading_of(slower_from_121()).summary.endswith(
        "Since batch 121 (1.20 s into the run), waiting for data takes 8.30 ms instead of 4.10 ms."
    )


def test_a_part_that_became_quicker_is_said_as_well() -> None:
    assert (
        "Since batch 121 (1.20 s into the run), waiting for data takes 2.00 ms instead of 8.30 ms"
        in loading_of(slower_from_121(8.3, 2.0)).summary
    )


def test_its_gain_is_that_of_all_steps_and_not_of_the_slow_part() -> None:
    gain = loading_of(slower_from_121()).gain
    assert gain.saved_ms_per_step <= 1.1 * (4.1 + 8.3) / 2
    lower = loading_of(slower_from_121(median_ms=4.1)).gain
    assert lower.saved_ms_per_step <= 4.1


def test_a_run_of_one_speed_says_nothing_of_it() -> None:
    metrics = slower_from_121(8.3)
    plain = replace(metrics, evenness=Evenness(speed_levels=(part(8.3, start=1, count=240),)))
    assert "Since batch" not in loading_of(plain).summary
    gain = loading_of(plain).gain
    assert gain.saved_ms_per_step > 7.0


def test_a_slower_machine_is_no_change_of_a_phase() -> None:
    metrics = slower_from_121()
    parts = (part(8.3, start=1, count=120), part(8.3, start=121, count=120, factor=1.5))
    assert "Since batch" not in loading_of(replace(metrics, evenness=Evenness(speed_levels=parts))).summary


def silent(*parts: Stretch) -> bool:
    return "batch 121" not in loading_of(replace(slower_from_121(), evenness=Evenness(speed_levels=parts))).summary


def test_another_job_on_the_cpus_is_no_change_of_a_phase() -> None:
    before, after = part(4.1, start=1, count=120), part(8.3, start=121, count=120)
    assert not silent(before, after)
    assert silent(before, msgspec.structs.replace(after, run_delay_ratio=0.3))


def test_a_change_that_costs_little_in_all_is_not_told() -> None:
    assert silent(part(4.1, start=1, count=120), part(8.3, start=121, count=115))


def test_in_a_run_that_changes_all_the_time_nothing_has_a_beginning() -> None:
    assert silent(*(part(4.1 + 6.0 * (i % 2), start=120 * i + 1, count=120) for i in range(5)))


def test_a_host_that_was_ahead_of_a_device_has_no_change() -> None:
    metrics = slower_from_121()
    device = replace(metrics, run={**metrics.run, "device.type": "cuda"})
    slow = next(f for f in diagnose(metrics, [SingleProcessLoading()]).findings)
    plain = msgspec.structs.replace(slow, summary="Loading is slow.")
    assert with_onset([plain], metrics) != (plain,)
    assert with_onset([plain], device) == (plain,)


def test_a_slow_part_that_ended_is_told_with_its_end() -> None:
    metrics = slower_from_121(steps=360)
    parts = part(4.1, start=1, count=120), part(8.3, start=121, count=120, from_s=1.2), part(4.1, start=241, count=120)
    summary = loading_of(replace(metrics, evenness=Evenness(speed_levels=parts))).summary
    assert summary.endswith(
        "From batch 121 to 240 (1.20 s into the run), waiting for data took 8.30 ms instead of 4.10 ms."
    )


def test_the_cost_of_lr_schedulers_is_a_part_of_the_optimizer() -> None:
    metrics = slower_from_121()
    before, after = metrics.evenness.speed_levels
    slow = msgspec.structs.replace(after, phases_ms={**before.phases_ms, "optimizer": 4.5})
    finding = msgspec.structs.replace(loading_of(metrics), summary="", explains=claims.LR_SCHEDULER)
    told = with_onset([finding], replace(metrics, evenness=Evenness(speed_levels=(before, slow))))
    assert "Since batch 121" in told[0].summary


def test_the_change_itself_is_found_although_most_of_the_step_is_the_phase_that_grew() -> None:
    found = diagnose(slower_from_121(9.0, 18.0, median_ms=18.0, steps=400), [SingleProcessLoading(), PhaseChange()])
    change = next(f for f in found.findings if f.rule == "phase-change")
    assert "From batch 121 on (1.20 s into the run), steps take 20.4 ms instead of 11.4 ms" in change.summary
    assert change.subject == "waiting for data"
    assert sum(f.summary.count("Since batch 121") for f in found.findings) == (found.findings[0] is not change)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_noise_in_the_rest_of_the_step_is_no_slower_machine(factor: float) -> None:
    metrics = slower_from_121(9.0, 18.0, steps=400)
    noisy = part(18.0 / factor, start=121, count=280, factor=factor, from_s=1.2)
    parts = (metrics.evenness.speed_levels[0], noisy)
    assert PhaseChange().check(replace(metrics, evenness=Evenness(speed_levels=parts))) is not None


def test_the_cause_that_has_a_change_leads_and_the_change_of_speed_follows() -> None:
    found = diagnose(slower_from_121()).findings
    rules = [finding.rule for finding in found]
    assert rules[0] == "single-process-loading"
    assert found[0].gain is not None
    assert "phase-change" in rules
