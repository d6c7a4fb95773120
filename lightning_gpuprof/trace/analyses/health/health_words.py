"""A trace's problems as sentences, and what to know when reading its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.trace.reader import Trace

OVERHEAD_RATIO = 0.05
"""From this share of the window on, what the profiler itself did is worth a word."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What was counted; words as in :class:`~lightning_gpuprof.model.trace.health.Health`, times in ns."""

    device_work: int
    matched: int
    before: int
    lost: int
    launches: int
    launches_without_work: int
    launches_without_work_at_end: int
    starts_early: int
    starts_early_max_us: float
    overlaps: int
    crossing: int
    empty_kernels: int
    shared_ids: int
    """Calls with device work whose correlation id another call has, too."""
    host_window: tuple[int, int] | None
    device_window: tuple[int, int] | None
    window: tuple[int, int] | None
    step_names: tuple[str, ...]
    steps_missing: int
    steps_overlapping: int
    """Steps that begin before the one before them has ended."""
    resolution_ns: int | None


def problems_of(trace: Trace, losses: Losses) -> tuple[str, ...]:
    """What makes numbers of the trace doubtful.

    Args:
        trace: The trace.
        losses: Launches and device work without their counterpart.
    """
    return tuple(
        sentence
        for sentence in (
            _file_is_broken(trace),
            _bad_times(trace),
            _nothing_there(losses),
            _no_device_activity(losses),
            _kernels_lost(losses),
            _launches_lost(losses),
            _shared_ids(losses),
            _clocks(losses),
            _far_apart(losses),
            _overlaps(losses),
            _crossing(losses),
            _steps(losses),
        )
        if sentence
    )


def caveats_of(trace: Trace, losses: Losses) -> tuple[str, ...]:
    """What to know when reading the trace's numbers.

    Args:
        trace: The trace.
        losses: Launches and device work without their counterpart.
    """
    return tuple(
        sentence
        for sentence in (
            _cut_off(losses),
            _launched_before(losses),
            _resolution(losses),
            _overhead(trace, losses),
            _outside_steps(losses),
        )
        if sentence
    )


def _share(part: int, whole: int, what: str) -> str:
    """``12 of 3,400 kernels (0.4 %)``; ``all 12 kernels``."""
    if part == whole:
        return f"all {whole:,} {what}"
    share = 100 * part / whole
    return f"{part:,} of {whole:,} {what} ({f'{share:.1f}' if share >= 0.1 else '<0.1'} %)"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _file_is_broken(trace: Trace) -> str:
    if trace.unreadable:
        unreadable = _share(trace.unreadable, trace.events, "entries of the file")
        return f"{_sentence(unreadable)} cannot be read and are left out."
    if trace.how in ("repaired", "one by one"):
        rest = "" if trace.timeless else ", and all of its entries could be read"
        return f"The file is not valid JSON; its text was repaired{rest}."
    return ""


def _bad_times(trace: Trace) -> str:
    spans = sum(trace.categories.values())
    said = []
    if trace.timeless:
        said.append(f"{_share(trace.timeless, spans, 'spans')} have no time and are left out")
    if trace.backwards:
        said.append(f"{_share(trace.backwards, spans, 'spans')} end before they start and count as empty")
    if not said:
        return ""
    return f"{_sentence('; '.join(said))}: the file is damaged, and times and shares are too low. Record again."


def _nothing_there(losses: Losses) -> str:
    if losses.window is None:
        return "The trace holds no host and no device activity."
    if losses.window[0] == losses.window[1]:
        return "The window has no length: all shares are undefined."
    return ""


def _no_device_activity(losses: Losses) -> str:
    if losses.launches and not losses.device_work:
        return (
            f"{losses.launches:,} kernel launches, but no kernels: CUPTI or roctracer recorded nothing. Another"
            " profiler may use the GPU's counters, or the permission is missing; see gpuprof doctor."
        )
    return ""


def _kernels_lost(losses: Losses) -> str:
    missing = losses.launches_without_work - losses.launches_without_work_at_end
    if not missing or not losses.device_work:
        return ""
    return (
        f"The kernels of {_share(missing, losses.launches, 'launches')} are not in the trace: events were dropped, and"
        " GPU time is too low. Record fewer steps: TraceConfig(active=1)."
    )


