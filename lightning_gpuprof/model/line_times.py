"""Times of source lines as an exact timer or another profiler has them, as plain data."""

import msgspec


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
