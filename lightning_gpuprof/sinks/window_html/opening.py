"""The name of a trace flows in, how to look at the whole of it flows out."""

from __future__ import annotations

import shlex
from html import escape

from lightning_gpuprof.sinks import plain

_MOST_CHARACTERS = 300
"""File systems allow 255 bytes."""


def opening_html(file: str) -> str:
    """The command that opens a trace in Perfetto, and how to do without it.

    A page asks no other host by itself, so it has no link there.

    Args:
        file: The trace, in the folder of the run.
    """
    if not file:
        return ""
    name = plain.name(file, _MOST_CHARACTERS)
    command = f"gpuprof trace {shlex.quote(name)} --perfetto"
    return (
        '<p class="opening">The whole trace, with our phases and idle causes on top, opens in Perfetto by '
        f"<code>{escape(command)}</code> <span>in the trace's folder. Offline, chrome://tracing loads the file that "
        "this writes.</span></p>\n"
    )
