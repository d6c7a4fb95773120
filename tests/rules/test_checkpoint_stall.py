from __future__ import annotations

import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.checkpoint_stall import CheckpointStall
from lightning_gpuprof.rules.verdict import decide

RULE = CheckpointStall()


def test_a_checkpoint_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(0, 0.0), checkpoint=(1, 3.0))
    finding = fired(RULE, metrics)
    assert finding.severity == "warning"
    assert finding.summary.startswith("1 checkpoint took 3.00 s of the 3.41 s after set-up (88 %)")
    verdict = decide(metrics)
    assert (verdict.kind, verdict.runner_up) == ("outside-steps", "")
    assert "88 % of the run lies outside the steps: checkpoints 3.00 s" in verdict.summary


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
