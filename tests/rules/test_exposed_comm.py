from __future__ import annotations

import pytest
from device_builder import STEPS, collective, distributed, without_windows
from metrics_builder import build, replace

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.exposed_comm import ExposedComm

RULE = ExposedComm()


def test_exposed_transfer_is_told_with_what_would_shrink_it() -> None:
    run = {"trainer.comm_hook": None, "trainer.accumulate_grad_batches": 1}
    finding = RULE.check(distributed([collective(6.0, min_ms=5.5)], run=run))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "all_reduce of 25 MiB"
    assert "12.0 ms of each 50.0 ms step: 24 %" in finding.summary
    assert "bf16_compress_hook" in finding.advice
    assert "accumulate_grad_batches=4" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(12.0)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(11.0)


def test_a_hook_that_is_there_is_not_advised() -> None:
    finding = RULE.check(distributed([collective(6.0, dtype="bfloat16")], run={"trainer.comm_hook": "bf16_compress"}))
    assert finding is not None
    assert "bf16_compress_hook" not in finding.advice
    assert "batch_size above 32 per rank" in finding.advice


def test_waiting_for_a_late_rank_is_no_reason_to_compress() -> None:
    finding = RULE.check(distributed([collective(6.0, min_ms=0.5)]))
    assert finding is not None
    assert finding.advice.startswith("Find the late rank")
    assert "bf16" not in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(1.0)


def test_a_collective_of_unknown_size_does_not_tell_waiting() -> None:
    finding = RULE.check(distributed([collective(20.0, count=2, mb=None)]))
    assert finding is not None
    assert "One rank alone does not show" in finding.summary


def test_a_small_collective_that_takes_long_has_waited() -> None:
    finding = RULE.check(distributed([collective(6.0, mb=0.02, kind="all_to_all")]))
    assert finding is not None
    assert finding.subject == "all_to_all of 20.5 KiB"
    assert finding.advice.startswith("Find the late rank")


def test_many_reductions_in_a_step_are_to_be_joined() -> None:
    finding = RULE.check(distributed([collective(0.1, mb=None, count=400 * STEPS)]))
    assert finding is not None
    assert "join the 400 all-reduces of a step (0.100 ms each)" in finding.advice


def test_hidden_communication_is_quiet() -> None:
    assert RULE.check(distributed([collective(12.0, exposed_ms=0.5)])) is None


def test_one_rank_is_quiet() -> None:
    assert RULE.check(distributed([collective(12.0)], run={"trainer.world_size": 1})) is None


@pytest.mark.parametrize(("ms", "fires"), [(2.49, False), (2.51, True)])
def test_the_boundary_is_a_tenth_of_the_step(ms: float, fires: bool) -> None:
    assert (RULE.check(distributed([collective(ms, count=2 * STEPS)])) is not None) is fires


def test_it_is_not_evaluated_without_windows_or_on_the_cpu() -> None:
    metrics = distributed([collective(6.0)])
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(metrics))
    with pytest.raises(MissingSignal, match="gloo"):
        RULE.check(build(run={"trainer.world_size": 2}))


def test_the_least_of_two_windows_decides() -> None:
    busy, calm = distributed([collective(6.0)]), distributed([collective(1.0)])
    assert RULE.check(replace(busy, windows=(*busy.windows, *calm.windows))) is None
