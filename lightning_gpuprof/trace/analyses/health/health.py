"""Whether a trace is worth believing: what was lost, and which times do not fit."""

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.health import Health, LaunchCalls
from lightning_gpuprof.trace.analyses.health.health_words import Windows, notes_of, problems_of
from lightning_gpuprof.trace.analyses.health.signals import signals_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.steps import STEP, Steps
from lightning_gpuprof.trace.tables import (
    ABSENT,
    DeviceSpans,
    Ids,
    Int64,
    LaunchSpans,
    Mask,
    Rows,
    Spans,
    distinct,
    extent_ns,
    is_in,
)

_STARTS_WORK = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
_NO_START = re.compile(r"launchhostfunc|launchcallback|attribute|getlaunch|configurecall|memcpynode|memsetnode", re.I)
_LAUNCHES_KERNELS = re.compile(r"launch", re.IGNORECASE)
_BEGINS_CAPTURE = re.compile(r"StreamBeginCapture")
_ENDS_CAPTURE = re.compile(r"StreamEndCapture")


def health_of(linked: LinkedTrace) -> Health:
    """What a trace holds, what is missing in it and what does not fit."""
    trace, work = linked.trace, linked.work
    has_work = is_in(trace.runtime.correlation, work.correlation[work.correlation > ABSENT])
    starts_work = linked.named(trace.runtime, can_start_work)
    launches = starts_work & linked.named(trace.runtime, lambda name: bool(_LAUNCHES_KERNELS.search(name)))
    launches &= ~_captured(linked)
    orphans = np.flatnonzero(~linked.launched)
    before = _launched_before(linked, orphans) if len(trace.runtime) else np.zeros(0, np.bool_)
    early_ns = np.where(linked.launched, linked.launch_start_ns - work.start_ns, 0)
    host = (trace.runtime, trace.cpu_op, trace.annotation, trace.python_function)
    windows = Windows(host=extent_ns(host), device=extent_ns((work,)), both=extent_ns((*host, work)))
    health = Health(
        events=trace.events,
        bytes_json=trace.bytes_json,
        categories=dict(trace.categories),
        unreadable=trace.unreadable,
        how=trace.how,
        resolution_ns=_resolution_ns((*host, work)),
        window_us=_length_us(windows.both) or 0.0,
        host_window_us=_length_us(windows.host),
        device_window_us=_length_us(windows.device),
        steps=len(linked.steps),
        profiler_overhead_us=int(trace.overhead.duration_ns.sum()) / 1000,
        calls=_calls(linked, starts_work, has_work),
        kernel_launches=int(launches.sum()),
        kernel_launches_without_work=int((launches & ~has_work).sum()),
        device_work=len(work),
        work_matched=int(linked.launched.sum()),
        work_launched_before=int(before.sum()),
        work_launch_lost=int(len(before) - before.sum()),
        starts_before_launch=int((early_ns > 0).sum()),
        starts_before_launch_max_us=int(early_ns.max(initial=0)) / 1000,
        overlaps_in_stream=_overlaps_in_stream(work),
        crossing_operators=_crossing(linked),
        empty_kernels=int((trace.kernel.duration_ns == 0).sum()),
        signals=signals_of(linked),
    )
    at_end = _launches_at_end(trace.runtime, launches, has_work)
    problems = problems_of(
        trace,
        health,
        windows,
        lost_kernels=health.kernel_launches_without_work - at_end,
        shared_ids=_shared_ids(trace.runtime.correlation[has_work]),
        steps=_step_problems(linked.steps),
    )
    notes = notes_of(health, launches_at_end=at_end)
    return msgspec.structs.replace(health, problems=tuple(problems), notes=tuple(notes))


def can_start_work(name: str) -> bool:
    """Whether a call of this name can start device work."""
    return bool(_STARTS_WORK.search(name) and not _NO_START.search(name))


def _shared_ids(correlation: Ids) -> int:
    _, count = np.unique(correlation, return_counts=True)
    return int(count[count > 1].sum())


def _captured(linked: LinkedTrace) -> Mask:
    """Calls between the begin and the end of a graph's capture on their thread: they run nothing."""
    runtime = linked.trace.runtime
    begins = linked.named(runtime, lambda name: bool(_BEGINS_CAPTURE.search(name)))
    ends = linked.named(runtime, lambda name: bool(_ENDS_CAPTURE.search(name)))
    captured = np.zeros(len(runtime), np.bool_)
    for thread in distinct(runtime.thread[begins]).tolist():
        own = runtime.thread == thread
        begun = np.searchsorted(np.sort(runtime.end_ns[own & begins]), runtime.start_ns, "right")
        ended = np.searchsorted(np.sort(runtime.end_ns[own & ends]), runtime.start_ns, "right")
        captured |= own & (begun > ended)
    return captured


