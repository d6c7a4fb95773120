"""The numbers of two runs before and after, judged where their uncertainty is known; samples of GPUs and host never."""

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from lightning_gpuprof.analyze.comparison import too_few
from lightning_gpuprof.analyze.comparison.judging import INTERVAL, Runs, noise, profiler_s
from lightning_gpuprof.analyze.comparison.resampling import Drawn
from lightning_gpuprof.model.comparison import Better, Change, Judgement, Outcome
from lightning_gpuprof.model.device import ERROR_COUNTERS
from lightning_gpuprof.model.host import HostUse, Level
from lightning_gpuprof.model.phases import PARTS, PHASES
from lightning_gpuprof.model.report import Device, PhaseRow, Report

MEMORY_FLOOR_BYTES = 64 * 2**20
"""Peaks of two runs of one program differ by less than this for no reason (heuristic)."""

TAIL_FACTOR = 2
"""The 95th percentile rests on a twentieth of the steps and on whatever disturbed them: it must differ by twice the
threshold (ours; chosen on 36 pairs of fits of one script on a crowded machine, of which 2 still differed by more)."""

NOTHING = Drawn(at=np.zeros(1))
"""Of a phase that took no time in any steady step."""

ONE_READING = "one measurement per run"
NEEDS_JOURNALS = "its uncertainty is known from journals only: name the folders of both runs, not report.json"

_NOT_SHOWN = frozenset((*ERROR_COUNTERS, "throttle_reasons", "memory_free_bytes"))

_UNITS = (("_ratio", "ratio"), ("_bytes", "bytes"), ("_mhz", "MHz"), ("_w", "W"), ("_c", "°C"))

OTHERS_CPU = "other programs' CPU"
"""Name of the row."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Interval of a difference."""

    low: float
    high: float
    few: str = ""
    """Why it is only the spread of the steps, too few of which are independent; empty if it is an interval of draws."""


def changed(name: str, unit: str, before: float | None, after: float | None) -> Change:
    """A number that is only shown, not judged.

    Args:
        name: What the number is.
        unit: Its unit, as :func:`with_unit` takes it.
        before: Of the earlier run. None: not known.
        after: Of the later run. None: not known.

    Returns:
        After minus before as the difference, None unless both are known; no outcome.
    """
    difference = None if before is None or after is None else after - before
    return Change(name=name, unit=unit, before=before, after=after, difference=difference)


def judged(
    row: Change,
    measure: str,
    *,
    least: tuple[float, float],
    ends: Ends | None = None,
    obstacle: str = "",
    why: str = "",
) -> Change:
    """The row with its outcome; less is an improvement.

    Args:
        row: The numbers.
        measure: Its name for ``--metric``.
        least: Smallest difference that counts, in the row's unit: where it fell, and where it rose.
        ends: Interval of the difference; None leaves the smallest difference to decide alone.
        obstacle: Why it cannot be judged; empty if it can.
        why: What to keep in mind.

    Returns:
        A copy; ``not comparable`` with the reason if a side was not measured or there is an obstacle.
    """
    missing = [side for side, value in (("earlier", row.before), ("later", row.after)) if value is None]
    if missing:
        obstacle = f"not measured in the {' and the '.join(missing)} run"
    if obstacle or row.difference is None:
        return _judged(row, measure, "not comparable", why=obstacle)
    sure = ends is None or ends.low > 0 or ends.high < 0
    outcome: Outcome = "within noise"
    if sure and abs(row.difference) >= least[row.difference > 0] and row.difference:
        outcome = "improved" if row.difference < 0 else "regressed"
    elif ends is not None and ends.few and not (-least[0] < ends.low and ends.high < least[1]):
        return _judged(row, measure, "not comparable", why=ends.few)
    shown = None if ends is None else (ends.low, ends.high)
    return _judged(row, measure, outcome, ends=shown, why=ends.few if ends is not None and ends.few else why)


def _judged(
    row: Change,
    measure: str,
    outcome: Outcome,
    *,
    better: Better = "lower",
    ends: tuple[float, float] | None = None,
    why: str,
) -> Change:
    return msgspec.structs.replace(
        row,
        lower=None if ends is None else ends[0],
        upper=None if ends is None else ends[1],
        measure=measure,
        outcome=outcome,
        better=better,
        why=why,
    )


