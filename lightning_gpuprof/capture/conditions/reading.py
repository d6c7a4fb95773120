"""Reads facts by named functions: what fails is absent, and takes nothing with it."""

import math
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from lightning_gpuprof.capture.conditions.call_places import StageCall, stage_call
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.host.sources import Roots
from lightning_gpuprof.model.journal import Value

MAX_TEXT = 400
"""Characters of a fact; the rest is cut."""


class Surroundings(Roots, frozen=True, kw_only=True):
    """What of the machine is read, and where."""

    environ: Mapping[str, str]
    folder: Path | None = None
    """Where the program works; None: not to be found out."""


class Subject(msgspec.Struct, frozen=True, dict=True):
    """What facts are read from."""

    trainer: Any
    module: Any
    loaders: object
    around: Surroundings

    @cached_property
    def modules(self) -> list[tuple[str, Any]]:
        """All modules with their names, walked once."""
        return list(self.module.named_modules())

    @cached_property
    def parameters(self) -> list[Any]:
        """All parameters, walked once."""
        return list(self.module.parameters())

    @cached_property
    def stage_call(self) -> StageCall | None:
        """The user's call of the stage, which is running. None: not known."""
        return stage_call(sys._getframe())


Reader: TypeAlias = Callable[[Subject], object]
"""Gives a fact, or None if the run has no such thing."""


def read(facts: Mapping[str, Reader], subject: Subject) -> dict[str, Value]:
    """Read the facts that are there.

    Args:
        facts: How to read each.
        subject: What to read.

    Returns:
        Fact → value as by :func:`plain`, in the order of ``facts``; without those that are None or cannot be read.
    """
    found: dict[str, Value] = {}
    for name, reader in facts.items():
        try:
            value = plain(reader(subject))
            if value is not None:
                found[name] = value
        except Exception as error:
            if must_propagate(error):
                raise
    return found


def plain(value: object) -> Value:
    """The value as the journal can hold it: numbers of numpy and the like become Python's, the rest text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, Integral)):
        return int(value)
    if isinstance(value, (float, Real)):
        number = float(value)
        return number if math.isfinite(number) else str(number)  # JSON has no infinity
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def file_text(path: Path) -> str | None:
    """What a small file holds; None if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
