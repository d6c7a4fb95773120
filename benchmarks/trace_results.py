"""From what readers needed in each round to medians, ratios to ours, stages and what was wanted; and to tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from paired import Interval, Multiple, bootstrap, multiple, times
from rich.table import Table
from trace_reading import Reading

OURS = "ours"
AS_HTA = "ours-as-hta"
"""Ours with the analyses that HolisticTraceAnalysis has."""
BIG_MB = 500
"""JSON from which more is wanted: what others do event by event weighs more there."""
SMALLEST_SHARE = 0.01
"""Stages that take less than this share of the work stand in one row."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process."""

    process_s: float
    """From its start to its end."""
    reading: Reading | None
    failed: str = ""
    """Why there is no reading."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """The main numbers of a run."""

    work_s: float
    imports_s: float
    process_s: float
    peak_mb: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one reader needed for one file, over rounds; seconds and MB are medians."""

    reader: str
    failed: str
    """Why it could not do it; then there is nothing else."""
    work_s: Interval | None = None
    """From the file to the last result, without imports."""
    mb_per_s: float | None = None
    """JSON, decompressed, per second of that."""
    cpu_s: float | None = None
    imports_s: float | None = None
    process_s: float | None = None
    peak_mb: Interval | None = None
    started_mb: float | None = None
    """The part of the peak that is of a second process."""
    peaks_mb: Mapping[str, float] = field(default_factory=dict)
    """Of the process, up to the end of its imports and of its stages."""
    times_ours: Multiple | None = None
    """The work as a multiple of that of ours in the same rounds."""
    memory_times_ours: Multiple | None = None
    """The same of the peak."""
    parts_s: dict[str, float]
    problems: tuple[str, ...] = ()
    rounds: tuple[Round, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command as a user types it, from the start of its process to its end: imports, reading, analyses, output."""

    command: str
    process_s: Interval
    mb_per_s: float
    """JSON, decompressed, per second of that."""
    hta_times: Multiple | None
    """The whole process of HolisticTraceAnalysis as a multiple of it in the same rounds."""
    rounds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FileResult:
    """All readers of one file, and our commands."""

    file: str
    json_mb: float
    file_mb: float
    rounds: int
    results: tuple[Result, ...]
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """A number that was wanted, and what it is."""

    file: str
    what: str
    wanted: float
    at_least: bool
    """Otherwise at most so much."""
    measured: float | None
    low: float | None
    high: float | None

    @property
    def met(self) -> bool | None:
        """Whether the median is as wanted; None where nothing was measured."""
        if self.measured is None:
            return None
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


def summarise(runs: Mapping[str, Sequence[Run]], json_mb: float, rng: np.random.Generator) -> tuple[Result, ...]:
    """Each reader over its rounds, and against ours in the same rounds."""
    ours = _readings(runs.get(OURS, ()))
    return tuple(_summary(reader, of, ours, json_mb, rng) for reader, of in runs.items())


def commands_of(
    took_s: Mapping[str, Sequence[float]], hta: Sequence[Run], json_mb: float, rng: np.random.Generator
) -> tuple[Command, ...]:
    """Each command over its rounds, and HolisticTraceAnalysis against it.

    Args:
        took_s: Seconds of the whole process in each round, by command.
        hta: The runs of HolisticTraceAnalysis in the same rounds; empty if it is not there.
        json_mb: Size of the trace.
        rng: Of the bootstrap.
    """
    hta_s = [run.process_s for run in hta] if _readings(hta) else []
    return tuple(
        Command(
            command=command,
            process_s=bootstrap(list(took), rng),
            mb_per_s=json_mb / float(np.median(took)),
            hta_times=multiple(hta_s, list(took), rng) if len(hta_s) == len(took) else None,
            rounds=tuple(took),
        )
        for command, took in took_s.items()
    )


def _readings(runs: Sequence[Run]) -> list[Reading]:
    """Nothing if any round failed: a median of the others would be of the better rounds only."""
    readings = [run.reading for run in runs if run.reading is not None]
    return readings if len(readings) == len(runs) else []


def _summary(
    reader: str, runs: Sequence[Run], ours: Sequence[Reading], json_mb: float, rng: np.random.Generator
) -> Result:
    readings = _readings(runs)
    if not readings:
        return Result(reader=reader, failed=next(run.failed for run in runs if run.reading is None), parts_s={})
    work_s = [reading.work_s for reading in readings]
    peak_mb = [reading.peak_mb for reading in readings]
    compared = reader != OURS and len(ours) == len(readings)
    return Result(
        reader=reader,
        failed="",
        work_s=bootstrap(work_s, rng),
        mb_per_s=json_mb / float(np.median(work_s)),
        cpu_s=float(np.median([reading.cpu_s for reading in readings])),
        imports_s=float(np.median([reading.imports_s for reading in readings])),
        process_s=float(np.median([run.process_s for run in runs])),
        peak_mb=bootstrap(peak_mb, rng),
        started_mb=float(np.median([reading.started_mb for reading in readings])),
        peaks_mb=_medians([reading.peaks_mb for reading in readings]),
        times_ours=multiple(work_s, [each.work_s for each in ours], rng) if compared else None,
        memory_times_ours=multiple(peak_mb, [each.peak_mb for each in ours], rng) if compared else None,
        parts_s=_medians([reading.parts_s for reading in readings]),
        problems=tuple(dict.fromkeys(problem for reading in readings for problem in reading.problems)),
        rounds=tuple(
            Round(work_s=each.work_s, imports_s=each.imports_s, process_s=run.process_s, peak_mb=each.peak_mb)
            for run, each in zip(runs, readings, strict=True)
        ),
    )


def _medians(of_rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for values in of_rounds for name in values)
    return {name: float(np.median([values.get(name, 0.0) for values in of_rounds])) for name in names}


def targets_of(found: FileResult) -> list[Target]:
    """What was wanted for a file: against HolisticTraceAnalysis with the same analyses, and in MB of JSON a second."""
    of = {result.reader: result for result in found.results}
    ours, hta, alike = of.get(OURS), of.get("hta"), of.get(AS_HTA)
    rounds = (hta.rounds, alike.rounds) if hta and alike and len(hta.rounds) == len(alike.rounds) > 0 else None
    rng = np.random.default_rng(len(found.results))
    big = found.json_mb >= BIG_MB
    more_time, less_memory = (15.0, 10.0) if big else (10.0, 6.0)

    def target(what: str, wanted: float, value: Interval | Multiple | None, at_least: bool = True) -> Target:
        median, low, high = (value.median, value.low, value.high) if value else (None, None, None)
        return Target(file=found.file, what=what, wanted=wanted, at_least=at_least, measured=median, low=low, high=high)

    work_s = ours.work_s if ours else None
    speed = work_s and Interval(
        median=found.json_mb / work_s.median, low=found.json_mb / work_s.high, high=found.json_mb / work_s.low
    )
    targets = [
        target(
            "HTA's time, x ours for the same",
            more_time,
            rounds and multiple([one.work_s for one in rounds[0]], [one.work_s for one in rounds[1]], rng),
        ),
        target(
            "HTA's memory, x ours for the same",
            less_memory,
            rounds and multiple([one.peak_mb for one in rounds[0]], [one.peak_mb for one in rounds[1]], rng),
        ),
        target("MB of JSON a second, all analyses without stacks", 150, speed),
    ]
    more = 20.0 if big else 10.0
    targets += [
        target(f"HTA's whole process, x {command.command}", more, command.hta_times) for command in found.commands
    ]
    if big:
        targets.append(target("peak memory, MB", 400, ours.peak_mb if ours else None, at_least=False))
    return targets


def as_table(found: FileResult) -> Table:
    """Readers of one file, for a person."""
    compressed = f" in a file of {found.file_mb:.1f} MB" if found.file_mb < found.json_mb else ""
    rounds = f"{found.rounds} rounds" if found.rounds > 1 else "one round, so without intervals"
    table = Table(
        title=f"{found.file}: {found.json_mb:.0f} MB of JSON{compressed}, {rounds}",
        caption="work: from the file to the last result, without imports; CPU: of the work; peak: resident memory of "
        "all its processes; import: the same of the imports alone; whole: from the start of the process to its end",
    )
    table.add_column("reader", no_wrap=True)
    headings = ("work s", "x ours", "MB/s", "CPU s", "peak MB", "x ours", "import MB", "import s", "whole s")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in found.results:
        if result.work_s is None or result.peak_mb is None:
            table.add_row(result.reader, "failed", *["-"] * (len(headings) - 1))
            continue
        alone = result.reader == OURS
        table.add_row(
            result.reader,
            f"{result.work_s.median:.2f}",
            "1" if alone else _times(result.times_ours, found.rounds),
            f"{result.mb_per_s:.0f}",
            f"{result.cpu_s:.2f}",
            f"{result.peak_mb.median:.0f}",
            "1" if alone else _times(result.memory_times_ours, found.rounds),
            f"{result.peaks_mb['imports']:.0f}",
            f"{result.imports_s:.2f}",
            f"{result.process_s:.2f}",
        )
    return table


def as_table_of_commands(found: FileResult) -> Table | None:
    """Our commands, whole, for a person; None if none was run."""
    if not found.commands:
        return None
    table = Table(title=f"{found.file}: commands from the start of their process to its end")
    for heading in ("command", "s", "MB/s", "HTA's whole process, x"):
        table.add_column(heading, justify="left" if heading == "command" else "right", no_wrap=True)
    for one in found.commands:
        hta_times = _times(one.hta_times, found.rounds)
        table.add_row(one.command, f"{one.process_s.median:.2f}", f"{one.mb_per_s:.0f}", hta_times)
    return table


def _times(value: Multiple | None, rounds: int) -> str:
    if value is None or value.median is None:
        return "-"
    return times(value) if rounds > 1 else f"{value.median:.1f}"


def as_table_of_stages(found: FileResult, readers: Sequence[str]) -> Table | None:
    """Where the time of ours goes, for a person; None if it was not measured."""
    shown = [result for result in found.results if result.reader in readers and result.work_s is not None]
    if not shown:
        return None
    table = Table(title=f"{found.file}: where time (ms, % of the work) and memory go")
    table.add_column("stage")
    for result in shown:
        table.add_column(result.reader, justify="right")
    rows: dict[str, list[float]] = {}
    for number, result in enumerate(shown):
        for name, seconds in result.parts_s.items():
            rows.setdefault(name, [0.0] * len(shown))[number] = seconds
    work_s = [result.work_s.median for result in shown if result.work_s is not None]
    small = [0.0] * len(shown)
    for kind in dict.fromkeys(name.partition(": ")[0] for name in rows):
        of_kind = {name: values for name, values in rows.items() if name.partition(": ")[0] == kind}
        table.add_row(
            kind, *_shares([sum(column) for column in zip(*of_kind.values(), strict=True)], work_s), style="bold"
        )
        for name, values in of_kind.items():
            if max(value / of for value, of in zip(values, work_s, strict=True)) >= SMALLEST_SHARE:
                table.add_row(f"  {name.partition(': ')[2] or name}", *_shares(values, work_s))
            else:
                small = [before + value for before, value in zip(small, values, strict=True)]
    table.add_row(
        f"those below {SMALLEST_SHARE:.0%} each, which are in the sums above", *_shares(small, work_s), style="dim"
    )
    for name in dict.fromkeys(name for result in shown for name in result.peaks_mb):
        table.add_row(f"peak at the end of the {name}", *(f"{result.peaks_mb.get(name, 0):.0f} MB" for result in shown))
    if any(result.started_mb for result in shown):
        table.add_row("peak of the second process", *(f"{result.started_mb:.0f} MB" for result in shown))
    return table


def _shares(values: Sequence[float], work_s: Sequence[float]) -> list[str]:
    return [f"{value * 1e3:.0f}  {value / of:4.0%}" for value, of in zip(values, work_s, strict=True)]


def as_table_of_targets(targets: Sequence[Target]) -> Table:
    """What was wanted and what is, for a person."""
    table = Table(title="What was wanted", caption="met: the median; whether the interval is, too, is to be read there")
    for heading in ("file", "what"):
        table.add_column(heading, no_wrap=True)
    for heading in ("wanted", "measured", "interval", "met"):
        table.add_column(heading, justify="right")
    for target in targets:
        bounds = ["∞" if bound is None else f"{bound:.1f}" for bound in (target.low, target.high)]
        table.add_row(
            target.file,
            target.what,
            f"{'≥' if target.at_least else '≤'} {target.wanted:g}",
            "not measured" if target.measured is None else f"{target.measured:.1f}",
            "-" if target.measured is None or target.low == target.high else " to ".join(bounds),
            {True: "yes", False: "NO", None: "-"}[target.met],
        )
    return table