def totals(runs: Runs, obstacle: str, training: Judgement, wall: Judgement) -> tuple[Change, ...]:
    """Median, 95th percentile and mean of the step time, samples/s, wall time.

    Args:
        runs: Both.
        obstacle: Why a step of one is not to be compared with a step of the other; empty if it is.
        training: Judgement of the throughput, for the row of samples/s.
        wall: Judgement of the wall time.

    Returns:
        In that order, in ms, samples/s and s; the wall time may have a second row, without the profiler's own time.
    """
    before, after, draws = runs.before, runs.after, runs.draws
    periods = before.steps.period_ms, after.steps.period_ms
    medians = [period.median if period else None for period in periods]
    tails = [period.p95 if period else None for period in periods]
    fell, rose = _noises(runs)
    of_median = None if draws is None else _ends(draws[0].median_ms, draws[1].median_ms, medians)
    of_tail = None
    if draws is not None and draws[0].p95_ms is not None and draws[1].p95_ms is not None:
        of_tail = _ends(draws[0].p95_ms, draws[1].p95_ms, tails)
    rate = changed("samples/s", "samples/s", before.steps.samples_per_s, after.steps.samples_per_s)
    if rate.before and rate.after:
        ends = None
        if training.lower is not None and training.upper is not None:
            ends = rate.before * (training.lower - 1), rate.before * (training.upper - 1)
        rate = _judged(rate, "throughput", training.outcome, better="higher", ends=ends, why=training.why)
    return (
        judged(
            changed("median step time", "ms", *medians),
            "step_time",
            least=(fell * (medians[0] or 0.0), rose * (medians[0] or 0.0)),
            ends=of_median,
            obstacle=obstacle,
        ),
        judged(
            changed("p95 step time", "ms", *tails),
            "p95",
            least=(TAIL_FACTOR * fell * (tails[0] or 0.0), TAIL_FACTOR * rose * (tails[0] or 0.0)),
            ends=of_tail,
            obstacle=obstacle or ("" if of_tail else NEEDS_JOURNALS),
        ),
        changed("mean step time", "ms", *(period.mean if period else None for period in periods)),
        rate,
        *_walls(runs, wall),
    )


def _walls(runs: Runs, wall: Judgement) -> Iterator[Change]:
    """The wall time, and what is judged of it: without what the profiler itself took at start and end."""
    totals_s = runs.before.wall.total_s, runs.after.wall.total_s
    row = changed("wall time", "s", *totals_s)
    own_s = profiler_s(runs)
    if any(own_s):
        yield row
        row = changed("net wall time", "s", totals_s[0] - own_s[0], totals_s[1] - own_s[1])
    yield _judged(row, "wall", wall.outcome, why=wall.why)


def phases(runs: Runs, obstacle: str) -> tuple[Change, ...]:
    """Median time per step of each phase.

    A change counts if it is at least the threshold's share of the step time, not of the phase, and its interval leaves
    0 out. The 5 % are divided among the phases (Bonferroni): of thirteen, one must not look changed by chance. Of
    reports alone, only a change beyond the spread of the phase counts.

    Args:
        runs: Both.
        obstacle: Why a step of one is not to be compared with a step of the other; empty if it is.

    Returns:
        In ms, in the order of ``PHASES``, of those that either run has.
    """
    draws = runs.draws
    known = [{row.phase: row for row in report.phases} for _, report in runs.named]
    sides = [{phase: row.median_ms for phase, row in rows.items()} for rows in known]
    shown = [phase for phase in PHASES if phase in sides[0] or phase in sides[1]]
    period = runs.before.steps.period_ms
    fell, rose = _noises(runs)
    whole = period.median if period else 0.0
    rows = []
    for phase in shown:
        values = [side.get(phase) for side in sides]
        ends = None
        if draws is not None and all(side.source == "journal" for side in draws):
            drawn = [side.phases_ms.get(phase, NOTHING) for side in draws]
            ends = _ends(drawn[0], drawn[1], values, among=len(shown))
        elif draws is not None:
            ends = _ends_of_reports(known[0].get(phase), known[1].get(phase))
        rows.append(
            judged(
                changed(phase, "ms", *values),
                f"phase.{phase}",
                least=(fell * whole, rose * whole),
                ends=ends,
                obstacle=obstacle or ("" if ends else NEEDS_JOURNALS),
            )
        )
    return tuple(rows)


def mean_phases(runs: Runs) -> tuple[Change, ...]:
    """Mean time per steady step of each phase, largest change first; empty unless both journals are there."""
    if runs.draws is None or any(side.source != "journal" for side in runs.draws):
        return ()
    before, after = (side.mean_phases_ms for side in runs.draws)
    rows = [
        changed(phase, "ms", before.get(phase, 0.0), after.get(phase, 0.0))
        for phase in PHASES
        if phase in before or phase in after
    ]
    return tuple(sorted(rows, key=lambda row: -abs(row.difference or 0.0)))


def parts(runs: Runs) -> tuple[Change, ...]:
    """Seconds of each part of the wall time of either run."""
    sides = runs.before.wall.parts, runs.after.wall.parts
    return tuple(
        changed(part, "s", sides[0].get(part), sides[1].get(part))
        for part in PARTS
        if part in sides[0] or part in sides[1]
    )


def memory(runs: Runs, obstacle: str) -> tuple[Change, ...]:
    """Peaks of the process and of torch's allocator on each device.

    Args:
        runs: Both.
        obstacle: Why those of one are not to be compared with those of the other; empty if they are.

    Returns:
        In bytes, the process first; without those that are 0 or not known in both.
    """
    sides = [dict(_peaks(report)) for _, report in runs.named]
    rows = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        values = [side.get(name) for side in sides]
        if not any(values):
            continue
        least = max(runs.threshold_ratio * (values[0] or 0.0), MEMORY_FLOOR_BYTES)
        rows.append(
            judged(
                changed(name, "bytes", *values),
                f"memory.{name.replace(' ', '_')}",
                least=(least, least),
                obstacle=obstacle,
                why=ONE_READING,
            )
        )
    return tuple(rows)


