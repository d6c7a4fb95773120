"""The trace windows that rules on kernels can look at."""

from collections.abc import Sequence

from lightning_gpuprof.analyze.alignment import misaligned
from lightning_gpuprof.analyze.attention import attention_operators
from lightning_gpuprof.analyze.matrix_kernels import off_tensor_cores
from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, Pointwise, class_us, is_ordinary
from lightning_gpuprof.model.measured_time import Measured
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, or_unmeasured
from lightning_gpuprof.model.signals import device_step
from lightning_gpuprof.model.window import WindowFacts

_POINTWISE = ("elementwise", "norm/reduction")


@or_unmeasured
def device_run(metrics: Metrics) -> DeviceRun | None:
    """The windows of a run that rules on kernels can look at; its ``device_step`` and ``fetch`` are read.

    Returns:
        None if the model is known to run on the CPU: then there are no kernels that could be at fault.

    Raises:
        MissingSignal: Too few steady steps, or no window with the device work of whole steps.
    """
    period_ms = metrics.step_ms
    if metrics.is_cpu_only:
        return None
    windows = tuple(window for facts in metrics.windows if (window := _device_window(facts)) is not None)
    if not windows:
        raise MissingSignal("no trace window holds the device work of whole steps")
    return DeviceRun(
        period_ms=period_ms,
        steady_steps=metrics.steps.steady_count,
        windows=windows,
        starved_ratio=_starved_ratio(metrics),
        off_tensor_cores=or_unmeasured(off_tensor_cores)(windows),
        pointwise=_pointwise(windows),
    )


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
    shapes = None if analysis.operators is None else analysis.operators.shapes
    roofline = analysis.roofline
    return DeviceWindow(
        facts=facts,
        analysis=analysis,
        kernels=analysis.kernels,
        steps=len(facts.steps_us),
        attention=None if shapes is None else attention_operators(shapes),
        misaligned=misaligned(roofline) if roofline is not None and roofline.rows else None,
    )


@or_unmeasured
def _pointwise(windows: Sequence[DeviceWindow]) -> Pointwise:
    rooflines = [window.analysis.roofline for window in windows if window.analysis.roofline is not None]
    peak = next((roofline.bytes_per_s for roofline in rooflines if roofline.bytes_per_s), None)
    rows = [
        row
        for roofline in rooflines
        for row in roofline.rows
        if row.kind in _POINTWISE and row.bytes_per_call and row.faster_than is None
    ]
    seconds = sum(row.device_us for row in rows) / 1e6
    moved = sum((row.bytes_per_call or 0.0) * row.calls for row in rows)
    return Pointwise(
        time=Measured.over([window.per_step_ms(class_us(window, *_POINTWISE)) for window in windows]),
        elementwise=Measured.over([window.per_step_ms(class_us(window, "elementwise")) for window in windows]),
        bandwidth_ratio=moved / seconds / peak if peak is not None and seconds > 0 else None,
        names=list(dict.fromkeys(f"{row.operator} of {row.input_shape}" for row in rows))[:3],
    )
