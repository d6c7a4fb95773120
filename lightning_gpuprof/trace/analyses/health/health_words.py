"""A trace's problems as sentences, and what to know when reading its numbers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.model.trace.health import Health
from lightning_gpuprof.trace.reader import Trace

OVERHEAD_RATIO = 0.05
"""From this share of the window on, what the profiler itself did is worth a word."""
APART_FROM_US = 1000.0
"""Work may well begin after the last call of a short window, but no launch takes so long to reach its device."""


class Windows(NamedTuple):
    """First start and last end of what was recorded, ns; None where there is nothing."""

    host: tuple[int, int] | None
    device: tuple[int, int] | None
    both: tuple[int, int] | None


def problems_of(
    trace: Trace, health: Health, windows: Windows, *, lost_kernels: int, shared_ids: int, steps: Sequence[str]
) -> Iterator[str]:
    """What makes numbers of the trace doubtful.

    Args:
        trace: The trace.
        health: What was counted.
        windows: When it was recorded.
        lost_kernels: Launches without a kernel, other than the last ones.
        shared_ids: Calls with device work whose correlation id another call has, too.
        steps: What does not fit in the steps.

    Yields:
        Sentences, those on the file itself first; none if nothing is doubtful.
    """
    work, lost, launches = health.device_work, health.work_launch_lost, health.kernel_launches
    yield from _file_problems(trace)
    if windows.both is None:
        yield "The trace has neither host nor device activity."
    elif windows.both[0] == windows.both[1]:
        yield "The window has no length: all shares are undefined."
    if launches and not work:
        yield (
            f"{launches:,} kernel launches, but no kernels: CUPTI or roctracer recorded nothing. Another profiler may"
            " be using the GPU's counters, or permission is missing: see gpuprof doctor."
        )
    if lost_kernels and work:
        yield (
            f"The kernels of {_share(lost_kernels, launches, 'launches')} are missing: events were dropped, and GPU"
            " time is too low. Record fewer steps: TraceConfig(active=1)."
        )
    if lost:
        yield (
            f"The launches of {_share(lost, work, 'kernels and copies')} were dropped from the trace, so these have no"
            " operator, line or phase."
        )
    if shared_ids:
        yield (
            f"{shared_ids:,} launches share a correlation id: the trace may mix several processes, and which of them"
            " launched what is unknown. Give one trace for each process."
        )
    if early := health.starts_before_launch:
        yield (
            f"{capital(_share(early, health.work_matched, 'kernels and copies'))} start before their launch, by up to"
            f" {health.starts_before_launch_max_us:,.3g} µs: the clocks of host and GPU differ. Idle causes and"
            " launch times are off by as much."
        )
    if (apart_us := _apart_us(windows)) >= APART_FROM_US:
        yield (
            f"Host and GPU events are {apart_us:,.0f} µs apart: their clocks differ, and idle causes and launch times"
            " are wrong."
        )
    if overlaps := health.overlaps_in_stream:
        yield (
            f"{capital(_share(overlaps, work, 'kernels and copies'))} begin before the previous one in their stream"
            " has ended. Graphs and programmatic dependent launches may do so; otherwise GPU times are wrong."
        )
    if crossing := health.crossing_operators:
        yield f"{crossing:,} operators end after the operator around them: host and self times are inexact."
    if steps:
        yield f"{capital(' and '.join(steps))}: values per step may mix windows."


def _file_problems(trace: Trace) -> Iterator[str]:
    if trace.unreadable:
        unreadable = _share(trace.unreadable, trace.events, "entries in the file")
        yield f"{capital(unreadable)} cannot be read and are left out."
    elif trace.how in ("repaired", "one by one"):
        rest = "" if trace.timeless else ", and all entries could be read"
        yield f"The file was not valid JSON and was repaired{rest}."
    spans, said = sum(trace.categories.values()), []
    if trace.timeless:
        said.append(f"{_share(trace.timeless, spans, 'spans')} have no time and are left out")
    if trace.backwards:
        said.append(f"{_share(trace.backwards, spans, 'spans')} end before they start and count as empty")
    if said:
        yield f"{capital('; '.join(said))}: the file is damaged, and times and shares are too low. Record again."


def notes_of(health: Health, *, launches_at_end: int) -> Iterator[str]:
    """What to know when reading the trace's numbers.

    Args:
        health: What was counted.
        launches_at_end: The last launches, whose kernels were not recorded.

    Yields:
        Sentences; none if there is nothing to know.
    """
    work, before, spent_us = health.device_work, health.work_launched_before, health.profiler_overhead_us
    recorded = not (health.host_window_us is None and health.device_window_us is None)
    if launches_at_end and work:
        yield (f"The kernels of the last {launches_at_end:,} launches are missing: recording ended before they ran.")
    if before:
        yield (
            f"{capital(_share(before, work, 'kernels and copies'))} were launched before the window: they count as"
            " GPU time, but have no operator, line or phase."
        )
    if health.resolution_ns == 1000 and work:
        empty = f"; {health.empty_kernels:,} kernels have a duration of 0" if health.empty_kernels else ""
        yield f"Times are whole microseconds, so short kernels are off by up to 1 µs{empty}."
    if recorded and spent_us and spent_us >= OVERHEAD_RATIO * health.window_us:
        share = f", {100 * spent_us / health.window_us:.0f} % of the window" if health.window_us else ""
        yield f"The profiler itself took {spent_us:,.0f} µs{share}."
    if recorded and not health.steps:
        yield "The trace has no steps: values are per window."


def _apart_us(windows: Windows) -> float:
    """Time between the events of host and device; 0 if they overlap or one has none."""
    if windows.host is None or windows.device is None:
        return 0.0
    return max(windows.device[0] - windows.host[1], windows.host[0] - windows.device[1], 0) / 1000


def _share(part: int, whole: int, what: str) -> str:
    """``12 of 3,400 kernels (0.4 %)``; ``all 12 kernels``."""
    if part == whole:
        return f"all {whole:,} {what}"
    share = 100 * part / whole
    return f"{part:,} of {whole:,} {what} ({f'{share:.1f}' if share >= 0.1 else '<0.1'} %)"
