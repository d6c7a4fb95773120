"""Callbacks by their class, and the argument that makes one of Lightning's own work less often, as text and change."""

from __future__ import annotations

import math

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import condition, possible

_SETTINGS: dict[str, tuple[str, str, Value]] = {
    "TQDMProgressBar": ("Refresh it less often", "refresh_rate", None),
    "RichProgressBar": ("Refresh it less often", "refresh_rate", None),
    "LearningRateMonitor": ("Log once per epoch", "logging_interval", "epoch"),
    "EMAWeightAveraging": ("Update the average less often", "update_every_n_steps", None),
    "EarlyStopping": ("Check once per validation", "check_on_train_epoch_end", False),
    "Timer": ("Check the time once per epoch", "interval", "epoch"),
}
"""What to do, the argument, and its value; None: how many times less often."""

_TO_LEAVE_OUT = frozenset(
    (
        "BackboneFinetuning",
        "BatchSizeFinder",
        "DeviceStatsMonitor",
        "GradientAccumulationScheduler",
        "LearningRateFinder",
        "ModelPruning",
        "ModelSummary",
        "OnExceptionCheckpoint",
        "RichModelSummary",
        "SpikeDetection",
        "StochasticWeightAveraging",
        "WeightAveraging",
    )
)


def own_setting(metrics: Metrics, owner: str, every: int) -> tuple[str, Change] | None:
    """How to have one of Lightning's own callbacks work less often: in words and as a change; None for the user's.

    Args:
        metrics: Has the settings of the run, and which callbacks are not Lightning's though named as one of them.
        owner: Class of the callback; what tells two of a class apart follows a space.
        every: How many times less often.
    """
    name = owner.partition(" ")[0].partition(".")[0]
    if name in str(condition(metrics, "trainer.callbacks_not_of_lightning") or "").split(", "):
        return None
    if name in _TO_LEAVE_OUT:
        why = "the profiler samples devices already" if name == "DeviceStatsMonitor" else "it has no setting for less"
        return f"Leave {name} out where the run has to be fast: {why}.", Change(remove=(f"{name}(...)",))
    if name == "ModelCheckpoint":
        words, change = "Save less often", checkpoint_change(metrics, every, otherwise=every)
    elif name == "ThroughputMonitor":
        words, change = "Log less often", logging_change(metrics, every)
    elif name in _SETTINGS:
        words, argument, value = _SETTINGS[name]
        change = Change(call=name, arguments={argument: every if value is None else value})
    else:
        return None
    return f"{words}: {change.added[0]}.", change


def logging_change(metrics: Metrics, rarer: int) -> Change:
    """A trainer that logs this many times less often.

    Args:
        metrics: Metrics of the run.
        rarer: How many times less often.
    """
    now = condition(metrics, "trainer.log_every_n_steps")
    known = isinstance(now, int) and now > 0
    every = now if isinstance(now, int) and known else 50  # Lightning's default
    before: dict[str, Value] = {"log_every_n_steps": every} if known else {}
    return Change(call="Trainer", arguments={"log_every_n_steps": every * rarer}, before=before)


def checkpoint_change(metrics: Metrics, rarer: int, *, otherwise: int) -> Change:
    """A ModelCheckpoint that saves this many times less often, by the cadence that is set.

    Args:
        metrics: The run.
        rarer: How many times.
        otherwise: Steps between two checkpoints where no cadence is known.
    """
    for name in ("every_n_epochs", "every_n_train_steps"):
        now = condition(metrics, f"trainer.checkpoint_{name}")
        if isinstance(now, int) and now > 0:
            return Change(call="ModelCheckpoint", arguments={name: now * rarer}, before={name: now})
    interval_s = condition(metrics, "trainer.checkpoint_train_time_interval_s")
    if isinstance(interval_s, (int, float)) and possible(interval_s) and interval_s > 0:  # it excludes the others
        minutes = math.ceil(interval_s * rarer / 60)
        return Change(add=(f"ModelCheckpoint(..., train_time_interval=timedelta(minutes={minutes}))",))
    return Change(call="ModelCheckpoint", arguments={"every_n_train_steps": otherwise})
