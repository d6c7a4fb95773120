"""Keeps a failure of ours away from training: warned once, that part switched off, noted for the report."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def warn(text: str) -> None:
    """A ``RuntimeWarning``; where warnings are errors, a line on the error stream, because training must go on."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Warning:
        print(text, file=sys.stderr)


class Fence:
    """Collects the failures of a run's parts.

    Args:
        note: Takes part and message of each first failure.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._told: set[str] = set()

    def tell(self, part: str, message: str) -> None:
        """Warn about a part once and note it for the report."""
        if part in self._told:
            return
        self._told.add(part)
        self._note(part, message)
        warn(f"gpuprof: {part}: {message}")

    def failed(self, part: str) -> bool:
        """Whether the part was told about."""
        return part in self._told

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Run something of ours; whatever it raises ends here. ``GPUPROF_DEBUG`` lets it through, for developers."""
        try:
            yield
        except Exception as error:
            if os.environ.get("GPUPROF_DEBUG"):
                raise
            self.tell(part, f"switched off after {type(error).__name__}: {error}")
