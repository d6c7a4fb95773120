from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from metrics_builder import build
from trace_metrics import metrics_of

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.sync_points import SyncPoints

RULE = SyncPoints()
STRATEGY = "[Strategy]SingleDeviceStrategy"


def training(
    trace: GpuTrace,
    *,
    kernels: int = 100,
    kernel_us: float = 100.0,
    item_before_us: float | None = None,
    fetch_us: float = 0.0,
    refill_us: float = 8.0,
) -> None:
    """A step whose device work is 10 ms; maybe the loss is read after it, and the host prepares for a while."""
    with trace.phase("[_TrainingEpochLoop].train_dataloader_next"):
        trace.python(fetch_us)
    with trace.line("train.py(20): training_step"), trace.phase(f"{STRATEGY}.training_step"):
        for _ in range(kernels // 2):
            trace.kernel(kernel_us, host_us=refill_us)
        if item_before_us is not None:
            trace.item()
            trace.python(item_before_us)
    with trace.phase(f"{STRATEGY}.backward"):
        for _ in range(kernels // 2):
            trace.kernel(kernel_us, host_us=refill_us)


def test_it_names_the_line_that_reads_the_loss() -> None:
    window = recorded_steps(lambda trace: training(trace, item_before_us=1500.0))
    finding = RULE.check(metrics_of(window))
    assert finding is not None
    assert finding.subject == "train.py(20): training_step"
    assert finding.severity == "warning"
    assert "once per step" in finding.summary
    assert finding.advice.startswith("At train.py(20): training_step, keep the value as a tensor")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(1.5, rel=0.1)  # what the device was idle, not blocked time
    blocked = next(e.value for e in finding.evidence if e.name == "host blocked per traced step")
    assert isinstance(blocked, float)
    assert blocked > 3 * 1.5


def test_it_is_quiet_without_a_wait() -> None:
    assert RULE.check(metrics_of(recorded_steps(training))) is None


def test_a_wait_that_the_next_launch_follows_at_once_is_free() -> None:
    window = recorded_steps(lambda trace: training(trace, item_before_us=0.0))
    assert RULE.check(metrics_of(window)) is None


def test_idle_time_for_want_of_a_batch_is_not_a_wait_s() -> None:
    """Decoy: the loss is read, but the device is idle because of the fetch."""

    def step(trace: GpuTrace) -> None:
        training(trace, fetch_us=20_000.0, item_before_us=0.0)

    assert RULE.check(metrics_of(recorded_steps(step))) is None


def test_idle_time_that_only_tracing_made_does_not_count() -> None:
    """The untraced step is as long as the device works: there is nothing to gain."""
    window = recorded_steps(lambda trace: training(trace, item_before_us=1500.0))
    assert RULE.check(metrics_of(window, period_ms=10.1)) is None


@pytest.mark.parametrize(("after_us", "fires"), [(400.0, False), (650.0, True)])
def test_a_twentieth_of_the_step_decides(after_us: float, fires: bool) -> None:
    window = recorded_steps(lambda trace: training(trace, item_before_us=after_us))
    assert (RULE.check(metrics_of(window)) is not None) is fires


def test_waits_of_the_progress_bar_are_not_the_code_s() -> None:
    def step(trace: GpuTrace) -> None:
        training(trace)
        with trace.phase("[Callback]TQDMProgressBar.on_train_batch_end"):
            trace.item()
            trace.python(2000.0)

    assert RULE.check(metrics_of(recorded_steps(step))) is None


def test_a_callback_of_the_user_is_named_by_its_hook() -> None:
    def step(trace: GpuTrace) -> None:
        training(trace)
        with trace.line("train.py(82): main"), trace.phase("[Callback]Watch.on_train_batch_end"):
            trace.item()
            trace.python(2000.0)

    finding = RULE.check(metrics_of(recorded_steps(step)))
    assert finding is not None
    assert finding.subject == "Watch.on_train_batch_end"


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())


def test_on_a_cpu_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="runs on the CPU"):
        RULE.check(build())


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_s_own_check_of_all_ranks_is_not_the_codes(ranks: int) -> None:
    def step(trace: GpuTrace) -> None:
        trace.item()
        trace.python(2000.0)
        training(trace)

    run: dict[str, Value] = {"trainer.world_size": ranks, "version.lightning": "2.6.6"}
    assert (RULE.check(metrics_of(recorded_steps(step), run=run)) is None) is (ranks == 2)


def test_of_two_waits_the_second_costs_what_the_first_has_blocked() -> None:
    """Without both, the host would be ahead by the time of the first: the second alone is blocked for microseconds."""

    def step(trace: GpuTrace) -> None:
        training(trace)
        with trace.line("train.py(52): training_step"):
            trace.item()
            trace.item()
            trace.python(2000.0)

    finding = RULE.check(metrics_of(recorded_steps(step)))
    assert finding is not None
    assert finding.subject == "train.py(52): training_step"
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4 / 5 * 2.0, rel=0.1)  # after the last no work follows
