"""What the machine, this process and its workers did during the steps."""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from lightning_gpuprof.analyze import during_steps
from lightning_gpuprof.analyze.during_steps import StepTime
from lightning_gpuprof.analyze.gc_use import gc_use
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.signals import values_of
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.trend import trend
from lightning_gpuprof.analyze.windows_cost import stretches
from lightning_gpuprof.model.host import (
    GroupUse,
    HostUse,
    Level,
    MachineUse,
    MemoryGrowth,
    PressureUse,
    ProcessUse,
    Reading,
    ThreadUse,
    WorkerUse,
)
from lightning_gpuprof.model.journal import PROFILED, Sample

Series = Sequence[tuple[Sample, float]]
"""Samples of one subject during the steps, each with the seconds since the one before."""

_WORKER = re.compile(r"worker(\d+)")
_EVEN_SAMPLES = 200
"""At most, where the memory of a young run was looked at more often than that of an old one."""
_TRAFFIC = {"disk_bytes": "read_bytes_per_s", "call_bytes": "read_call_bytes_per_s"}


def host_use(journal: Journal, steady_from_ns: int | None = None) -> HostUse:
    """Summarise the host's samples.

    Args:
        journal: One rank's journal.
        steady_from_ns: From when on growth of memory is looked for; None: from the first step on.

    Returns:
        Groups of values that were never sampled are None or empty.
    """
    found = during_steps.host_samples(journal)
    time = StepTime(journal)
    n = len(journal.steps)
    period_s = float(journal.steps.period_ns.sum()) / n / 1e9 if n else None
    usable = journal.conditions.get("cpu.usable")
    rows = sorted((int(m.group(1)), series) for s, series in found.items() if (m := _WORKER.fullmatch(s)))
    epochs = _epochs(found, time)
    return HostUse(
        samples=len(found.get("process", ())),
        usable_cpus=float(usable) if isinstance(usable, (int, float)) else None,
        process=_process(found.get("process", ()), single=True),
        threads=_threads(found),
        workers=_process_group(found.get("workers", ())),
        worker_rows=tuple(
            WorkerUse(number=number, samples=len(series), use=use)
            for number, series in rows
            if (use := _process(series, single=True)) is not None
        ),
        children=_process_group(found.get("children", ())),
        machine=_machine(found.get("host", ()), journal),
        pressure=(*_pressure("machine", found.get("host", ())), *_pressure("cgroup", found.get("cgroup", ()))),
        cgroup=_group(found.get("cgroup", ()), journal),
        gc=gc_use(found.get("gc", ()), [s for s in journal.samples if s.subject == "gc_pause"], time, period_s),
        growth=_growth(journal, found, steady_from_ns, period_s),
        first_epoch=_reading(epochs, lambda epoch: epoch == min(epochs)),
        later_epochs=_reading(epochs, lambda epoch: epoch > min(epochs)),
    )


def _values(series: Series, name: str) -> list[float]:
    return values_of((sample for sample, _ in series), name)


def level(series: Series, name: str) -> Level | None:
    """Mean and largest of a value.

    Args:
        series: Samples, each with the seconds since the one before.
        name: Of the value in the samples.

    Returns:
        In the unit of the value; samples count by their seconds in the mean. None if it was never read.
    """
    mean = _mean(series, name)
    return None if mean is None else Level(mean=mean, max=max(_values(series, name)))


def _mean(series: Series, name: str) -> float | None:
    """Mean over the time: the intervals of a long run grow. The first sample of a subject counts as a usual one."""
    found = [(value, seconds) for sample, seconds in series if (value := sample.values.get(name)) is not None]
    if not found:
        return None
    usual_s = statistics.median([seconds for _, seconds in found if seconds] or [1.0])
    weights = [seconds or usual_s for _, seconds in found]
    return math.fsum(value * weight for (value, _), weight in zip(found, weights, strict=True)) / math.fsum(weights)


def _min(series: Series, name: str) -> float | None:
    return min(_values(series, name), default=None)


def _sum(series: Series, name: str) -> float | None:
    values = _values(series, name)
    return sum(values) if values else None


def _of_the_same_names(kind: type[msgspec.Struct], series: Series) -> dict[str, Any]:
    """Each field from the samples' value of the same name: its level, or the mean where the field is a number."""
    return {
        field.name: level(series, field.name) if field.type == Level | None else _mean(series, field.name)
        for field in msgspec.structs.fields(kind)
    }


def _process(series: Series, *, single: bool) -> ProcessUse | None:
    if not series:
        return None
    values = _of_the_same_names(ProcessUse, series)
    values["threads_count"] = max(_values(series, "threads_count"), default=None)
    found = ProcessUse(**values)
    if not single or found.cpu_cpus is None or found.run_delay_ratio is None:
        return found
    io_wait = found.io_wait_ratio.mean if found.io_wait_ratio is not None else 0.0
    waiting = max(0.0, 1.0 - found.cpu_cpus.mean - found.run_delay_ratio.mean - io_wait)
    return msgspec.structs.replace(found, waiting_ratio=waiting)


