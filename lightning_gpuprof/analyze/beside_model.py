"""What the host is at while it does not keep a device busy: idle causes of a window, parts of the run, phases."""

import math
from collections.abc import Iterator

from lightning_gpuprof.model.host_time import BesideModel
from lightning_gpuprof.model.metrics import OUTSIDE_PARTS, Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.trace.idle import IdleShare


def idle_causes(metrics: Metrics) -> tuple[IdleShare, ...]:
    """Those of the busiest device in the last window that shows any."""
    idles = [window.results.idle for window in metrics.windows]
    last = next((idle for idle in reversed(idles) if idle is not None and idle.devices), None)
    return tuple(max(last.devices, key=lambda one: one.busy_us).causes) if last is not None else ()


def beside_model(metrics: Metrics) -> tuple[BesideModel, ...]:
    """Parts of the run and phases of the step in which the host does not work for the model, largest share first."""
    return tuple(sorted((*_parts(metrics), *_phases(metrics)), key=lambda one: one.ratio, reverse=True))


def _parts(metrics: Metrics) -> Iterator[BesideModel]:
    try:
        total_s = metrics.run_s
    except MissingSignal:
        total_s = math.inf
    for part in OUTSIDE_PARTS:
        ratio = min(1.0, metrics.wall.parts.get(part, 0.0) / total_s)
        yield BesideModel(name=part, phase=None, ratio=ratio, lower_ratio=ratio)


def _phases(metrics: Metrics) -> Iterator[BesideModel]:
    for phase, share in metrics.shares.items():
        if phase not in COMPUTE_PHASES and usable(share):
            yield BesideModel(name=phase, phase=phase, ratio=share.median_ratio, lower_ratio=share.lower_ratio)
