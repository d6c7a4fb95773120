"""From trace windows to those that rules on kernels can look at."""

from __future__ import annotations

from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, is_ordinary
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, Unmeasured
from lightning_gpuprof.model.signals import device_step, is_cpu_only, steady_period_ms
from lightning_gpuprof.model.window import WindowFacts


def device_run(metrics: Metrics) -> DeviceRun | Unmeasured | None:
    """The windows of a run that rules on kernels can look at.

    Args:
        metrics: The run; its ``device_step`` and ``fetch`` are read.

    Returns:
        None if the model is known to run on the CPU: then there are no kernels that could be at fault. Unmeasured: too
        few steady steps, or no window with the device work of whole steps.
    """
    try:
        period_ms = steady_period_ms(metrics)
    except MissingSignal as missing:
        return Unmeasured(why=missing.why)
    if is_cpu_only(metrics):
        return None
    windows = tuple(window for facts in metrics.windows if (window := _device_window(facts)) is not None)
    if not windows:
        return Unmeasured(why="no trace window holds the device work of whole steps")
    return DeviceRun(period_ms=period_ms, windows=windows, starved_ratio=_starved_ratio(metrics))


def _starved_ratio(metrics: Metrics) -> float:
    step = device_step(metrics)
    if step is None or step.window is None:
        return 0.0
    return step.starved_ratio + (
        step.idle_by_phase.get("data_wait", 0.0) if metrics.fetch.workers_set_the_pace else 0.0
    )


def _device_window(facts: WindowFacts) -> DeviceWindow | None:
    analysis = facts.analysis
    if analysis is None or analysis.kernels is None or not analysis.kernels.count:
        return None
    if not facts.devices or not facts.steps_us or not is_ordinary(facts):
        return None
    return DeviceWindow(facts=facts, analysis=analysis, kernels=analysis.kernels, steps=len(facts.steps_us))
