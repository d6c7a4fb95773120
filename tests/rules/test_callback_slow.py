import lightning.pytorch.callbacks
import pytest
from findings_builder import fired
from metrics_builder import build, outliers, replace, share
from traced_builder import window

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.loop.callback_slow import CallbackSlow
from lightning_gpuprof.trial.arms import rarer_hook

RULE = CallbackSlow()


def with_callback(
    cost_ms: float, *, name: str = "Slow", hook: str = "on_train_batch_end", lower: float = 0.98
) -> Metrics:
    return build(
        times_ms={"forward": 4.0, "backward": 5.0, "callbacks": cost_ms + 0.2},
        callbacks_ms={(name, hook): cost_ms, ("Quick", "on_train_batch_start"): 0.1},
        lower=lower,
    )


@pytest.mark.parametrize(
    ("run", "setting"),
    [
        ({"trainer.checkpoint_every_n_train_steps": 2}, "every_n_train_steps=50"),
        ({"trainer.checkpoint_every_n_train_steps": 20}, "every_n_train_steps=400"),  # the whole run, not 500
        ({"trainer.checkpoint_every_n_epochs": 1}, "every_n_epochs=4"),  # it has four
        ({"trainer.checkpoint_train_time_interval_s": 0.1}, "train_time_interval=timedelta(seconds=3)"),
        ({}, "every_n_train_steps=25"),
    ],
)
def test_a_callback_of_lightning_is_told_by_its_argument_and_its_code_left_alone(
    run: dict[str, float], setting: str
) -> None:
    metrics = with_callback(5.0, name="ModelCheckpoint{'monitor': None}")
    finding = fired(RULE, replace(metrics, run={**metrics.run, **run}))
    assert finding.advice.startswith(f"Save less often: ModelCheckpoint(..., {setting}).")
    assert "begin" not in finding.advice


@pytest.mark.parametrize(("not_of_lightning", "users"), [("GpuProfiler, Timer", True), ("GpuProfiler, Timers", False)])
def test_a_class_of_the_user_s_that_is_named_as_one_of_lightning_has_not_its_arguments(
    not_of_lightning: str, users: bool
) -> None:
    metrics = with_callback(5.0, name="Timer")
    run = {**metrics.run, "trainer.callbacks_not_of_lightning": not_of_lightning}
    finding = fired(RULE, replace(metrics, run=run))
    assert ("begin" in finding.advice) is users
    assert ("Timer(..., interval=" in finding.advice) is not users


def _callbacks_of_lightning() -> list[str]:
    """All but those that are there for code of the user's."""
    users = {"Callback", "Checkpoint", "LambdaCallback", "BaseFinetuning", "BasePredictionWriter", "ProgressBar"}
    return sorted(set(lightning.pytorch.callbacks.__all__) - users)


@pytest.mark.parametrize("name", _callbacks_of_lightning())
def test_no_code_of_lightning_is_to_be_edited(name: str) -> None:
    assert "begin" not in fired(RULE, with_callback(5.0, name=name)).advice


def test_the_line_by_which_it_runs_rarely_is_one_that_can_be_tried() -> None:
    change = fired(RULE, with_callback(5.0)).change
    [line] = change.add
    every = int(line.partition(" % ")[2].partition(":")[0])
    assert every > 1
    assert rarer_hook(line) == ("Slow", "on_train_batch_end", every)


@pytest.mark.parametrize(("lower", "fires"), [(0.0299, False), (0.0301, True)])
def test_the_lower_bound_decides(lower: float, fires: bool) -> None:
    metrics = with_callback(10.0)
    slow = replace(metrics.callback_shares[0], share=replace(metrics.callback_shares[0].share, lower_ratio=lower))
    assert (RULE.check(replace(metrics, callback_shares=(slow,), shares={})) is not None) is fires


def test_a_callback_that_works_every_third_batch_is_seen() -> None:
    metrics = with_callback(0.1)
    share = replace(metrics.callback_shares[0].share, total_ratio=0.2)
    metrics = replace(metrics, callback_shares=(replace(metrics.callback_shares[0], share=share),))
    assert fired(RULE, metrics).severity == "warning"


def test_a_callback_that_stalls_rare_steps_is_left_to_the_outliers() -> None:
    metrics = with_callback(0.1)
    assert metrics.period_ms is not None
    stalls = outliers(count=8, stall_ms=300, phases="callbacks", steps=380, period_ms=metrics.period_ms)
    total_ratio = stalls.excess_ms / stalls.total_ms
    share = replace(metrics.callback_shares[0].share, total_ratio=total_ratio)
    metrics = replace(metrics, callback_shares=(replace(metrics.callback_shares[0], share=share),), outliers=stalls)
    assert RULE.check(metrics) is None


@pytest.mark.parametrize(
    ("of_run", "certain_of_run", "usual_ms", "fires"),
    [
        (0.102, 0.08, 0.01, True),  # a sleep of 0.3 s every 10th batch
        (0.102, 0.02, 0.01, False),  # two accidents
        (0.102, 0.08, 0.3, False),  # pauses in proportion to what it usually takes
    ],
)
def test_a_callback_of_few_steps_is_seen_where_other_programs_have_the_cpus(
    of_run: float, certain_of_run: float, usual_ms: float, fires: bool
) -> None:
    metrics = with_callback(usual_ms)
    slow = next(one for one in metrics.callback_shares if one.name == "Slow")
    found = replace(slow.share, total_ratio=of_run, total_lower_ratio=certain_of_run)
    delay = share(0.55 * metrics.step_ms, metrics.step_ms)
    crowded = replace(
        metrics,
        callback_shares=(replace(slow, share=found),),
        cpu=replace(metrics.cpu, run_delay=delay, run_delay_ratio=0.55),
    )
    assert (RULE.check(crowded) is not None) is fires
    if fires:
        kept = 1 / 8  # that work 8 times less often
        gain = fired(RULE, crowded).gain
        assert gain.saved_ms_per_step == pytest.approx((1 - kept) * certain_of_run * metrics.step_ms)


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
    finding = fired(RULE, on_device(0.15))
    assert finding.severity == "warning"
    assert finding.explains == claims.WAITS_OF_THE_PROGRESS_BAR
    assert finding.gain.saved_ms_per_step == pytest.approx(15, rel=0.05)


@pytest.mark.parametrize(("steps", "every"), [(400, 30), (40, 20)])
def test_no_cadence_is_longer_than_half_the_run(steps: int, every: int) -> None:
    costs = {"times_ms": {"callbacks": 20.0}, "callbacks_ms": {("Slow", "on_train_batch_end"): 20.0}}
    assert f"Run it every {every} batches" in fired(RULE, build(**costs, steps=steps)).advice
