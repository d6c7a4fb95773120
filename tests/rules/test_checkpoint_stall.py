from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.checkpoint_stall import CheckpointStall

RULE = CheckpointStall()


def test_it_fires_on_checkpoints_that_hold_the_run() -> None:
    finding = RULE.check(build(checkpoint=(20, 6.0)))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "ModelCheckpoint"
    assert finding.advice.startswith("Save 20 times less often: for instance ModelCheckpoint(every_n_train_steps=400)")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(6000 * 0.95 / 400)


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(build()) is None


def test_it_is_quiet_without_checkpoints() -> None:
    assert RULE.check(build(checkpoint=(0, 0.0))) is None


def test_it_is_quiet_where_validation_holds_the_run() -> None:
    assert RULE.check(build(validation=(4, 9.0))) is None


def test_one_slow_checkpoint_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match=r"1 checkpoint took .* but 2 are needed"):
        RULE.check(build(checkpoint=(1, 6.0)))


@pytest.mark.parametrize(("total_s", "fires"), [(1.0, False), (1.2, True)])
def test_a_twentieth_of_the_wall_time_decides(total_s: float, fires: bool) -> None:
    metrics = build(checkpoint=(4, total_s))  # beside 21.05 s
    assert (RULE.check(metrics) is not None) is fires


def test_a_run_of_few_steps_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="steps were run"):
        RULE.check(build(steps=5, checkpoint=(4, 3.0)))


def test_the_cadence_that_is_set_is_the_one_to_change() -> None:
    finding = RULE.check(build(checkpoint=(20, 6.0), run={"trainer.checkpoint_every_n_epochs": 1}))
    assert finding is not None
    assert finding.advice.startswith("Save 20 times less often: ModelCheckpoint(every_n_epochs=20) instead of 1; or")
    assert "every_n_train_steps" not in finding.advice
    finding = RULE.check(build(checkpoint=(20, 6.0), run={"trainer.checkpoint_every_n_train_steps": 50}))
    assert finding is not None
    assert "ModelCheckpoint(every_n_train_steps=1000) instead of 50" in finding.advice


def test_what_is_on_already_is_not_advised() -> None:
    on = {"trainer.checkpoint_save_weights_only": True, "trainer.checkpoint_io": "AsyncCheckpointIO"}
    finding = RULE.check(build(checkpoint=(20, 6.0), run=on))
    assert finding is not None
    assert "save_weights_only" not in finding.advice
    assert "AsyncCheckpointIO" not in finding.advice
