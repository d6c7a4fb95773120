from __future__ import annotations

import lightning.pytorch.callbacks
import pytest
from metrics_builder import build, outliers, replace
from traced_builder import window

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.callback_slow import CallbackSlow

RULE = CallbackSlow()


def with_callback(
    cost_ms: float, *, name: str = "Slow", hook: str = "on_train_batch_end", lower: float = 0.98
) -> Metrics:
    return build(
        times_ms={"forward": 4.0, "backward": 5.0, "callbacks": cost_ms + 0.2},
        callbacks_ms={(name, hook): cost_ms, ("Quick", "on_train_batch_start"): 0.1},
        lower=lower,
    )


def test_it_names_class_and_hook_and_how_often_to_run_it() -> None:
    finding = RULE.check(with_callback(20.0))
    assert finding is not None
    assert finding.subject == "Slow.on_train_batch_end"
    assert finding.severity == "critical"
    assert finding.advice.startswith("Run Slow.on_train_batch_end every 54 batches: begin it with `if batch_idx % 54:")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(20.0)


def test_in_another_stage_it_counts_that_stage_s_batches() -> None:
    metrics = with_callback(20.0, hook="on_validation_batch_end")
    finding = RULE.check(replace(metrics, run={**metrics.run, "stage": "validate"}))
    assert finding is not None
    assert "if batch_idx % 54: return" in finding.advice
    assert "on_validation_epoch_end" in finding.advice


def test_the_arguments_in_a_state_key_are_left_out() -> None:
    finding = RULE.check(with_callback(20.0, name="EMA{'decay': 0.9}", hook="on_before_zero_grad"))
    assert finding is not None
    assert finding.subject == "EMA.on_before_zero_grad"
    assert "trainer.global_step % 54" in finding.advice


def test_a_callback_with_a_setting_of_its_own_is_told_by_it() -> None:
    finding = RULE.check(with_callback(5.0, name="TQDMProgressBar"))
    assert finding is not None
    assert "TQDMProgressBar(refresh_rate=" in finding.advice


@pytest.mark.parametrize(
    ("run", "setting"),
    [
        ({"trainer.checkpoint_every_n_train_steps": 2}, "every_n_train_steps=46"),
        ({"trainer.checkpoint_every_n_epochs": 1}, "every_n_epochs=23"),
        ({"trainer.checkpoint_train_time_interval_s": 60.0}, "train_time_interval=timedelta(minutes=23)"),
        ({}, "every_n_train_steps=23"),
    ],
)
def test_a_callback_of_lightning_is_told_by_its_argument_and_its_code_left_alone(
    run: dict[str, float], setting: str
) -> None:
    metrics = with_callback(5.0, name="ModelCheckpoint{'monitor': None}")
    finding = RULE.check(replace(metrics, run={**metrics.run, **run}))
    assert finding is not None
    assert finding.advice.startswith(f"Save less often: ModelCheckpoint({setting}).")
    assert "begin it with" not in finding.advice


@pytest.mark.parametrize(("not_of_lightning", "users"), [("GpuProfiler, Timer", True), ("GpuProfiler, Timers", False)])
def test_a_class_of_the_user_s_that_is_named_as_one_of_lightning_has_not_its_arguments(
    not_of_lightning: str, users: bool
) -> None:
    metrics = with_callback(5.0, name="Timer")
    run = {**metrics.run, "trainer.callbacks_not_of_lightning": not_of_lightning}
    finding = RULE.check(replace(metrics, run=run))
    assert finding is not None
    assert ("begin it with" in finding.advice) is users
    assert ("Timer(interval=" in finding.advice) is not users


def _callbacks_of_lightning() -> list[str]:
    """All but those that are there for code of the user's."""
    users = {"Callback", "Checkpoint", "LambdaCallback", "BaseFinetuning", "BasePredictionWriter", "ProgressBar"}
    return sorted(set(lightning.pytorch.callbacks.__all__) - users)


@pytest.mark.parametrize("name", _callbacks_of_lightning())
def test_no_code_of_lightning_is_to_be_edited(name: str) -> None:
    finding = RULE.check(with_callback(5.0, name=name))
    assert finding is not None
    assert "begin it with" not in finding.advice


