"""The name of a kernel as a trace has it flows in, the part of it that tells it from others flows out."""

from __future__ import annotations

import re

from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import Cell

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|c10::")
_WRAPPER = re.compile(r"^cutlass::Kernel2?<(.*)>$")


def short(name: str, limit: int) -> str:
    """A kernel's name without its return type, argument list and torch's namespaces, and no longer than a limit.

    Args:
        name: As the trace has it, demangled or not.
        limit: Most characters, at least 8.
    """
    bare = _NOISE.sub("", _without_arguments(plain.shorten(name, 4 * plain.TEXT_LIMIT)))
    text = plain.visible(_WRAPPER.sub(r"\1", bare))
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 4  # the head has the family and the function, the end a variant
    return f"{text[: limit - 3 - tail]}...{text[len(text) - tail :]}"


def cell(name: str, limit: int) -> Cell:
    """The short name, which the full one explains."""
    shown = short(name, limit)
    return Cell(text=shown, term="" if shown == name else plain.sentence(name))


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