def _launches_lost(losses: Losses) -> str:
    if not losses.lost:
        return ""
    return (
        f"The launches of {_share(losses.lost, losses.device_work, 'kernels and copies')} were dropped from the trace:"
        " these have no operator, line or phase."
    )


def _shared_ids(losses: Losses) -> str:
    if not losses.shared_ids:
        return ""
    return (
        f"{losses.shared_ids:,} launches share a correlation id: the trace may be of several processes, and which of"
        " them launched what is unknown. Give one trace for each process."
    )


def _clocks(losses: Losses) -> str:
    if not losses.starts_early:
        return ""
    return (
        f"{_sentence(_share(losses.starts_early, losses.matched, 'kernels and copies'))} start before their launch,"
        f" by up to {losses.starts_early_max_us:,.3g} us: the clocks of host and GPU disagree. Idle causes and launch"
        " times are off by as much."
    )


APART_FROM_US = 1000.0
"""Work may well begin after the last call of a short window, but no launch takes so long to reach its device."""


def _far_apart(losses: Losses) -> str:
    host, device = losses.host_window, losses.device_window
    if host is None or device is None or (host[0] <= device[1] and device[0] <= host[1]):
        return ""
    apart_us = max(device[0] - host[1], host[0] - device[1]) / 1000
    if apart_us < APART_FROM_US:
        return ""
    return (
        f"Host and GPU events are {apart_us:,.0f} us apart: their clocks disagree, and idle causes and launch times are"
        " wrong."
    )


def _overlaps(losses: Losses) -> str:
    if not losses.overlaps:
        return ""
    return (
        f"{_sentence(_share(losses.overlaps, losses.device_work, 'kernels and copies'))} begin before the previous one"
        " in their stream has ended. Graphs and programmatic dependent launches may do so; otherwise GPU times are"
        " wrong."
    )


def _crossing(losses: Losses) -> str:
    if not losses.crossing:
        return ""
    return f"{losses.crossing:,} operators outlast the operator around them: host times and self times are inexact."


def _steps(losses: Losses) -> str:
    found, names = [], losses.step_names
    if repeated := len(names) - len(set(names)):
        found.append(f"{repeated} step ranges repeat a number")
    if losses.steps_missing:
        found.append(f"{losses.steps_missing} step numbers are missing among {len(names)} steps")
    if losses.steps_overlapping:
        found.append(f"{losses.steps_overlapping} steps overlap others, as with two profilers, and are left out")
    return f"{_sentence(' and '.join(found))}: values per step may mix windows." if found else ""


def _cut_off(losses: Losses) -> str:
    if not losses.launches_without_work_at_end or not losses.device_work:
        return ""
    return (
        f"The kernels of the last {losses.launches_without_work_at_end:,} launches are not in the trace: recording"
        " ended before they ran."
    )


def _launched_before(losses: Losses) -> str:
    if not losses.before:
        return ""
    return (
        f"{_sentence(_share(losses.before, losses.device_work, 'kernels and copies'))} were launched before the window:"
        " they count as GPU time, but have no operator, line or phase."
    )


def _resolution(losses: Losses) -> str:
    if losses.resolution_ns != 1000 or not losses.device_work:
        return ""
    empty = f"; {losses.empty_kernels:,} kernels have a duration of 0" if losses.empty_kernels else ""
    return f"Times are whole microseconds: a kernel of a few is off by up to 1 us{empty}."


def _overhead(trace: Trace, losses: Losses) -> str:
    if losses.window is None:
        return ""
    spent_ns, window_ns = int(trace.overhead.duration_ns.sum()), losses.window[1] - losses.window[0]
    if spent_ns < OVERHEAD_RATIO * window_ns or not spent_ns:
        return ""
    share = f", {100 * spent_ns / window_ns:.0f} % of the window" if window_ns else ""
    return f"The profiler itself took {spent_ns / 1000:,.0f} us{share}."


def _outside_steps(losses: Losses) -> str:
    return "" if losses.step_names or losses.window is None else "The trace has no steps: values are per window."