def test_of_two_callbacks_of_a_class_it_says_which_and_knows_its_setting() -> None:
    finding = RULE.check(with_callback(5.0, name="TQDMProgressBar #2"))
    assert finding is not None
    assert finding.subject == "TQDMProgressBar #2.on_train_batch_end"
    assert "TQDMProgressBar(refresh_rate=" in finding.advice


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(build(callbacks_ms={("Quick", "on_train_batch_end"): 0.3})) is None


def test_it_is_quiet_where_the_step_waits_for_data() -> None:
    metrics = build(times_ms={"data_wait": 60.0}, callbacks_ms={("Quick", "on_train_batch_end"): 0.3})
    assert RULE.check(metrics) is None


@pytest.mark.parametrize(("lower", "fires"), [(0.0299, False), (0.0301, True)])
def test_the_lower_bound_decides(lower: float, fires: bool) -> None:
    metrics = with_callback(10.0)
    slow = replace(metrics.callback_shares[0], share=replace(metrics.callback_shares[0].share, lower_ratio=lower))
    assert (RULE.check(replace(metrics, callback_shares=(slow,), shares={})) is not None) is fires


def test_a_callback_that_works_every_third_batch_is_seen() -> None:
    metrics = with_callback(0.1)
    share = replace(metrics.callback_shares[0].share, total_ratio=0.2)
    metrics = replace(metrics, callback_shares=(replace(metrics.callback_shares[0], share=share),))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "warning"


def test_a_callback_that_stalls_rare_steps_is_left_to_the_outliers() -> None:
    metrics = with_callback(0.1)
    assert metrics.period_ms is not None
    stalls = outliers(count=8, stall_ms=300, phases="callbacks", steps=380, period_ms=metrics.period_ms)
    total_ratio = stalls.excess_ms / stalls.total_ms
    share = replace(metrics.callback_shares[0].share, total_ratio=total_ratio)
    metrics = replace(metrics, callback_shares=(replace(metrics.callback_shares[0], share=share),), outliers=stalls)
    assert RULE.check(metrics) is None


def test_hooks_of_the_module_itself_are_told_from_callbacks() -> None:
    metrics = build(
        times_ms={"callbacks": 30.0}, callbacks_ms={("Quick", "on_train_batch_end"): 0.3}, run={"model.class": "Net"}
    )
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.subject == "Net"
    assert "hooks of Net itself" in finding.summary
    assert finding.confidence < 0.95


def test_too_few_steady_steps_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="steady steps"):
        RULE.check(build(steady=3))


def test_a_dear_callback_hides_no_other() -> None:
    metrics = build(
        times_ms={"callbacks": 30.0},
        callbacks_ms={("Slow", "on_train_batch_end"): 20.0, ("AlsoSlow", "on_train_batch_start"): 10.0},
    )
    finding = RULE.check(metrics)
    assert finding is not None
    assert "AlsoSlow" in finding.summary


def on_device(idle: float | None) -> Metrics:
    """A hook that takes 83 of 100 ms on a GPU, and what of the step the device idles while the host is in it."""
    metrics = build(
        times_ms={"callbacks": 83.0, "forward": 5.0, "backward": 4.4},
        callbacks_ms={("TQDMProgressBar", "on_train_batch_end"): 83.0},
        run={"device.type": "cuda"},
    )
    if idle is None:
        return metrics
    period_ms = metrics.period_ms or 0.0
    causes = {"callbacks": idle, "launch": 0.3}
    return replace(metrics, windows=(window(period_ms=period_ms, causes=causes, host_ms={"callbacks": 83.0}),))


def test_on_a_device_waiting_for_it_is_no_cost_of_a_callback() -> None:
    assert RULE.check(on_device(0.02)) is None
    finding = RULE.check(on_device(0.15))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.explains == claims.WAITS_OF_THE_PROGRESS_BAR
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(15, rel=0.05)


def test_without_a_window_a_callback_on_a_device_is_information_only() -> None:
    finding = RULE.check(on_device(None))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == 0
