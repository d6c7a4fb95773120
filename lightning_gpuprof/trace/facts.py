"""The facts of a trace's window: steps, fetches, device activity, and what took the most time."""

import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.model.window import DeviceActivity, OperatorRow, WindowFacts
from lightning_gpuprof.trace.host_phases import is_fetch
from lightning_gpuprof.trace.intervals import covered_ns, union
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.steps import is_step
from lightning_gpuprof.trace.tables import Int32, Int64, Spans, joined, rows_by, summed

TOP_ROWS = 20
"""Rows of the operator and of the kernel table."""


def window_facts(trace: Trace | LinkedTrace, *, start_step: int, stop_step: int) -> WindowFacts:
    """Compute all facts of a window.

    Definitions: device work is kernels, copies and memsets. A device's window goes from the first start to the last
    end of its work; it is busy while at least one of its streams works, and idle otherwise. Work is matched if a
    driver call with its correlation id is in the trace.

    Args:
        trace: What was recorded.
        start_step: First optimizer step of the window.
        stop_step: Last optimizer step of the window.

    Returns:
        The facts; lists are empty and counts 0 where the trace has nothing of the kind, e.g. no GPU.
    """
    linked = trace if isinstance(trace, LinkedTrace) else LinkedTrace(trace)
    trace = linked.trace
    ranges = joined(Spans, [trace.annotation.spans, trace.cpu_op.spans])
    steps = ranges.where(linked.named(ranges, is_step))
    fetches = ranges.where(linked.named(ranges, is_fetch))
    is_operator = ~linked.named(trace.cpu_op, is_step)
    operators, nesting = trace.cpu_op, linked.operators
    if not is_operator.all():
        operators = operators.where(is_operator)
        nesting = Nesting(operators.start_ns, operators.end_ns, operators.thread)
    matched = int(linked.launched.sum())
    return WindowFacts(
        start_step=start_step,
        stop_step=stop_step,
        problem=f"{trace.unreadable} of {trace.events} entries of the trace are no events" if trace.unreadable else "",
        events=trace.events,
        bytes_json=trace.bytes_json,
        steps_us=_steps_us(steps),
        dataloader_us=_per_thread_us(fetches),
        dataloader_beside_device_us=_beside_device_us(linked, fetches),
        kernels=len(trace.kernel),
        launches_matched=matched,
        launches_unmatched=len(linked.work) - matched,
        devices=tuple(_device(linked, device) for device in linked.devices),
        top_operators=_top(trace, operators.name, nesting.exclusive_ns),
        top_kernels=_top(trace, trace.kernel.name, trace.kernel.duration_ns),
    )


def _steps_us(ranges: Spans) -> tuple[float, ...]:
    """Durations in order of time. A step that is in the trace as annotation and as operator is one step."""
    steps = [union(ranges.start_ns[own], ranges.end_ns[own]) for own in rows_by(ranges.name)]
    if not steps:
        return ()
    starts, ends = (np.concatenate(side) for side in zip(*steps, strict=True))
    return tuple(((ends - starts)[np.argsort(starts, kind="stable")] / 1000).tolist())


def _per_thread_us(ranges: Spans) -> float:
    """Time inside ranges, summed over threads; the union of each counts nested ranges and those of two kinds once."""
    return sum(covered_ns(ranges.start_ns[own], ranges.end_ns[own]) for own in rows_by(ranges.thread)) / 1000


def _beside_device_us(linked: LinkedTrace, fetches: Spans) -> float | None:
    """The part of that time in the window of the busiest device; None without a device."""
    if not linked.device_busy:
        return None
    busiest = max(linked.device_busy.values(), key=lambda busy: busy.total_ns)
    begin_ns, end_ns = busiest.window_ns
    near = fetches.where((fetches.start_ns < end_ns) & (fetches.end_ns > begin_ns))
    start_ns, stop_ns = np.maximum(near.start_ns, begin_ns), np.minimum(near.end_ns, end_ns)
    return _per_thread_us(replace(near, start_ns=start_ns, end_ns=stop_ns))


def _device(linked: LinkedTrace, device: int) -> DeviceActivity:
    busy = linked.device_busy[device]
    return DeviceActivity(
        device=linked.trace.devices[device],
        kernels=int(linked.is_kernel[linked.device_rows[device]].sum()),
        window_us=busy.length_ns / 1000,
        busy_us=busy.total_ns / 1000,
        idle_us=(busy.length_ns - busy.total_ns) / 1000,
    )


def _top(trace: Trace, name: Int32, time_ns: Int64) -> tuple[OperatorRow, ...]:
    total_ns = summed(name, time_ns, len(trace.names))
    count = np.bincount(name, minlength=len(trace.names))
    present = np.flatnonzero(count)
    order = sorted(present.tolist(), key=lambda number: (-total_ns[number], trace.names[number]))
    return tuple(
        OperatorRow(name=trace.names[number], count=int(count[number]), total_us=int(total_ns[number]) / 1000)
        for number in order[:TOP_ROWS]
    )
