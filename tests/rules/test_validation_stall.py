from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.loop.validation_stall import ValidationStall

RULE = ValidationStall()
TINY = {"forward": 0.2, "backward": 0.2, "optimizer": 0.1, "data_wait": 0.1, "zero_grad": 0.05, "loop": 0.1}


def test_it_fires_where_validation_holds_the_run() -> None:
    finding = RULE.check(build(times_ms=TINY, validation=(4, 3.0), checkpoint=(0, 0.0)))
    assert finding is not None
    assert finding.severity == "critical"
    assert "4 validation runs took 3.00 s" in finding.summary
    assert "Trainer(check_val_every_n_epoch=4)" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3000 * 0.75 / 400)


def test_it_starts_from_the_setting_of_the_run() -> None:
    finding = RULE.check(build(times_ms=TINY, validation=(4, 3.0), run={"trainer.check_val_every_n_epoch": 2}))
    assert finding is not None
    assert "every 8 epochs instead of every 2 epochs" in finding.advice


def test_several_runs_per_epoch_are_told_by_the_interval() -> None:
    finding = RULE.check(build(times_ms=TINY, validation=(400, 3.0), epochs=4))
    assert finding is not None
    assert "Trainer(val_check_interval=0.1)" in finding.advice


@pytest.mark.parametrize(("total_s", "fires"), [(4.9, False), (5.2, True)])
def test_a_fifth_of_the_wall_time_decides(total_s: float, fires: bool) -> None:
    metrics = build(validation=(4, total_s), checkpoint=(0, 0.0))  # 20.05 s of steps and gaps
    assert (RULE.check(metrics) is not None) is fires


@pytest.mark.parametrize(("total_s", "severity"), [(13.0, "warning"), (14.0, "critical")])
def test_less_than_two_fifths_are_at_most_a_warning(total_s: float, severity: str) -> None:
    finding = RULE.check(build(validation=(4, total_s), checkpoint=(0, 0.0)))  # 20.05 s of steps and gaps
    assert finding is not None
    assert finding.severity == severity


def test_an_interval_over_all_epochs_is_raised_itself() -> None:
    run = {"trainer.check_val_every_n_epoch": None, "trainer.val_check_interval": 1000}
    finding = RULE.check(build(times_ms=TINY, validation=(4, 3.0), run=run))
    assert finding is not None
    assert finding.advice.startswith(
        "Validate every 4,000 batches instead of every 1,000: Trainer(val_check_interval=4000, "
        "check_val_every_n_epoch=None)"
    )
    finding = RULE.check(build(times_ms=TINY, validation=(400, 3.0), run=run))
    assert finding is not None
    assert "check_val_every_n_epoch=None" in finding.advice
    finding = RULE.check(build(times_ms=TINY, validation=(4, 3.0), run={**run, "trainer.val_check_interval": "1:00"}))
    assert finding is not None
    assert "Trainer(val_check_interval=...)" in finding.advice


def test_validation_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 5.0), checkpoint=(0, 0.0))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "warning"
    assert diagnose(metrics).findings[0].rule == "validation-stall"
    assert diagnose(metrics).verdict.kind == "outside-steps"


def test_half_a_second_of_validation_beside_few_steps_is_not_enough_data() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 0.8), checkpoint=(0, 0.0))
    assert diagnose(metrics).verdict.kind == "not-enough-data"
    assert diagnose(metrics).findings == ()
