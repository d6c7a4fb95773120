"""What the counters of the one sampled GPU (GPM) say of its steps."""

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible


def mean_in_steps(metrics: Metrics, name: str) -> float:
    """The mean of a counter over the steps, at most: as if it had been 0 in all other time of the training.

    Args:
        metrics: The run.
        name: ``dram_active_ratio``, for example.

    Returns:
        0 to 1.

    Raises:
        MissingSignal: It was not measured, or on several GPUs.
    """
    if len(metrics.devices) > 1:
        raise MissingSignal("several GPUs were sampled, and a trace does not say which of them it is of")
    found = metrics.devices[0].values.get(name) if metrics.devices else None
    if found is None or not possible(found.mean) or metrics.devices[0].samples < MIN_SAMPLES:
        raise MissingSignal("the GPU's counters (GPM, Hopper and later) were not read, or too rarely")
    train_s = metrics.wall.parts.get("train", 0.0)
    if not train_s > 0:
        raise MissingSignal("the time of the steps was not measured")
    return min(1.0, found.mean * metrics.run_s / train_s)
