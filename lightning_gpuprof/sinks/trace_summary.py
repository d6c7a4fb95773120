"""A few sentences about a trace: what was recorded, what the GPUs did, what stands out."""

from collections.abc import Iterable

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.idle import DeviceIdle, IdleCause
from lightning_gpuprof.model.trace.step_trace import StepTrace
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.window_tables import idle, short_names

STANDS_OUT = 0.02
"""A cause of idle time, or a cost, is named from this share of the window on."""
UNCLAIMED = 0.1
"""From this share on it matters which causes the trace could not have shown."""
NEARLY = 0.9
"""A device's window and the host's steps are the same time if they are this close."""

_WAITS: dict[IdleCause, str] = {
    "data": "waiting for the DataLoader",
    "checkpoint": "while a checkpoint was written",
    "callbacks": "during hooks of callbacks or the module",
    "validation": "during validation",
    "profiler": "waiting for the profiler itself",
    "allocator": "while memory was allocated or freed",
    "communication": "waiting for the host to start collectives",
    "host_sync": "after calls that block the host",
    "between_steps": "between steps",
    "host_work": "waiting for Python or other host work",
    "launch": "waiting for slow launches",
    "launch_latency": "between launch calls and their kernels",
    "queued": "waiting for other streams, copies or events",
    "back_to_back": "between back-to-back kernels",
    "unexplained": "for no recorded reason",
}


def sentences(analysis: TraceAnalysis) -> list[str]:
    """Say in plain words what was recorded, what the devices did, and what stands out, most important first."""
    lines = [_what(analysis)]
    lines += device_sentences(analysis) or _devices(analysis)
    if analysis.health is not None:
        lines += [f"Warning: {plain.sentence(problem)}" for problem in analysis.health.problems[:3]]
    lines += [f"Not computed: {plain.sentence(problem)}" for problem in analysis.problems]
    return lines


def device_sentences(analysis: TraceAnalysis) -> list[str]:
    """What the devices did and what stands out, without what was recorded; empty if there is no device work."""
    if analysis.idle is None or not analysis.idle.devices:
        return []
    parts = (_devices, _communication, _sync, _kernels, _flops, _lines)
    return [line for part in parts for line in part(analysis)]


def _what(analysis: TraceAnalysis) -> str:
    parts = []
    if analysis.gpus:
        parts.append(", ".join(analysis.gpus))
    if analysis.rank is not None:
        parts.append(f"rank {analysis.rank}" + (f" of {analysis.world_size}" if analysis.world_size else ""))
    steps = analysis.step_trace
    if steps is not None and steps.has_steps and steps.mean is not None:
        each = numbers.seconds(steps.mean.total_us / 1e6)
        parts.append(
            f"1 step, {each} on the host"
            if len(steps.steps) == 1
            else f"{len(steps.steps)} steps, {each} each on the host"
        )
    elif steps is not None:
        parts.append("no steps")
    if analysis.health is not None:
        parts.append(f"{numbers.count(analysis.health.events)} events")
    return "; ".join(parts) + ". Host times are inflated by tracing."


def _devices(analysis: TraceAnalysis) -> Iterable[str]:
    if analysis.idle is None:
        return
    if not analysis.idle.devices:
        yield "This trace has no GPU work."
    for device in analysis.idle.devices:
        yield _device(device) + _against_steps(device, analysis.step_trace)
    if any(_unclaimed(device) >= UNCLAIMED for device in analysis.idle.devices):
        yield from filter(None, [idle.unseen_sentence(analysis.idle)])


def _unclaimed(device: DeviceIdle) -> float:
    """Share of the window in which the device waited for its host, and nothing in the trace says for what."""
    return sum(cause.window_ratio for cause in device.causes if cause.cause in ("launch", "host_work"))


def _against_steps(device: DeviceIdle, steps: StepTrace | None) -> str:
    """Where the device's window is shorter or longer than the steps on the host, which its shares hide."""
    if steps is None or not steps.has_steps:
        return ""
    host_us = sum(step.total_us for step in steps.steps)
    if device.window_us < NEARLY * host_us:
        without = _percent(1 - device.window_us / host_us)
        return f" Outside that span lies another {without} of the step time, without GPU work."
    if device.window_us * NEARLY > host_us:
        each = numbers.seconds(device.window_us / len(steps.steps) / 1e6)
        return f" It takes {each} per step, longer than the host, which runs ahead."
    return ""


