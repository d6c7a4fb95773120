"""What cuDNN takes to time its algorithms in the traced steps, where batches come in new shapes."""

from lightning_gpuprof.model.device_kernels import is_ordinary
from lightning_gpuprof.model.host_time import AlgorithmTrials
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, or_unmeasured
from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.trace.sync_points import SyncPoints
from lightning_gpuprof.model.window import WindowFacts


@or_unmeasured
def algorithm_trials(metrics: Metrics) -> AlgorithmTrials:
    """Trials in windows of ordinary steps with a device.

    Raises:
        MissingSignal: There is no such window, or its times are impossible.
    """
    windows = [(window, found) for window in metrics.windows if (found := _waits(window)) is not None]
    if not windows:
        raise MissingSignal("no trace window has the device activity of whole steps")
    return AlgorithmTrials(
        steps=sum(len(window.steps_us) for window, _ in windows),
        steps_with_trials=sum(found.steps_with_timed_convolutions for _, found in windows),
        convolutions=sum(found.timed_convolutions for _, found in windows),
        time=Measured.over([found.timed_convolutions_us / 1e3 / len(window.steps_us) for window, found in windows]),
        rest=Measured.over(
            [
                max(0.0, sum(window.steps_us) - found.timed_convolutions_us) / 1e3 / len(window.steps_us)
                for window, found in windows
            ]
        ),
    )


def _waits(window: WindowFacts) -> SyncPoints | None:
    """The host's waits in a window of ordinary steps with a device; None for any other."""
    found = None if window.analysis is None else window.analysis.sync_points
    return found if window.devices and window.steps_us and is_ordinary(window) else None
