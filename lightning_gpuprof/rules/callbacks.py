"""Callbacks by their class, and the argument that makes one of Lightning's own work less often, as text and change."""

import math

from lightning_gpuprof.model.numbers import millis, percent, round_number
from lightning_gpuprof.rules.base import Change, Metrics, Value, counted

LOG_EVERY = 50
"""Lightning's default of ``log_every_n_steps``."""

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
    """How to have one of Lightning's own callbacks work less often: in words and as a change.

    Args:
        metrics: Has the settings of the run, and which callbacks are not Lightning's though named as one of them.
        owner: Class of the callback; what tells two of a class apart follows a space.
        every: How many times less often.

    Returns:
        Words with their full stop. None for the user's, and where no setting is known.
    """
    name = owner.partition(" ")[0].partition(".")[0]
    if name in str(metrics.condition("trainer.callbacks_not_of_lightning") or "").split(", "):
        return None
    if name in _TO_LEAVE_OUT:
        why = "the profiler samples devices already" if name == "DeviceStatsMonitor" else "it has no setting for less"
        return f"Leave {name} out of runs that have to be fast: {why}.", Change(remove=(f"{name}(...)",))
    if name == "ModelCheckpoint":
        words, change = "Save less often", checkpoint_change(metrics, every, otherwise=every)
    elif name == "ThroughputMonitor":
        rarer = logging_change(metrics, every)
        if rarer is None:
            return f"Leave {name} out of runs as short as this one.", Change(remove=(f"{name}(...)",))
        words, change = "Log less often", rarer
    elif name in _SETTINGS:
        words, argument, value = _SETTINGS[name]
        change = Change(call=name, arguments={argument: every if value is None else value})
    else:
        return None
    return f"{words}: {change.added[0]}.", change


def most_every(metrics: Metrics, steps: int) -> int:
    """Steps between two of what happens now and then: at most half of the run, in which it then happens twice.

    Args:
        metrics: Metrics of the run.
        steps: What would be best in a long run; it is rounded up.

    Returns:
        At least 2; above ten a round number.
    """
    return max(2, min(round_number(steps), round_number(max(1, metrics.steps.optimizer_steps // 2), down=True)))


def why_every(metrics: Metrics, every: int, best: float, left_ms: float, wanted_ratio: float) -> str:
    """The reason for a number of steps: what is left then, or that a longer interval would not fit the run.

    Args:
        metrics: Metrics of the run.
        every: As of :func:`most_every`.
        best: What would be best in a long run.
        left_ms: Left of each step on average.
        wanted_ratio: Of the step, that it may cost.

    Returns:
        One sentence with its full stop.
    """
    left = f"Why {every}: that leaves {millis(left_ms)} per step"
    if every >= best:
        return f"{left}, about {percent(wanted_ratio)} of it."
    return f"{left}; with a longer interval it would not run twice in {metrics.steps.optimizer_steps:,} steps."


def logging_change(metrics: Metrics, rarer: int) -> Change | None:
    """A trainer that logs up to this many times less often.

    Args:
        metrics: Metrics of the run.
        rarer: How many times less often.

    Returns:
        None if the run is too short for values to be written less often and more than once.
    """
    now = metrics.positive("trainer.log_every_n_steps")
    every = now or LOG_EVERY
    before: dict[str, Value] = {"log_every_n_steps": now} if now else {}
    then = most_every(metrics, every * rarer)
    return Change(call="Trainer", arguments={"log_every_n_steps": then}, before=before) if then > every else None


def checkpoint_change(metrics: Metrics, rarer: int, *, otherwise: int) -> Change:
    """A ModelCheckpoint that saves about this many times less often, by its cadence, and once in the run at least.

    The last one is near the end of the run.

    Args:
        metrics: The run.
        rarer: How many times.
        otherwise: Steps between two checkpoints where no cadence is known.

    Returns:
        Steps or epochs are an argument, an interval in time is a line to add.
    """
    for name, most in _lengths(metrics).items():
        now = metrics.positive(f"trainer.checkpoint_{name}")
        if now:
            then = _to_the_end(min(round_number(now * rarer), round_number(max(1, most), down=True)), most)
            arguments: dict[str, Value] = {name: then if then > now else 2 * now}
            return Change(call="ModelCheckpoint", arguments=arguments, before={name: now})
    interval_s = metrics.number("trainer.checkpoint_train_time_interval_s")
    if interval_s:  # it excludes the others
        then_s = math.ceil(min(interval_s * rarer, max(2 * interval_s, metrics.wall.total_s)))
        delta = f"minutes={math.ceil(then_s / 60)}" if then_s >= 120 else f"seconds={then_s}"
        return Change(add=(f"ModelCheckpoint(..., train_time_interval=timedelta({delta}))",))
    most = metrics.steps.optimizer_steps
    then = _to_the_end(min(round_number(otherwise), round_number(max(1, most), down=True)), most)
    return Change(call="ModelCheckpoint", arguments={"every_n_train_steps": then})


def _to_the_end(every: int, most: int) -> int:
    """A cadence that leaves at most a tenth of the run without a checkpoint at its end, as often as the one given."""
    return every if not 0 < every <= most or most % every <= most // 10 else most // (most // every)


def lost_by_a_crash(metrics: Metrics, change: Change, count: int) -> str:
    """What a crash costs with rarer checkpoints: ``can lose up to 150 steps instead of 20``.

    Args:
        metrics: The run.
        change: As :func:`checkpoint_change` has it.
        count: How many checkpoints the run has now.

    Returns:
        A predicate without its full stop; without numbers if the change is one of time.
    """
    for name, unit in (("every_n_train_steps", "step"), ("every_n_epochs", "epoch")):
        then = change.arguments.get(name)
        if isinstance(then, int):
            now = change.before.get(name)
            known = f"{now:,}" if isinstance(now, int) else f"about {max(1, metrics.steps.optimizer_steps // count):,}"
            return f"can lose up to {counted(then, unit)} instead of {known}"
    return "loses more work"


def checkpoints_after(metrics: Metrics, change: Change, count: int, rarer: int) -> int:
    """How many checkpoints the run has with the change, if it writes as many at a time as now.

    Args:
        metrics: The run.
        change: As :func:`checkpoint_change` has it.
        count: How many it has now.
        rarer: How many times less often it was meant to save.

    Returns:
        0: the run would end before the first.
    """
    for name, most in _lengths(metrics).items():
        now, then = change.before.get(name), change.arguments.get(name)
        if isinstance(then, int):
            times = most // now if isinstance(now, int) else count
            return round(count / max(1, times) * (most // max(1, then)))
    return math.ceil(count / rarer)


def _lengths(metrics: Metrics) -> dict[str, int]:
    """What a cadence counts, and how much of that the run has."""
    return {"every_n_epochs": len(metrics.epoch_starts), "every_n_train_steps": metrics.steps.optimizer_steps}