def _device(device: DeviceIdle) -> str:
    said = (
        f"GPU {device.device} is busy {_percent(_share(device.busy_us, device.window_us))} of "
        f"{numbers.seconds(device.window_us / 1e6)} (first to last kernel)"
    )
    causes = sorted(device.causes, key=lambda cause: -cause.idle_us)
    named = [cause for cause in causes if cause.window_ratio >= STANDS_OUT][:3]
    if not named:
        return f"{said}."
    waits = "; ".join(f"{_percent(cause.window_ratio)} {_WAITS[cause.cause]}" for cause in named)
    return f"{said}. Idle {_percent(device.idle_ratio)}: {waits}."


def _communication(analysis: TraceAnalysis) -> Iterable[str]:
    for device in analysis.communication.devices if analysis.communication is not None else ():
        share = _share(device.communication_us, device.window_us)
        if share is None or share < STANDS_OUT:
            continue
        exposed = _percent(_share(device.exposed_us, device.window_us))
        yield (
            f"Communication takes {_percent(share)} of GPU {device.device}'s time; {exposed} is exposed (not "
            "covered by computation). Waiting in a collective counts as busy."
        )


def _sync(analysis: TraceAnalysis) -> Iterable[str]:
    points = analysis.sync_points
    if points is None or not points.count or points.devices == 0 or analysis.idle is None:
        return
    window_us = sum(device.window_us for device in analysis.idle.devices)
    share = _share(points.cost_us, window_us)
    if share is None or share < STANDS_OUT:
        return
    worst = points.sites[0]
    by = f" called by {plain.name(in_words(worst.line.frame))}" if worst.line is not None else ""
    yield (
        f"{numbers.count(points.count)} blocking calls leave the GPU idle for {_percent(share)} of the time. Most "
        f"costly: {plain.name(worst.operation)}{by}, {numbers.count(worst.count)} times."
    )


def _kernels(analysis: TraceAnalysis) -> Iterable[str]:
    found = analysis.kernels
    if found is None or not found.count:
        return
    classes = [row for row in found.classes if row.share_ratio][:3]
    kinds = ", ".join(f"{row.kernel_class} {_percent(row.share_ratio)}" for row in classes)
    small = found.small
    kernels = "kernel" if found.count == 1 else "kernels"
    if not classes:
        yield f"{numbers.count(found.count)} {kernels} without a duration."
        return
    yield (
        f"{numbers.count(found.count)} {kernels}. By time: {kinds}. Kernels below "
        f"{numbers.significant(small.limit_us)} µs: {_percent(small.count_ratio)} by number, "
        f"{_percent(small.total_ratio)} by time."
    )
    cores = found.tensor_cores
    if cores is not None and cores.matrix_us and cores.available is not False:
        yes, unknown = (_percent(_share(us, cores.matrix_us)) for us in (cores.yes_us, cores.unknown_us))
        rest = f"; {unknown} is unknown" if cores.unknown_us > 0 else ""
        yield f"Tensor cores do {yes} of the matrix time{rest}."


def _flops(analysis: TraceAnalysis) -> Iterable[str]:
    found = analysis.roofline
    if found is None or found.steps is None or found.steps.mfu_ratio is None:
        return
    span_us = max((device.window_us for device in (analysis.idle.devices if analysis.idle else ())), default=0.0)
    # Of the time that findings refer to as well: the host's steps may be longer than what the device works in them.
    mfu = found.steps.mfu_ratio * (found.steps.seconds * 1e6 / span_us if span_us > 0 else 1.0)
    yield (
        f"MFU {_percent(min(1.0, mfu))} of the dense peak, first to last kernel (FLOPs are known for "
        f"{_percent(found.coverage_ratio)} of the matrix time)."
    )


def _lines(analysis: TraceAnalysis) -> Iterable[str]:
    found = analysis.attribution
    if found is None or not found.lines or not found.lines[0].device_ratio:
        return
    first = found.lines[0]
    what = short_names.line_or_function(first.line)
    place = short_names.code_line(first.line, plain.NAME_LIMIT)
    yield f"The {what} of your code with the most GPU time: {place}, {_percent(first.device_ratio)}."


def _share(part_us: float, whole_us: float) -> float | None:
    return part_us / whole_us if whole_us > 0 else None


def _percent(ratio: float | None) -> str:
    """As findings round it, which stand on the same screen."""
    return numbers.ABSENT if ratio is None else numbers.percent(ratio)
