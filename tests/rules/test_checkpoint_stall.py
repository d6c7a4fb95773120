import pytest
from findings_builder import fired
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.checkpoint_stall import CheckpointStall
from lightning_gpuprof.rules.verdict import decide

RULE = CheckpointStall()


def test_a_checkpoint_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(0, 0.0), checkpoint=(1, 3.0))
    finding = fired(RULE, metrics)
    assert finding.severity == "warning"
    assert finding.summary.startswith("1 checkpoint was written: 3.00 s, 88 % of the training time (setup excluded).")
    verdict = decide(metrics)
    assert (verdict.kind, verdict.runner_up) == ("outside-steps", "")
    assert "88 % of the run is spent outside the steps: checkpoints 3.00 s" in verdict.summary


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


@settings(max_examples=200, deadline=None, derandomize=True)
@given(every=st.integers(1, 400), steps=st.integers(100, 5000), each_s=st.floats(1e-3, 1.0), twice=st.booleans())
def test_advice_that_was_followed_silences_the_rule(every: int, steps: int, each_s: float, twice: bool) -> None:
    """``twice``: each time ``last.ckpt`` is written as well."""

    def saving(every: int) -> Metrics:
        count = (1 + twice) * (steps // every)
        run: dict[str, Value] = {"trainer.checkpoint_every_n_train_steps": every}
        return build(steps=steps, epochs=1, validation=(0, 0.0), checkpoint=(count, count * each_s), run=run)

    metrics = saving(every)
    found = RULE.check(metrics) if metrics.checkpoint.count >= 2 else None
    if found is None or found.change is None:
        return
    then = found.change.arguments["every_n_train_steps"]
    assert isinstance(then, int)
    assert every < then <= steps
    is_round = then <= 10 or str(then).rstrip("0") in {"1", "12", "15", "2", "25", "3", "4", "5", "6", "8"}
    assert is_round or then == steps // (steps // then)
    assert then == 2 * every or steps % then <= steps // 10, "the last steps would not be saved"
    assert f"can lose up to {then:,} steps instead of {every:,}." in found.advice
    after = saving(then)
    left = f"{after.checkpoint.count:,} checkpoint{'s' if after.checkpoint.count > 1 else ''} in the run"
    assert f"Remaining cost: {left}" in found.advice or "1 checkpoint in the run" in found.advice
    assert ("1 checkpoint in the run" in found.advice) is (after.checkpoint.count == 1)
    if steps // then > 1:
        assert RULE.check(after) is None
    saved_s = metrics.checkpoint.total_s - after.checkpoint.total_s
    assert found.gain.saved_ms_per_step == pytest.approx(saved_s * 1e3 / steps)