def _process_group(series: Series) -> ProcessUse | None:
    """Workers or other children; None if there never were any."""
    return _process(series, single=False) if any(_values(series, "count")) else None


def _threads(found: Mapping[str, Series]) -> tuple[ThreadUse, ...]:
    rows = [
        ThreadUse(
            kind=subject.removeprefix("thread."),
            threads_count=max(_values(series, "threads_count"), default=0.0),
            cpu_cpus=_mean(series, "cpu_cpus"),
            run_delay_ratio=_mean(series, "run_delay_ratio"),
        )
        for subject, series in found.items()
        if subject.startswith("thread.")
    ]
    return tuple(sorted(rows, key=lambda row: -(row.cpu_cpus or 0.0)))


def _machine(series: Series, journal: Journal) -> MachineUse | None:
    if not series:
        return None
    swap_in, swap_out = _values(series, "swap_in_bytes_per_s"), _values(series, "swap_out_bytes_per_s")
    own = {
        "memory_total_bytes": _fact(journal, "host.memory_total_bytes"),
        "memory_available_min_bytes": _min(series, "memory_available_bytes"),
        "swapping_samples": (
            sum(a > 0 or b > 0 for a, b in zip(swap_in, swap_out, strict=True))
            if swap_in and len(swap_in) == len(swap_out)
            else None
        ),
        "shm_size_bytes": _fact(journal, "host.shm_size_bytes"),
        "shm_free_min_bytes": _min(series, "shm_free_bytes"),
    }
    return MachineUse(**_of_the_same_names(MachineUse, series) | own)


def _fact(journal: Journal, name: str) -> float | None:
    value = journal.conditions.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _pressure(scope: str, series: Series) -> tuple[PressureUse, ...]:
    rows = [
        PressureUse(
            scope=scope,
            resource=resource,
            some_ratio=level(series, f"pressure_{resource}_some_ratio"),
            full_ratio=level(series, f"pressure_{resource}_full_ratio"),
        )
        for resource in ("cpu", "memory", "io")
    ]
    return tuple(row for row in rows if row.some_ratio is not None or row.full_ratio is not None)


def _group(series: Series, journal: Journal) -> GroupUse | None:
    quota, limit = _fact(journal, "host.cpu_quota_cpus"), _fact(journal, "host.memory_limit_bytes")
    if not series and quota is None and limit is None:
        return None
    periods, throttled = _sum(series, "cpu_periods_count"), _sum(series, "cpu_throttled_count")
    held_s = _sum(series, "cpu_throttled_s")
    seconds = sum(s for sample, s in series if sample.values.get("cpu_throttled_s") is not None)
    found = GroupUse(
        quota_cpus=quota,
        memory_limit_bytes=limit,
        memory_used_bytes=level(series, "memory_used_bytes"),
        memory_working_bytes=level(series, "memory_working_bytes"),
        memory_used_ratio=level(series, "memory_used_ratio"),
        memory_high_count=_sum(series, "memory_high_count"),
        memory_max_count=_sum(series, "memory_max_count"),
        oom_kill_count=_sum(series, "oom_kill_count"),
        periods_count=periods,
        throttled_count=throttled,
        throttled_ratio=throttled / periods if throttled is not None and periods else None,
        throttled_cpus=held_s / seconds if held_s is not None and seconds else None,
    )
    return found if found != GroupUse() else None


def _growth(
    journal: Journal, found: Mapping[str, Series], from_ns: int | None, period_s: float | None
) -> tuple[MemoryGrowth, ...]:
    rows = []
    for subject in ("process", "workers"):
        for name, of in (("rss_bytes", subject), ("pss_bytes", f"{subject}_pss")):
            own = [
                (sample.t_ns, value)
                for sample, _ in found.get(subject, ())
                if (value := sample.values.get(name)) and (from_ns is None or sample.t_ns >= from_ns)
            ]
            row = growth(of, [t for t, _ in own], [v for _, v in own], period_s)
            if row is not None:
                rows.append(row)
    private = sorted(
        (sample.t_ns, rss - shared)
        for subject in ("process", "process_memory")
        for sample, _ in found.get(subject, ())
        if from_ns is None or sample.t_ns >= from_ns
        if (rss := sample.values.get("rss_bytes")) and (shared := sample.values.get("shared_bytes")) is not None
    )
    row = growth("process_private", *_between_windows(journal, _evenly(private)), period_s)
    return (*rows, row) if row is not None else tuple(rows)


