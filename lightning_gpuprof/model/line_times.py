"""Times of source lines as an exact timer or another profiler has them, as plain data."""

import linecache
from collections.abc import Mapping, Sequence

import msgspec

from lightning_gpuprof.model.shown_code import shown_code


class TimedLine(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of a function. None: the profiler does not say."""

    line: int
    total_s: float
    hits: int | None = None
    """How often it ran."""
    python_ratio: float | None = None
    """Share of the time in Python itself; the rest is native code and the system."""
    memory_bytes: float | None = None
    """Allocated by this line."""
    code: str = ""


class FunctionTimes(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The lines of a function, or of a file where the profiler knows of no functions; each with the calls it makes."""

    name: str
    file: str
    lines: tuple[TimedLine, ...]
    by: str = "line_profiler"
    """Which profiler measured it."""

    @property
    def total_s(self) -> float:
        """Over all lines."""
        return sum(line.total_s for line in self.lines)


def of_line_profiler(
    timings: Mapping[tuple[str, int, str], Sequence[tuple[int, int, int]]], unit_s: float
) -> list[FunctionTimes]:
    """What line_profiler found, with the code of each line where its file is there, without what may be secret.

    Args:
        timings: File, first line and name of a function -> number, hits and time of each line.
        unit_s: Seconds of a unit of time.

    Returns:
        The functions that ran, most time first.
    """
    found = [
        FunctionTimes(
            name=name,
            file=file,
            lines=tuple(
                TimedLine(
                    line=line, hits=hits, total_s=time * unit_s, code=shown_code(linecache.getline(file, line).strip())
                )
                for line, hits, time in rows
            ),
        )
        for (file, _, name), rows in timings.items()
        if rows
    ]
    return sorted(found, key=lambda one: -one.total_s)
