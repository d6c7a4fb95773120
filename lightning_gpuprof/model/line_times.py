"""Times of source lines as an exact timer or another profiler has them, as plain data."""

import linecache
from collections.abc import Mapping, Sequence

import msgspec

from lightning_gpuprof.model.shown_code import shown_code

LEAST_LOOKS = 10
"""At a line whose blocked time is known. Heuristic: to about a third of its time."""


class TimedLine(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of a function. None: the profiler does not say."""

    line: int
    total_s: float
    hits: int | None = None
    """How often it ran."""
    python_ratio: float | None = None
    """In Python itself; the rest: native code, the system."""
    memory_bytes: float | None = None
    """Allocated by this line."""
    blocked_ratio: float | None = None
    """Off the CPU, of the looks at it: ten a second. None: fewer than ten."""
    code: str = ""


class FunctionTimes(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The lines of a function, or of a file if the profiler knows no functions; each with its calls."""

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
    timings: Mapping[tuple[str, int, str], Sequence[tuple[int, int, int]]],
    unit_s: float,
    looks: Mapping[tuple[str, int], Mapping[int, tuple[int, int]]] | None = None,
) -> list[FunctionTimes]:
    """What line_profiler found, with the code of each line where its file is there, without what may be secret.

    Args:
        timings: File, first line and name of a function -> number, hits and time of each line.
        unit_s: Seconds of a unit of time.
        looks: File and first line of a function -> line -> looks at it, and those of them off the CPU.

    Returns:
        The functions that ran, most time first.
    """
    found = [
        FunctionTimes(
            name=name,
            file=file,
            lines=tuple(
                TimedLine(
                    line=line,
                    hits=hits,
                    total_s=time * unit_s,
                    blocked_ratio=_ratio(*(looks or {}).get((file, first), {}).get(line, (0, 0))),
                    code=shown_code(linecache.getline(file, line).strip()),
                )
                for line, hits, time in rows
            ),
        )
        for (file, first, name), rows in timings.items()
        if rows
    ]
    return sorted(found, key=lambda one: -one.total_s)


def _ratio(looks: int, off_cpu: int) -> float | None:
    return off_cpu / looks if looks >= LEAST_LOOKS else None
