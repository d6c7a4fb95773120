from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.checkpoint_stall import CheckpointStall
from lightning_gpuprof.rules.verdict import decide

RULE = CheckpointStall()


def test_it_fires_on_checkpoints_that_hold_the_run() -> None:
    finding = RULE.check(build(checkpoint=(20, 6.0)))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "ModelCheckpoint"
    assert finding.advice.startswith("Save 20 times less often: for instance ModelCheckpoint(every_n_train_steps=400)")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(6000 * 0.95 / 400)


def test_a_checkpoint_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(0, 0.0), checkpoint=(1, 3.0))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary.startswith("1 checkpoint took 3.00 s of 3.41 s (88 %)")
    verdict = decide(metrics)
    assert (verdict.kind, verdict.runner_up) == ("outside-steps", "")
    assert "88 % of the run lies outside the steps: checkpoints 3.00 s" in verdict.summary


def test_a_single_checkpoint_is_advised_no_number_that_cannot_be() -> None:
    few = {"steps": 8, "steady": 0, "epochs": 1, "validation": (0, 0.0)}
    finding = RULE.check(build(**few, checkpoint=(1, 3.0), run={"trainer.checkpoint_every_n_train_steps": 6}))
    assert finding is not None
    assert "every_n" not in finding.advice
    assert "times" not in finding.advice
    assert finding.advice.startswith("Save less: ModelCheckpoint(save_weights_only=True); or beside the training:")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3000 / 8)
    assert finding.gain.saved_lower_ms_per_step == 0.0


@pytest.mark.parametrize(("total_s", "told"), [(1.0, False), (8.2, False), (8.6, True)])
def test_one_checkpoint_beside_a_long_validation_is_not_judged(total_s: float, told: bool) -> None:
    metrics = build(steps=6, steady=0, epochs=1, validation=(1, 8.0), checkpoint=(1, total_s))  # beside 8.3 s
    if told:
        assert RULE.check(metrics) is not None
    else:
        with pytest.raises(MissingSignal, match="1 checkpoint took"):
            RULE.check(metrics)


def test_one_checkpoint_that_takes_a_moment_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="1 checkpoint took"):
        RULE.check(build(steps=12, steady=10, epochs=1, validation=(0, 0.0), checkpoint=(1, 0.9)))


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


def test_checkpoints_by_time_are_saved_at_longer_times() -> None:
    finding = RULE.check(build(checkpoint=(20, 6.0), run={"trainer.checkpoint_train_time_interval_s": 60.0}))
    assert finding is not None
    assert "ModelCheckpoint(train_time_interval=timedelta(minutes=20))" in finding.advice
    assert "every_n_train_steps" not in finding.advice
