"""From a device's step to how much of it time of the host can hold up."""

from __future__ import annotations

from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.host_limit import HostLimit
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import device_step, is_cpu_only


def host_limit(metrics: Metrics) -> HostLimit:
    """What time of the host costs.

    Args:
        metrics: The run; its ``device_step`` is read.
    """
    cpu_only, step = is_cpu_only(metrics), device_step(metrics)
    if cpu_only:
        return HostLimit(ratio=1.0, by_phase=dict.fromkeys(PHASES, 1.0))
    idle_ratio = 0.0 if step is None else max(step.idle_ratio, step.utilization_idle_ratio or 0.0)
    stalls_ratio = 1.0 if cpu_only is None else idle_ratio
    by_window = step if step is not None and step.window is not None else None
    by_phase = {} if by_window is None else {phase: _in_phase(metrics, by_window, phase) for phase in PHASES}
    ratio: float | Unmeasured
    if cpu_only is None:
        ratio = Unmeasured(why="the device of the run is not known, so it is not known whether host time counts")
    elif by_window is None:
        ratio = Unmeasured(why="no trace window shows how long the device is idle, and host time counts only then")
    else:
        ratio = by_window.idle_ratio
    return HostLimit(ratio=ratio, by_phase=by_phase, stalls_ratio=stalls_ratio)


def _in_phase(metrics: Metrics, step: DeviceStep, phase: Phase) -> float:
    part, share = step.idle_in_phase.get(phase), metrics.share(phase)
    if part is None or share is None or not usable(share):
        return step.idle_ratio
    return min(step.idle_ratio, part * max(share.median_ratio, share.total_ratio))
