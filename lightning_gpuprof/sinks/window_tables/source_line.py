"""A line of source code as text."""

from __future__ import annotations

import re

from lightning_gpuprof.model.trace.source_line import LineMeaning, SourceLine
from lightning_gpuprof.sinks import plain

_NUMBER = re.compile(r"\(\d+\)(?=: )")

TERMS: dict[LineMeaning, str] = {
    "call": "the line that called",
    "definition": "the number is the line on which the function begins: the trace does not say which of its lines",
    "when the recording began": "was running before the recording began: the trace does not say which of its lines",
}


def text(line: SourceLine, limit: int) -> str:
    """File, line and function; of a long path its end. Without the number where it says nothing.

    Args:
        line: The line.
        limit: Most characters of the text.
    """
    frame = _NUMBER.sub("", line.frame, count=1) if line.means == "when the recording began" else line.frame
    shown = plain.name(frame, max(4 * limit, plain.NAME_LIMIT))
    return shown if len(shown) <= limit else f"...{shown[len(shown) - limit + 3 :]}"


def meaning(lines: tuple[SourceLine, ...]) -> str:
    """What the numbers of most of the lines mean, as a column's help."""
    if any(line.means == "call" for line in lines):
        return "file(line): function of the innermost line of your code that made the call"
    return (
        "file(line): function of the innermost function of your code; the line is where the function begins, since "
        "torch records calls, not lines"
    )
