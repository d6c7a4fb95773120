from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from metrics_builder import build
from trace_metrics import metrics_of

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.framework_ddp_sync import FrameworkDdpSync

RULE = FrameworkDdpSync()
RANKS: dict[str, Value] = {"trainer.world_size": 4, "version.lightning": "2.6.6", "trainer.accumulate_grad_batches": 4}


def checked(trace: GpuTrace) -> None:
    """As Lightning does it: a tensor of the host is broadcast, and read; then the batch is fetched."""
    trace.copy(2.0, 8, kind="HtoD (Pageable -> Device)")
    trace.collective(30.0, 8, ranks=4, name="Broadcast")
    trace.communication_done()
    trace.item()
    training(trace, kernels=60, fetch_us=1500.0)


def test_it_tells_what_the_device_idles_after_the_check() -> None:
    finding = RULE.check(metrics_of(recorded_steps(checked), run=RANKS))
    assert finding is not None
    assert finding.severity in ("warning", "critical")
    assert finding.summary.startswith("Lightning 2.6.6 asks all ranks once per step")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4 / 5 * 1.5, rel=0.1)  # before the first there is no work
    assert "in place of accumulate_grad_batches=4" in finding.advice


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(metrics_of(recorded_steps(training), run=RANKS)) is None
    assert RULE.check(build()) is None


def test_it_is_quiet_where_long_kernels_follow_at_once() -> None:
    def step(trace: GpuTrace) -> None:
        trace.item()
        training(trace, fetch_us=0.0)

    assert RULE.check(metrics_of(recorded_steps(step), run=RANKS)) is None


def test_a_value_that_the_model_reads_is_another_rules() -> None:
    def step(trace: GpuTrace) -> None:
        training(trace, kernels=60, reads={"training_step": 0.0}, other_us=2000.0)

    assert RULE.check(metrics_of(recorded_steps(step), run=RANKS)) is None


def test_with_one_rank_there_is_no_check() -> None:
    assert RULE.check(metrics_of(recorded_steps(checked), run={"trainer.world_size": 1})) is None


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of(run=RANKS))


def test_on_a_cpu_it_is_information_as_the_wait_for_late_ranks_is_in_it() -> None:
    finding = RULE.check(build(times_ms={"sync": 20.0}, run={**RANKS, "device.type": "cpu"}))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert RULE.check(build(times_ms={"sync": 0.5}, run={**RANKS, "device.type": "cpu"})) is None
