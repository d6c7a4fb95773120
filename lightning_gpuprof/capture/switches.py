"""Environment variables that switch something on."""

from __future__ import annotations

from collections.abc import Mapping

_OFF = ("", "0", "false", "no", "off")

GPUPROF = "GPUPROF"
"""A profiler for any Lightning script."""
LIVE = "GPUPROF_LIVE"
"""A line on the terminal while training goes on: a wish of who looks at it, not of the script."""


def switched_on(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a variable is set to anything but ``0``, ``false``, ``no`` or ``off``."""
    return environ.get(name, "").strip().lower() not in _OFF
