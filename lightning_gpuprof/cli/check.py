"""One line of ``gpuprof doctor``: what was looked at, how it is, and what that means."""

from typing import Literal

import msgspec

State = Literal["ok", "absent", "problem"]


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that was looked at."""

    area: str = ""
    """Filled in by the doctor: its group of checks."""
    name: str
    state: State
    value: str = ""
    meaning: str = ""
    """What an absence or a problem means, and the way out; empty if all is well."""


def ok(name: str, value: str, meaning: str = "") -> Check:
    """Something is there.

    Args:
        name: What was looked at.
        value: Its version, amount or setting.
        meaning: What it limits all the same.

    Returns:
        In the state ``ok``; the doctor fills in the area.
    """
    return Check(name=name, state="ok", value=value, meaning=meaning)


def absent(name: str, meaning: str, value: str = "") -> Check:
    """Something is not there, which is no error.

    Args:
        name: What was looked at.
        meaning: What cannot be measured without it.
        value: What is there in its place.

    Returns:
        In the state ``absent``; the doctor fills in the area.
    """
    return Check(name=name, state="absent", value=value, meaning=meaning)


def problem(name: str, meaning: str, value: str = "") -> Check:
    """Something has to be repaired.

    Args:
        name: What was looked at.
        meaning: What is wrong, and the way out.
        value: Its version, amount or setting.

    Returns:
        In the state ``problem``; the doctor fills in the area.
    """
    return Check(name=name, state="problem", value=value, meaning=meaning)