def _launches_at_end(runtime: LaunchSpans, launches: Mask, has_work: Mask) -> int:
    """Launches without work after the last launch with work: cut off by the end of the window, not lost in it."""
    without = launches & ~has_work
    if not without.any():
        return 0
    last = runtime.start_ns[launches & has_work].max(initial=np.iinfo(np.int64).min)
    return int((without & (runtime.start_ns > last)).sum())


def _launched_before(linked: LinkedTrace, orphans: Rows) -> Mask:
    """Which work without a launch was launched before the window began; of the other work the launch was lost.

    CUPTI's and roctracer's correlation ids grow with time, and a stream runs work in the order of launches.
    """
    work, runtime = linked.work, linked.trace.runtime
    known = runtime.correlation[runtime.correlation > 0]
    before = work.start_ns[orphans] < runtime.start_ns.min()
    if len(known):
        before |= (work.correlation[orphans] > 0) & (work.correlation[orphans] < known.min())
    early = orphans[~before]
    ahead = np.zeros(len(orphans), np.bool_)
    for device, stream in set(zip(work.device[early].tolist(), work.stream[early].tolist(), strict=True)):
        on_stream = (work.device == device) & (work.stream == stream)
        matched = work.start_ns[on_stream & linked.launched]
        if len(matched):
            ahead |= on_stream[orphans] & (work.start_ns[orphans] < matched.min())
    # an id that is younger than a call of the trace is proof of the contrary
    ahead &= (work.correlation[orphans] <= 0) | (not len(known))
    result: Mask = before | ahead
    return result


def _overlaps_in_stream(work: DeviceSpans) -> int:
    if not len(work):
        return 0
    order = np.lexsort((work.end_ns, work.start_ns, work.stream, work.device))
    stream = np.cumsum(
        np.concatenate(([False], (np.diff(work.stream[order]) != 0) | (np.diff(work.device[order]) != 0)))
    )
    # each stream gets a stretch of time of its own, so that one running maximum serves all of them
    begin = work.start_ns.min()
    shift = stream * int(work.end_ns.max() - begin + 1) - begin
    starts, ends = work.start_ns[order] + shift, work.end_ns[order] + shift
    return int((starts[1:] < np.maximum.accumulate(ends)[:-1]).sum())


def _crossing(linked: LinkedTrace) -> int:
    ops, parent = linked.trace.cpu_op, linked.operators.parent
    inner = np.flatnonzero(parent >= 0)
    return int((ops.end_ns[inner] > ops.end_ns[parent[inner]]).sum())


def _length_us(window: tuple[int, int] | None) -> float | None:
    return None if window is None else (window[1] - window[0]) / 1000


def _step_problems(steps: Steps) -> list[str]:
    """What does not fit in the numbers and times of the steps."""
    texts = [name.removeprefix(STEP) for name in steps.names]
    numbers = sorted({int(text) for text in texts if text.isascii() and text.isdigit()})
    missing = sum(after - before - 1 for before, after in pairwise(numbers))
    repeated = len(texts) - len(set(texts))
    found = {
        f"{repeated} step ranges repeat a number": repeated,
        f"{missing} step numbers are missing among {len(texts)} steps": missing,
        f"{steps.left_out} steps overlap others, as with two profilers, and are left out": steps.left_out,
    }
    return [words for words, count in found.items() if count]


def _resolution_ns(parts: Sequence[Spans]) -> int | None:
    columns: list[Int64] = [column for part in parts if len(part) for column in (part.start_ns, part.end_ns)]
    if not columns:
        return None
    return next((unit for unit in (1000, 100, 10) if not any((column % unit).any() for column in columns)), 1)


def _calls(linked: LinkedTrace, starts_work: Mask, has_work: Mask) -> tuple[LaunchCalls, ...]:
    runtime, names = linked.trace.runtime, linked.trace.names
    all_ = np.bincount(runtime.name[starts_work | has_work], minlength=len(names))
    good = np.bincount(runtime.name[has_work], minlength=len(names))
    found = [
        LaunchCalls(name=names[i], count=int(all_[i]), with_work=int(good[i]), without_work=int(all_[i] - good[i]))
        for i in np.flatnonzero(all_).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.name)))
