"""Single numbers of a run that analyses and rules ask for; what was not measured is None or raises MissingSignal."""

import math

from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.finding import MIN_STEPS as MIN_STEPS
from lightning_gpuprof.model.metrics import MOSTLY_OUTSIDE_RATIO as MOSTLY_OUTSIDE_RATIO
from lightning_gpuprof.model.metrics import OUTSIDE_PARTS as OUTSIDE_PARTS
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.missing import require_possible as require_possible
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.model.share import Share, usable

_PERIODIC_FACTOR = 1.5
"""Total over median from which something happens only every few steps. Heuristic."""

_AROUND_MODEL: tuple[Phase, ...] = ("data_wait", "sync", "callbacks", "logging")
"""Phases in which a device may idle for reasons that are not the model's."""

_MAX_DELAYED_RATIO = 0.95
"""Waiting for a CPU beyond which nothing is certain. Heuristic."""

FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers of torch with `fused=True`, also on a CPU."""

FOREACH = frozenset({"NAdam", "RAdam", "RMSprop", "Adadelta", "Adamax", "ASGD", "Rprop"})
"""The others that have `foreach=True`, which is their default on a GPU."""


def machine_busy_ratio(metrics: Metrics) -> float | None:
    """Mean use of all CPUs of the machine, by this run and by others, 0 to 1; None: not measured."""
    machine = metrics.host.machine
    return machine.cpu_busy_ratio.mean if machine is not None and machine.cpu_busy_ratio is not None else None


def device_step(metrics: Metrics) -> DeviceStep | None:
    """What the busiest device does in an untraced step; None on a CPU, and if neither windows nor NVML show it."""
    return metrics.device_step if isinstance(metrics.device_step, DeviceStep) else None


def device_idle_ratio(metrics: Metrics) -> float | None:
    """Share of an untraced step in which the busiest device has no work.

    Returns:
        0 to 1; None if no trace window shows it: NVML's utilization alone only bounds it from below.
    """
    step = device_step(metrics)
    return None if step is None or step.window is None else step.idle_ratio


def idle_in_model_ratio(metrics: Metrics, step: DeviceStep) -> float:
    """Share of the step in which the device idles, without that in phases around the model.

    Args:
        metrics: The run.
        step: Its device's step.

    Returns:
        At least so much, 0 to 1.

    Raises:
        MissingSignal: No window shows it, and such a phase was not measured either.
    """
    if step.window is not None:
        return step.starved_ratio
    return max(0.0, step.idle_ratio - sum(metrics.share_of(phase).median_ratio for phase in _AROUND_MODEL))


def step_idle_ratio(metrics: Metrics) -> float | None:
    """Share of a step in which the device has no work, 1 on a CPU; None if no trace window shows it."""
    return 1.0 if metrics.is_cpu_only else device_idle_ratio(metrics)


def rank_wait_ratio(metrics: Metrics) -> float | None:
    """Share of a step in which the device of this rank can wait for another one: it is idle, or only communicates.

    Returns:
        0 to 1; None on a CPU, or if no trace window shows it.
    """
    step = device_step(metrics)
    if step is None or step.window is None or step.window.results.communication is None:
        return None
    return min(1.0, step.idle_ratio + step.exposed_communication_ratio)


def waits_longer_ms(metrics: Metrics) -> float | None:
    """Than the rank that waits least, because that one comes later; None: nothing is known of the other ranks."""
    rank, ranks = metrics.condition("rank"), metrics.ranks
    return ranks.waits_longer_ms(rank) if isinstance(ranks, RankTimes) and isinstance(rank, int) else None


def capability(metrics: Metrics) -> float | None:
    """Compute capability of the NVIDIA device, ``8.6``; None if it is not known."""
    value = metrics.condition("device.capability")
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def mixed_precision(metrics: Metrics) -> bool | None:
    """Whether the trainer computes in half precision; None if its precision is not known."""
    precision = metrics.condition("trainer.precision")
    return None if precision is None else "16" in str(precision) or "transformer-engine" in str(precision)


def can_fuse(metrics: Metrics) -> bool | None:
    """Whether the optimizer takes `fused=True`; None: which it is is not known."""
    kind = metrics.condition("model.optimizer")
    return None if kind is None else kind in FUSED and not clipping_excludes_fused(metrics)


def clipping_excludes_fused(metrics: Metrics) -> bool:
    """Whether Lightning would refuse to clip the gradients of a fused optimizer, which unscales them itself."""
    scaled = str(metrics.condition("trainer.precision") or "").startswith("16")
    return scaled and bool(metrics.condition("trainer.gradient_clip_val"))


def ordinary_ratio(metrics: Metrics, share: Share, phase: Phase) -> float:
    """Share that something takes of ordinary steps, also if it happens only every few steps.

    A median does not see what happens in fewer than half of the steps; the total does, but it also holds what rare,
    very long steps take, which ``step-outliers`` explains. So this is the lower bound of the median, unless the total
    without the outliers' excess is well above the median: then it is that. Only the lower bound if outliers could not
    be found (fewer than 50 steps).

    A thread that loses its CPU now and then loses it in the middle of anything: the total of every phase then holds
    waiting for a CPU, by the share of the step time in which that happens, and a median does not. A total is well above
    the median only if it is so beyond that, and without all of that waiting.

    Args:
        metrics: The run.
        share: Of what happens.
        phase: That it is part of.

    Returns:
        A ratio of the step time, not below that lower bound.
    """
    outliers = metrics.outliers
    if outliers is None or not outliers.total_ms > 0:
        return share.lower_ratio
    excess_ratio = outliers.excess_by_phase_ms.get(phase, 0.0) / outliers.total_ms
    delay = metrics.cpu.run_delay
    waited_ratio = delay.total_ratio if delay is not None and usable(delay) else 0.0
    without_outliers = share.total_ratio - excess_ratio - waited_ratio  # all of the waiting may be in this phase
    with_delays = share.median_ratio / (1.0 - delayed_ratio(metrics))
    if not possible(excess_ratio) or without_outliers <= _PERIODIC_FACTOR * with_delays:
        return share.lower_ratio
    return max(share.lower_ratio, without_outliers)


def delayed_ratio(metrics: Metrics) -> float:
    """Share of the step time in which the main thread had no CPU, at most 0.95; 0 if that was not measured."""
    delay = metrics.cpu.run_delay_ratio
    return min(delay, _MAX_DELAYED_RATIO) if delay is not None and possible(delay) else 0.0


def validation_loader(metrics: Metrics) -> tuple[int, int]:
    """Workers of the one validation loader, and the batches of a validation at most.

    Raises:
        MissingSignal: They are not known, or there are several loaders.
    """
    facts = {n: metrics.condition(f"val_loader.{n}") for n in ("count", "num_workers", "batch_size", "dataset_length")}
    if facts["count"] != 1:
        raise MissingSignal("the validation loader is not known, or there are several")
    workers, size, length = facts["num_workers"], facts["batch_size"], facts["dataset_length"]
    counted = metrics.number("trainer.num_val_batches") or 0.0
    if isinstance(workers, int) and counted >= 1:
        return workers, int(counted)
    if not isinstance(workers, int) or not isinstance(size, int) or not isinstance(length, int) or size < 1:
        raise MissingSignal("workers, batch size or length of the validation loader are not known")
    return workers, max(1, math.ceil(length / size))
