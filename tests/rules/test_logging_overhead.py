import math

import pytest
from findings_builder import fired
from metrics_builder import build, outliers, replace
from metrics_builder import share as share_of

from lightning_gpuprof.model.metrics import LoggerWrites
from lightning_gpuprof.rules.loop.logging_overhead import LoggingOverhead

RULE = LoggingOverhead()


def test_writing_every_few_steps_is_seen() -> None:
    metrics = build(run={"trainer.log_every_n_steps": 5})
    share = replace(metrics.shares["logging"], total_ratio=0.08)
    finding = fired(RULE, replace(metrics, shares={**metrics.shares, "logging": share}))
    assert finding.severity == "info"
    assert "Trainer(..., log_every_n_steps=40)" in finding.advice


def test_it_is_quiet_where_the_logger_stalls_rare_steps() -> None:
    stalls = outliers(count=8, stall_ms=400, phases="logging", steps=380, period_ms=50)
    metrics = build(stalls=stalls)
    share = replace(metrics.shares["logging"], total_ratio=0.006 + stalls.excess_ms / stalls.total_ms)
    assert RULE.check(replace(metrics, shares={**metrics.shares, "logging": share})) is None


@pytest.mark.parametrize(("above_fixed_ratio", "fires"), [(0.0299, False), (0.0301, True)])
def test_the_lower_bound_above_the_fixed_cost_decides(above_fixed_ratio: float, fires: bool) -> None:
    metrics = build(times_ms={"logging": 5.0})
    assert metrics.period_ms is not None
    share = replace(metrics.shares["logging"], lower_ratio=above_fixed_ratio + RULE.fixed_ms / metrics.period_ms)
    metrics = replace(metrics, shares={**metrics.shares, "logging": share})
    assert (RULE.check(metrics) is not None) is fires


@pytest.mark.parametrize(("run_delay_ratio", "fires"), [(None, True), (0.0, True), (0.8, False)])
def test_waiting_for_a_cpu_is_not_taken_for_logging_every_few_steps(run_delay_ratio: float | None, fires: bool) -> None:
    # Seen on two CPUs with a load of 20: 0.93 ms in a median step, 4.8 ms on average, of a period of 32 ms.
    metrics = build(times_ms={"logging": 1.5}, run={"trainer.log_every_n_steps": 50})
    metrics = replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=run_delay_ratio))
    share = replace(metrics.shares["logging"], total_ratio=5 * metrics.shares["logging"].median_ratio)
    assert (RULE.check(replace(metrics, shares={**metrics.shares, "logging": share})) is not None) is fires


def test_a_logger_that_writes_every_few_steps_is_found_where_cpus_are_scarce() -> None:
    metrics = build(times_ms={"logging": 0.2}, run={"trainer.log_every_n_steps": 5})
    metrics = replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=0.5))
    share = replace(metrics.shares["logging"], total_ratio=0.2)
    assert RULE.check(replace(metrics, shares={**metrics.shares, "logging": share})) is not None


@pytest.mark.parametrize(
    ("steps", "every", "advice"),
    [
        (400, 6, "Log less often: Trainer(..., log_every_n_steps=80). Why 80: that leaves 0.437 ms per step"),
        (60, 6, "Log less often: Trainer(..., log_every_n_steps=30). Why 30: that leaves 1.16 ms per step"),
        (60, 50, "Call self.log every 30 steps: if (batch_idx + 1) % 30 == 0:"),
    ],
)
def test_values_are_written_twice_in_the_run_or_the_advice_is_another_one(steps: int, every: int, advice: str) -> None:
    metrics = build(steps=steps, run={"trainer.log_every_n_steps": every})
    share = replace(metrics.shares["logging"], total_ratio=0.1165)
    assert fired(RULE, replace(metrics, shares={**metrics.shares, "logging": share})).advice.startswith(advice)


def test_where_other_programs_use_the_cpus_only_what_is_logging_s_own_is_certain() -> None:
    # Measured beside five other programs on two CPUs: 38.4 of 113 ms in logging, of which 2.0 ms were its own.
    metrics = build(times_ms={"logging": 38.4, "forward": 74.6})
    assert RULE.check(metrics) is not None
    own = replace(metrics.shares["logging"], median_ratio=0.017, lower_ratio=0.017, median_ms=2.0, total_ratio=0.024)
    assert RULE.check(replace(metrics, logging_without_delay=own)) is None
    slow = replace(metrics.shares["logging"], median_ratio=0.2, lower_ratio=0.2, median_ms=28.5, total_ratio=0.2)
    finding = fired(RULE, replace(metrics, logging_without_delay=slow))
    assert finding.summary == "Logging takes 38.4 ms of each 143 ms step (27 %)."  # as the bar of the step has it


def test_the_slowest_logger_is_named_from_half_of_the_time_of_logging_on() -> None:
    metrics = build(times_ms={"logging": 12.0}, run={"trainer.loggers": "CSVLogger, Remote"})
    assert metrics.period_ms is not None

    def writes(ms: float) -> LoggerWrites:
        assert metrics.period_ms is not None
        return LoggerWrites(name="Remote", share=share_of(ms, metrics.period_ms), count=380, each_ms=ms)

    for ms, subject in ((5.0, "CSVLogger, Remote"), (7.0, "Remote"), (math.nan, "CSVLogger, Remote")):
        finding = fired(RULE, replace(metrics, logger_writes=(writes(ms),)))
        assert finding.subject == subject
        assert ("per write" in finding.summary) is (subject == "Remote")
