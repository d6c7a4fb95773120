from __future__ import annotations

import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.loop.validation_stall import ValidationStall

RULE = ValidationStall()
TINY = {"forward": 0.2, "backward": 0.2, "optimizer": 0.1, "data_wait": 0.1, "zero_grad": 0.05, "loop": 0.1}


@pytest.mark.parametrize(("total_s", "fires"), [(4.9, False), (5.2, True)])
def test_a_fifth_of_the_wall_time_decides(total_s: float, fires: bool) -> None:
    metrics = build(validation=(4, total_s), checkpoint=(0, 0.0))  # 20.05 s of steps and gaps
    assert (RULE.check(metrics) is not None) is fires


def test_validation_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 5.0), checkpoint=(0, 0.0))
    finding = fired(RULE, metrics)
    assert finding.severity == "warning"
    assert diagnose(metrics).findings[0].rule == "validation-stall"
    assert diagnose(metrics).verdict.kind == "outside-steps"


def test_half_a_second_of_validation_beside_few_steps_is_not_enough_data() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 0.8), checkpoint=(0, 0.0))
    assert diagnose(metrics).verdict.kind == "not-enough-data"
    assert diagnose(metrics).findings == ()


def test_a_setting_of_the_run_is_replaced_not_set_a_second_time() -> None:
    """In a YAML, of two equal keys the last one would win."""
    metrics = build(
        validation=(16, 25.0), run={"trainer.val_check_interval": 0.25, "trainer.check_val_every_n_epoch": 1}
    )
    change = fired(RULE, metrics).change
    assert change is not None
    assert change.arguments["val_check_interval"] == 1.0
    assert change.before == {"val_check_interval": 0.25}
