"""Environment variables that switch something on."""

from collections.abc import Mapping

from lightning_gpuprof.capture.fence import warn

_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_UNSET = ""

GPUPROF = "GPUPROF"
"""A profiler for any Lightning script."""
TRIAL = "GPUPROF_TRIAL"
"""The folder of a trial of ``gpuprof try``, with its plan, in which everything is written."""
LIVE = "GPUPROF_LIVE"
"""A line on the terminal while training goes on: a wish of who looks at it, not of the script."""


def is_switched_on(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a variable is ``1``, ``true``, ``yes`` or ``on``; a value that means nothing is warned of and is off.

    Args:
        name: Of the variable.
        environ: The environment.
    """
    if problem := unknown_value(name, environ):
        warn(f"gpuprof: {problem}")
    return _value(name, environ) in _ON


def unknown_value(name: str, environ: Mapping[str, str]) -> str:
    """Which value of a variable means nothing, and which do.

    Args:
        name: Of the variable.
        environ: The environment.

    Returns:
        A sentence without its full stop; empty if the variable is unset or has one of these.
    """
    if _value(name, environ) in (*_ON, *_OFF, _UNSET):
        return ""
    accepted = f"{', '.join(_ON)} to switch on, {', '.join(_OFF)} to switch off"
    return f"{name}={environ[name]!r} is ignored, as if it were not set: accepted are {accepted}"


def _value(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name, _UNSET).strip().lower()
