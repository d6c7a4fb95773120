"""Callbacks by their class, and the argument that makes one that Lightning brings along work less often.

Its code is no place for an edit: what its user can change is how it is made.
"""

from __future__ import annotations

import math

from lightning_gpuprof.model.metrics import CallbackShare, Metrics
from lightning_gpuprof.rules.base import condition, possible

_SETTINGS: dict[str, str] = {
    "TQDMProgressBar": "refresh it less often: TQDMProgressBar(refresh_rate={every})",
    "RichProgressBar": "refresh it less often: RichProgressBar(refresh_rate={every})",
    "DeviceStatsMonitor": "leave DeviceStatsMonitor out: the devices are sampled here already, beside the training",
    "LearningRateMonitor": 'log once per epoch: LearningRateMonitor(logging_interval="epoch")',
    "ModelCheckpoint": "save less often: ModelCheckpoint({checkpoint})",
    "EMAWeightAveraging": "update the average less often: EMAWeightAveraging(update_every_n_steps={every})",
    "EarlyStopping": "check once per validation: EarlyStopping(check_on_train_epoch_end=False)",
    "Timer": 'look at the clock once per epoch: Timer(interval="epoch")',
    "ThroughputMonitor": "log less often: Trainer(log_every_n_steps={logged})",
}
"""Those with an argument for this."""

_WITHOUT_SETTING = frozenset(
    (
        "BackboneFinetuning",
        "BatchSizeFinder",
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


def class_name(callback: CallbackShare) -> str:
    """The class of a callback, and what tells it from another of its class; the state key may go on in braces."""
    return callback.name.split("{", 1)[0]


def own_setting(metrics: Metrics, owner: str, every: int) -> str | None:
    """How to have one of Lightning's own callbacks work every so many batches; None for one of the user's.

    Args:
        metrics: Has the settings of the run, and which callbacks are not Lightning's though named as one of them.
        owner: Class of the callback; what tells two of a class apart follows a space.
        every: How many times less often.
    """
    name = owner.partition(" ")[0].partition(".")[0]
    if name in str(condition(metrics, "trainer.callbacks_not_of_lightning") or "").split(", "):
        return None
    if name in _WITHOUT_SETTING:
        return f"leave {name} out where the run has to be fast: it has no argument for how often it works"
    return _SETTINGS[name].format(every=every, **_cadences(metrics, every)) if name in _SETTINGS else None


def _cadences(metrics: Metrics, every: int) -> dict[str, str]:
    logged = condition(metrics, "trainer.log_every_n_steps")
    found = {"logged": str((logged if isinstance(logged, int) and logged > 0 else 50) * every)}
    for name in ("every_n_train_steps", "every_n_epochs"):
        now = condition(metrics, f"trainer.checkpoint_{name}")
        if isinstance(now, int) and now > 0:
            return found | {"checkpoint": f"{name}={now * every}"}
    interval_s = condition(metrics, "trainer.checkpoint_train_time_interval_s")
    if isinstance(interval_s, (int, float)) and possible(interval_s) and interval_s > 0:  # it excludes the others
        minutes = math.ceil(interval_s * every / 60)
        return found | {"checkpoint": f"train_time_interval=timedelta(minutes={minutes})"}
    return found | {"checkpoint": f"every_n_train_steps={every}"}
