"""Short text for cells: names of kernels, of what the host was in and of lines of code, and amounts of FLOPs."""

import re
from typing import Protocol, TypeVar

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.attribution import LineMeaning, SourceLine
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import Column, Format

HOVER_LIMIT = 200
"""Templates repeat their types: beginning and end tell kernels apart, and a page names each in several tables."""

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|c10::")
_WRAPPER = re.compile(r"^cutlass::Kernel2?<(.*)>$")


def short(name: str, limit: int) -> str:
    """A kernel's name without its return type, argument list and torch's namespaces, and no longer than a limit.

    Args:
        name: As the trace has it, demangled or not.
        limit: Most characters, at least 8.

    Returns:
        Hidden characters are escapes; of a long name the end stays, too, after ``...``.
    """
    bare = _NOISE.sub("", _without_arguments(plain.shorten(name, 4 * plain.TEXT_LIMIT)))
    text = plain.visible(_WRAPPER.sub(r"\1", bare))
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 4  # the head has the family and the function, the end a variant
    return f"{text[: limit - 3 - tail]}...{text[len(text) - tail :]}"


class _Named(Protocol):
    @property
    def name(self) -> str:
        """Of a kernel, as the trace has it."""


N = TypeVar("N", bound=_Named)


def column(limit: int) -> Column[N]:
    """The column of kernels' names of at most so many characters, which the full ones explain where they are longer."""
    return Column("kernel", lambda row: short(row.name, limit), hover=lambda row: whole(row.name, limit))


def whole(name: str, limit: int) -> str:
    """The name where the short one is another, its middle left out of a very long one: ``--csv`` has all of it.

    Args:
        name: Of the kernel.
        limit: Characters of the short name.

    Returns:
        Text for a hover; empty if the short name is whole.
    """
    return "" if short(name, limit) == name else plain.name(name, HOVER_LIMIT)


THREE = Format(lambda sizes: " ".join(map(str, sizes)))
"""Sizes in x, y and z."""

_BUILT_IN = re.compile(r"^<built-in (?:function|method) (?P<function>\S+).*>$")
_FRAME = re.compile(r"\(\d+\): ")


def work(name: str, limit: int) -> str:
    """What a device did: a kernel's short name; of a copy or memset what it is between.

    Args:
        name: As the trace has it.
        limit: Most characters that come back, at least 8.

    Returns:
        Hidden characters are escapes; ``HtoD (Pinned -> Device)`` of a copy, whose first word is left out.
    """
    if name.startswith(("Memcpy", "Memset")):
        return plain.name(name.removeprefix("Memcpy "), limit)
    return short(name, limit)


def host(name: str, limit: int) -> str:
    """What the host was in: of a Python function the end, which tells it from others; of a range what it is of.

    Args:
        name: An operator, range, call or Python function, as the trace has it.
        limit: Most characters that come back.

    Returns:
        Hidden characters are escapes; of a long Python function ``...`` stands for its beginning.
    """
    built_in = _BUILT_IN.match(name)
    if built_in:
        return plain.name(f"{built_in['function']} (built-in)", limit)
    if not _FRAME.search(name):
        return plain.name(name.partition("#")[0].rstrip() or name, limit)
    return _end(name, limit)


def _without_arguments(name: str) -> str:
    """The name up to the parenthesis that the last one closes."""
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return name[:position]
    return name


def _end(name: str, limit: int) -> str:
    """The end of a long name."""
    shown = plain.name(name, max(4 * limit, plain.NAME_LIMIT))
    return shown if len(shown) <= limit else f"...{shown[len(shown) - limit + 3 :]}"


_LINE_NUMBER = re.compile(r"\(\d+\)(?=: )")

LINE_TERMS: dict[LineMeaning, str] = {
    "call": "the line that called",
    "definition": "the number is the first line of the function: the trace does not show which of its lines",
    "when the recording began": "was running before recording began: the trace does not show which of its lines",
}


def code_line(line: SourceLine, limit: int) -> str:
    """File, line and function; of a long path its end. Without the number where it says nothing.

    Args:
        line: The line.
        limit: Most characters of the text.

    Returns:
        ``train.py(38): training_step``, hidden characters as escapes.
    """
    frame = _LINE_NUMBER.sub("", line.frame, count=1) if line.means == "when the recording began" else line.frame
    return _end(frame, limit)


def line_or_function(*lines: SourceLine) -> str:
    """What rows of such lines are: ``function`` where the trace does not show which of its lines."""
    return "function" if lines and all(line.means != "call" for line in lines) else "line"


def line_hover(line: SourceLine, what: str) -> str:
    """What the number of a line means, where the heading does not say it.

    Args:
        line: The line.
        what: Of the column, by :func:`line_or_function`.

    Returns:
        A hover; empty where the number means what most do.
    """
    return "" if line.means == ("call" if what == "line" else "definition") else LINE_TERMS[line.means]


def line_meaning(lines: tuple[SourceLine, ...]) -> str:
    """What the numbers of most of the lines mean, as a column's help."""
    if any(line.means == "call" for line in lines):
        return "file(line): function of the innermost line of your code that made the call"
    return (
        "file(line): function, the innermost of your code; the line is where the function begins, since "
        "torch records calls, not lines"
    )


def ms(us: float | None) -> str:
    """Microseconds as milliseconds: ``12.3 ms``; "-" for None."""
    return numbers.ABSENT if us is None else f"{numbers.fixed(us / 1e3)} ms"


_FLOP_UNITS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


def flops(value: float | None) -> str:
    """Operations in the unit that suits them: ``778 GFLOP``; "-" for None."""
    if value is None:
        return numbers.ABSENT
    power = next((power for power in range(len(_FLOP_UNITS) - 1) if abs(value) < 1000 ** (power + 1)), -1)
    power %= len(_FLOP_UNITS)
    return f"{numbers.significant(value / 1000**power)} {_FLOP_UNITS[power]}"
