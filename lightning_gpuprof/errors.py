"""Every error the profiler raises on purpose: what was wrong, with which value, and the way out."""

from __future__ import annotations


class GpuProfError(Exception):
    """Base of all errors raised on purpose by this package."""


class ArgumentError(GpuProfError, ValueError):
    """An argument has a value that cannot work.

    Args:
        argument: Name of the argument as the user writes it, e.g. ``trace.active``.
        value: The value that was given.
        expected: What the argument must be, as a phrase that follows "must".
        hint: Optional way out, a full sentence.
    """

    def __init__(self, argument: str, value: object, expected: str, hint: str = "") -> None:
        self.argument = argument
        self.value = value
        text = f"{argument} must {expected}, got {value!r}"
        super().__init__(f"{text}. {hint}" if hint else text)


class JournalError(GpuProfError):
    """A journal is missing, empty or was written by a newer version."""


class TraceError(GpuProfError):
    """A trace file cannot be read."""


class ReportError(GpuProfError):
    """A report cannot be read or made."""
