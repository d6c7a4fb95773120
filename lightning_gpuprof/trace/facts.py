"""The facts of a trace's window: steps, fetches, device activity, and what took the most time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.window import DeviceActivity, OperatorRow, WindowFacts
from lightning_gpuprof.trace.intervals import covered_ns, exclusive_ns, union
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.steps import is_step
from lightning_gpuprof.trace.tables import ABSENT, DeviceSpans, Int32, Int64, LaunchSpans, OperatorSpans, Spans, joined

TOP_ROWS = 20
"""Rows of the operator and of the kernel table."""


def window_facts(trace: Trace, *, start_step: int, stop_step: int, file: str = "") -> WindowFacts:
    """Compute all facts of a window.

    Definitions: device work is kernels, copies and memsets. A device's window goes from the first start to the last
    end of its work; it is busy while at least one of its streams works, and idle otherwise. Work is matched if a
    driver call with its correlation id is in the trace.

    Args:
        trace: What was recorded.
        start_step: First optimizer step of the window.
        stop_step: Last optimizer step of the window.
        file: Name of the trace in the run's folder.

    Returns:
        The facts; lists are empty and counts 0 where the trace holds nothing of the kind, e.g. no GPU.
    """
    work = trace.device_work
    matched = int(_launched_in(trace.runtime, work).sum())
    host_ranges = joined(OperatorSpans, [trace.annotation, trace.cpu_op])
    operators = trace.cpu_op.where(~_named(trace, trace.cpu_op, is_step))
    return WindowFacts(
        start_step=start_step,
        stop_step=stop_step,
        file=file,
        problem=f"{trace.unreadable} of {trace.events} entries of the trace are no events" if trace.unreadable else "",
        events=trace.events,
        bytes_json=trace.bytes_json,
        steps_us=_steps_us(trace, host_ranges),
        dataloader_us=_dataloader_us(trace, host_ranges),
        dataloader_beside_device_us=_dataloader_beside_device_us(trace, host_ranges),
        kernels=len(trace.kernel),
        launches_matched=matched,
        launches_unmatched=len(work) - matched,
        devices=_devices(trace),
        top_operators=_top(trace, operators.name, exclusive_ns(operators.start_ns, operators.end_ns, operators.thread)),
        top_kernels=_top(trace, trace.kernel.name, trace.kernel.duration_ns),
    )


def _launched_in(runtime: LaunchSpans, work: DeviceSpans) -> npt.NDArray[np.bool_]:
    launches = runtime.correlation[runtime.correlation > ABSENT]
    return np.isin(work.correlation, launches)


def _steps_us(trace: Trace, ranges: Spans) -> tuple[float, ...]:
    """Durations in order of time. A step that is in the trace as annotation and as operator is one step."""
    chosen = ranges.where(_named(trace, ranges, is_step))
    steps = [union(chosen.start_ns[one], chosen.end_ns[one]) for one in _groups(chosen.name)]
    if not steps:
        return ()
    starts, ends = (np.concatenate(side) for side in zip(*steps, strict=True))
    return tuple(_us(ns) for ns in (ends - starts)[np.argsort(starts, kind="stable")].tolist())


def _dataloader_us(trace: Trace, ranges: Spans) -> float:
    """Time inside the fetch of a batch, summed over threads.

    torch names the range of a DataLoader's ``__next__``; this package adds its own around it. The union per thread
    counts nested ranges, and a range that is in two categories, once.
    """
    fetches = _fetches(trace, ranges)
    return _us(sum(covered_ns(fetches.start_ns[one], fetches.end_ns[one]) for one in _groups(fetches.thread)))


def _dataloader_beside_device_us(trace: Trace, ranges: Spans) -> float | None:
    """The part of that time in the window of the busiest device; None without a device."""
    if not trace.device_busy:
        return None
    busiest = max(trace.device_busy.values(), key=lambda busy: busy.total_ns)
    begin_ns, end_ns = busiest.start_ns[0], busiest.end_ns[-1]
    fetches = _fetches(trace, ranges)
    fetches = fetches.where((fetches.start_ns < end_ns) & (fetches.end_ns > begin_ns))
    start_ns, stop_ns = np.maximum(fetches.start_ns, begin_ns), np.minimum(fetches.end_ns, end_ns)
    return _us(sum(covered_ns(start_ns[one], stop_ns[one]) for one in _groups(fetches.thread)))


def _fetches(trace: Trace, ranges: Spans) -> Spans:
    return ranges.where(_named(trace, ranges, lambda name: "DataLoader" in name and "__next__" in name))


def _devices(trace: Trace) -> tuple[DeviceActivity, ...]:
    activities: list[DeviceActivity] = []
    for device, busy in trace.device_busy.items():
        window_ns = int(busy.end_ns[-1] - busy.start_ns[0])
        activities.append(
            DeviceActivity(
                device=trace.devices[device],
                kernels=int((trace.device_rows[device] < len(trace.kernel)).sum()),
                window_us=_us(window_ns),
                busy_us=_us(busy.total_ns),
                idle_us=_us(window_ns - busy.total_ns),
            )
        )
    return tuple(sorted(activities, key=lambda activity: (len(activity.device), activity.device)))


def _top(trace: Trace, name: Int32, time_ns: Int64) -> tuple[OperatorRow, ...]:
    # float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days
    total_ns = np.bincount(name, weights=time_ns, minlength=len(trace.names))
    count = np.bincount(name, minlength=len(trace.names))
    present = np.flatnonzero(count)
    order = sorted(present.tolist(), key=lambda number: (-total_ns[number], trace.names[number]))
    return tuple(
        OperatorRow(name=trace.names[number], count=int(count[number]), total_us=_us(int(total_ns[number])))
        for number in order[:TOP_ROWS]
    )


def _named(trace: Trace, spans: Spans, wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Which spans have a wanted name; each distinct name is looked at once."""
    of_name = np.fromiter(map(wanted, trace.names), np.bool_, len(trace.names))
    chosen: npt.NDArray[np.bool_] = of_name[spans.name]
    return chosen


def _groups(labels: Int32) -> list[npt.NDArray[np.intp]]:
    """Rows of each label, in order of the label."""
    if not len(labels):
        return []
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _us(ns: int) -> float:
    return ns / 1000