def _evenly(samples: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Of a long run's first seconds no more than of later ones."""
    kept: list[tuple[int, float]] = []
    apart_ns = (samples[-1][0] - samples[0][0]) / _EVEN_SAMPLES if samples else 0
    for t_ns, value in samples:
        if not kept or t_ns - kept[-1][0] >= apart_ns:
            kept.append((t_ns, value))
    return kept


def _between_windows(journal: Journal, samples: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Times and bytes without those of trace windows and what they have left in this process's memory.

    Time stands still in a window, from its warm-up until its trace is written, and so does the memory.
    """
    steps = journal.steps
    held = [
        (int(steps.start_ns[a]), int(steps.start_ns[b - 1] + steps.period_ns[b - 1]))
        for a, b in stretches((steps.flags & PROFILED) != 0)
    ]
    held += [(w.start_ns, w.written_ns) for w in journal.windows if w.written_ns]
    t_ns: list[int] = []
    values: list[float] = []
    gone_ns, gone = 0, 0.0
    last: tuple[int, float] | None = None
    inside = False
    for now_ns, value in samples:
        if any(begin <= now_ns <= end for begin, end in held):
            inside = True
            continue
        between = last is not None and (inside or any(last[0] < begin and end < now_ns for begin, end in held))
        if between and last is not None:
            gone_ns, gone = gone_ns + now_ns - last[0], gone + value - last[1]
        last, inside = (now_ns, value), False
        t_ns.append(now_ns - gone_ns)
        values.append(value - gone)
    return t_ns, values


def _epochs(found: Mapping[str, Series], time: StepTime) -> dict[int, Reading]:
    """What was read in each epoch by this process and its workers; a sample counts where it was taken."""
    epochs: dict[int, Reading] = {}
    for subject in ("process", "workers"):
        for sample, seconds in found.get(subject, ()):
            where = time.at(sample.t_ns)
            if where is None or not seconds:
                continue
            before = epochs.get(where[1]) or Reading(epochs=1, seconds=0.0, disk_bytes=None, call_bytes=None)
            read = {
                field: (getattr(before, field) or 0.0) + rate * seconds
                for field, name in _TRAFFIC.items()
                if (rate := sample.values.get(name)) is not None
            }
            spent_s = before.seconds + (seconds if subject == "process" else 0.0)
            epochs[where[1]] = msgspec.structs.replace(before, seconds=spent_s, **read)
    return epochs


def _reading(epochs: Mapping[int, Reading], wanted: Callable[[int], bool]) -> Reading | None:
    chosen = [reading for epoch, reading in epochs.items() if wanted(epoch)]
    if not chosen:
        return None

    def total(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Reading(
        epochs=len(chosen),
        seconds=sum(reading.seconds for reading in chosen),
        disk_bytes=total([reading.disk_bytes for reading in chosen]),
        call_bytes=total([reading.call_bytes for reading in chosen]),
    )


MIN_SAMPLES = 20
LEVELS = 4
"""Heuristic: so many flat levels are three jumps, as where layers are unfrozen one after the other."""
_MIN_LEVEL_SAMPLES = 4
"""Heuristic: with 5, jumps in 20 samples are often nearer to each other than that; with 3, noise of a tenth of the
growth hides a fifth of leaks."""
_MAX_LEVELS_SAMPLES = 200
"""Of more, so many are taken evenly: all pairs of ends are compared."""


def growth(of: str, t_ns: Sequence[int], values: Sequence[float], period_s: float | None) -> MemoryGrowth | None:
    """Slope and chance by :func:`~lightning_gpuprof.analyze.trend.trend`.

    Args:
        of: Whose memory.
        t_ns: When it was read, rising.
        values: Bytes.
        period_s: Mean time of a step; None if not known.

    Returns:
        In bytes per s and per step. None below 20 samples, or if no trend can be computed.
    """
    if len(values) < MIN_SAMPLES:
        return None
    level, t_s = np.asarray(values, np.float64), np.asarray(t_ns, np.float64) / 1e9
    found = trend(t_s, level)
    if found is None or not np.isfinite(level).all():
        return None
    tenth = max(1, len(level) // 10)
    half = int(np.searchsorted(t_s, (t_s[0] + t_s[-1]) / 2))  # of the time: the first seconds have most samples
    late = trend(t_s[half:], level[half:])
    return MemoryGrowth(
        of=of,
        slope_bytes_per_s=found.slope,
        slope_bytes_per_step=None if period_s is None else found.slope * period_s,
        first_bytes=float(np.median(level[:tenth])),
        last_bytes=float(np.median(level[-tenth:])),
        p_value=found.p_value,
        samples=len(values),
        late_slope_bytes_per_s=None if late is None else late.slope,
        levels_ratio=_levels_ratio(np.asarray(t_ns, np.float64), level),
    )


def _levels_ratio(t_ns: Floats, level: Floats) -> float | None:
    """Squares that the best flat levels leave over those that a straight line leaves (segmented least squares)."""
    kept = np.linspace(0, len(level) - 1, min(len(level), _MAX_LEVELS_SAMPLES)).astype(np.int64)
    t_s, mb = (t_ns[kept] - t_ns[0]) / 1e9, (level[kept] - level.mean()) / 1e6
    sums, squares = (np.concatenate(([0.0], np.cumsum(mb**power))) for power in (1, 2))
    ends = np.arange(len(mb) + 1)
    samples = ends[None, :] - ends[:, None]
    flat = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / np.maximum(samples, 1)
    flat[samples < _MIN_LEVEL_SAMPLES] = np.inf
    best = flat[0]
    for _ in range(LEVELS - 1):
        best = np.min(best[:, None] + flat, axis=0)
    line = float(((mb - np.polyval(np.polyfit(t_s, mb, 1), t_s)) ** 2).sum())
    return float(best[-1]) / line if line > 0 else None