def _peaks(report: Report) -> Iterator[tuple[str, float | None]]:
    yield "process rss", report.memory.process_rss_peak_bytes
    for device in report.memory.devices:
        yield f"{device.name} allocated", device.allocated_peak_bytes
        yield f"{device.name} reserved", device.reserved_peak_bytes


def _noises(runs: Runs) -> tuple[float, float]:
    """Shares of a time below which it does not count that it fell, or rose."""
    return 1 - math.exp(-noise(runs, slower=False)), math.expm1(noise(runs, slower=True))


def _ends(before: Drawn, after: Drawn, values: list[float | None], *, among: int = 1) -> Ends | None:
    """Interval of the difference around that of the values; the 5 % outside are divided among so many."""
    if values[0] is None or values[1] is None:
        return None
    difference = values[1] - values[0]
    few = too_few.interval_obstacle(before, after)
    if few and too_few.levels_apart(before, after) and before.levels and after.levels:
        low, high = after.levels[0] - before.levels[1], after.levels[1] - before.levels[0]
        return Ends(low=low, high=high, few=too_few.levels_words(before, after))
    if few:
        low, high = too_few.ends(before.usual, after.usual, (values[0], values[1]))
        return Ends(low=low, high=high, few=few)
    drawn = after.at - before.at
    low, high = np.quantile(drawn, [INTERVAL[0] / among, 1 - INTERVAL[0] / among])
    shift = difference - float(np.median(drawn))
    return Ends(low=float(low) + shift, high=float(high) + shift)


def _ends_of_reports(before: PhaseRow | None, after: PhaseRow | None) -> Ends | None:
    """What two reports say without their journals: the spread of a phase, for how far apart nobody can doubt."""
    if before is None or before.median_ms is None or before.p95_ms is None:
        return None
    if after is None or after.median_ms is None or after.p95_ms is None:
        return None
    usual = [(row.p05_ms or 0.0, max(row.p95_ms or 0.0, row.p05_ms or 0.0)) for row in (before, after)]
    low, high = too_few.ends(usual[0], usual[1], (before.median_ms, after.median_ms))
    return Ends(low=low, high=high, few=NEEDS_JOURNALS)


def devices(runs: Runs) -> tuple[Change, ...]:
    """Medians of the samples of GPUs that both runs have, by their place; only what was measured in both."""
    sides = [{device.subject: device for device in report.devices} for _, report in runs.named]
    return tuple(
        row for subject in sides[0] if subject in sides[1] for row in _device(sides[0][subject], sides[1][subject])
    )


def _device(before: Device, after: Device) -> Iterator[Change]:
    who = before.subject or "GPU"
    for field, first in before.values.items():
        second = after.values.get(field)
        if field in _NOT_SHOWN or first is None or second is None:
            continue
        suffix, unit = next((pair for pair in _UNITS if field.endswith(pair[0])), ("", ""))
        name = field.removesuffix(suffix).replace("_", " ")
        yield changed(f"{who} {name}", unit, first.median, second.median)
    if before.energy is not None and after.energy is not None:
        yield changed(f"{who} energy per step", "J", before.energy.per_step_j, after.energy.per_step_j)


def host(runs: Runs) -> tuple[Change, ...]:
    """Means of the samples of the host; only what was measured in both."""
    sides = [dict(_host(report.host)) for _, report in runs.named]
    return tuple(
        changed(name, unit, sides[0][name, unit], sides[1][name, unit])
        for name, unit in sides[0]
        if sides[0][name, unit] is not None and sides[1].get((name, unit)) is not None
    )


def _host(use: HostUse) -> Iterator[tuple[tuple[str, str], float | None]]:
    for name, process in (("process", use.process), ("workers", use.workers)):
        if process is not None:
            yield (f"{name} CPU", "CPUs"), _mean(process.cpu_cpus)
            yield (f"{name} waiting for a CPU", "ratio"), _mean(process.run_delay_ratio)
            yield (f"{name} resident memory", "bytes"), _mean(process.rss_bytes)
            yield (f"{name} read from disk", "bytes/s"), _mean(process.read_bytes_per_s)
    if use.machine is not None:
        yield (OTHERS_CPU, "CPUs"), _mean(use.machine.cpu_others_cpus)
        yield ("CPUs busy", "ratio"), _mean(use.machine.cpu_busy_ratio)
        yield ("swapped in", "bytes/s"), _mean(use.machine.swap_in_bytes_per_s)
    if use.cgroup is not None:
        yield ("quota used up", "ratio"), use.cgroup.throttled_ratio
    if use.gc is not None:
        yield ("garbage collector", "ratio"), use.gc.pause_ratio


def _mean(level: Level | None) -> float | None:
    return None if level is None else level.mean
