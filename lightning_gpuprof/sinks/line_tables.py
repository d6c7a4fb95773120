"""Tables of lines that line_profiler or Scalene timed, beside what was sampled."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.report import LineRow, Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, NUMBER, PERCENT, SIZE, Column, Table, bar, name

TOP = 30
_CODE_CELLS = 60


_BLOCKED = (
    "of it, sampled ten times a second: the main thread was asleep, or waited for a file, a lock or another thread, "
    "also one that computes for it. Not the time without a CPU or the interpreter, nor most waits for a GPU: "
    "they keep the CPU busy"
)


def timed_tables(functions: Sequence[FunctionTimes], sampled: Sequence[LineRow] = (), limit: int = TOP) -> list[Table]:
    """A table for each function: hits, time, per hit, share, content, as line_profiler has them, and blocked.

    Args:
        functions: Those that were timed.
        sampled: What this profiler says of the run's lines.
        limit: Most rows of each: those with most time, in the order of the code.

    Returns:
        In the order of the functions. Times in ms, per hit in µs; what was not measured has no column.
    """
    return [_table(one, _shares(one, sampled), limit) for one in functions]


def timed_note(report: Report) -> str:
    """What these times are not, on a GPU; empty for a run on something else."""
    if report.run.get("device.type") != "cuda":
        return ""
    return "Host times: a line that waits for the GPU gets the GPU's time; one that only launches looks cheap."


def _shares(function: FunctionTimes, sampled: Sequence[LineRow]) -> dict[int, float]:
    """The share of each line of its file, which one of both may name with more of its path."""
    own, files = _path(function.file), defaultdict[tuple[str, ...], dict[int, float]](dict)
    for row in sampled:
        file, _, line = row.place.rpartition(" ")[0].rpartition(":")
        parts = _path(file)
        shorter = min(len(parts), len(own))
        if line.isdigit() and shorter and parts[-shorter:] == own[-shorter:]:
            shares = files[parts]
            shares[int(line)] = shares.get(int(line), 0.0) + row.share
    within = [parts for parts in files if len(parts) <= len(own)]
    if within:
        return files[max(within, key=len)]
    return next(iter(files.values())) if len(files) == 1 else {}  # of several it is not known which one is meant


def _blocked_ms(line: TimedLine) -> float | None:
    return None if line.blocked_ratio is None else line.blocked_ratio * line.total_s * 1e3


def _path(file: str) -> tuple[str, ...]:
    return tuple(part for part in PurePath(file).parts if part != "..")


def _table(function: FunctionTimes, shares: Mapping[int, float], limit: int) -> Table:
    total, file = function.total_s, PurePath(function.file).name
    most = sorted(function.lines, key=lambda line: -line.total_s)[:limit]
    largest = max((line.total_s for line in most), default=0.0)
    shown = sorted(most, key=lambda line: line.line)
    columns: list[Column[TimedLine]] = [
        Column("line", lambda line: line.line, COUNT),
        Column("code", lambda line: line.code, name(_CODE_CELLS)),
        bar(lambda line: line.total_s / largest if largest else 0.0),
        Column("time", lambda line: line.total_s * 1e3, NUMBER.in_unit("ms"), help="with all that it calls"),
        Column("of these", lambda line: line.total_s / total if total else None, PERCENT, help="of all lines here"),
    ]
    if any(line.hits for line in shown):
        columns += [
            Column("hits", lambda line: line.hits, COUNT),
            Column("per hit", lambda line: line.total_s * 1e6 / line.hits if line.hits else None, NUMBER.in_unit("µs")),
        ]
    if any(line.blocked_ratio is not None for line in shown):
        columns.append(Column("blocked", _blocked_ms, NUMBER.in_unit("ms"), help=_BLOCKED))
    if any(line.python_ratio is not None for line in shown):
        columns.append(Column("in Python", lambda line: line.python_ratio, PERCENT, help="the rest: native, system"))
    if any(line.memory_bytes is not None for line in shown):
        columns.append(Column("allocated", lambda line: line.memory_bytes, SIZE))
    if any(line.line in shares for line in shown):
        columns.append(
            Column("sampled", lambda line: shares.get(line.line), PERCENT, help="by this profiler, of all steps")
        )
    what = f"{plain.name(function.name, 40)} in {plain.name(file, 40)}" if function.name else plain.name(file, 60)
    return Table.of(f"Lines of {what}, by {plain.name(function.by)}", shown, *columns, absent="None of them ran.")
