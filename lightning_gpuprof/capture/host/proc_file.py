"""Readings of the kernel's small files: as often as their cost allows, with the growth of counters between two."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")

_MAX_BYTES = 1 << 18


def _of_system(name: str, usual: int) -> int:
    return os.sysconf(name) if hasattr(os, "sysconf") else usual  # not on Windows, which has none of the files either


TICK_S = 1.0 / _of_system("SC_CLK_TCK", 100)
"""The kernel counts CPU time in these."""
PAGE_BYTES = _of_system("SC_PAGE_SIZE", 4096)


def read(path: str, *, records: bool = False) -> bytes:
    """The whole file, of at most 256 KiB; three system calls, because a buffered file of Python costs twice as much.

    Files are not kept open: workers that share tensors by file descriptors run into the limit of those as it is.

    Args:
        path: The file.
        records: The kernel gives it in whole records of up to a page: a short answer is not the end.

    Returns:
        Its bytes as they are, of a longer file only the beginning.

    Raises:
        OSError: It is not there, may not be read, or its process has just ended.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        found = os.read(descriptor, _MAX_BYTES)
        if len(found) < 1 << 12 and not records:
            return found
        parts = [found]
        while parts[-1] and sum(map(len, parts)) < _MAX_BYTES:  # the kernel gives some files page by page
            parts.append(os.read(descriptor, _MAX_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_if_there(path: str, *, records: bool = False) -> bytes | None:
    """The whole file, if it can be read.

    Args:
        path: The file.
        records: The kernel gives it in whole records of up to a page: a short answer is not the end.

    Returns:
        As :func:`read`; None if it cannot be read.
    """
    try:
        return read(path, records=records)
    except OSError:
        return None


def number(text: bytes | None) -> int | None:
    """The number that a file holds alone; None for ``max`` and anything else."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def keyed(text: bytes | None) -> dict[bytes, int]:
    """Lines of a name and a number (``nr_periods 10``, ``MemTotal:  8 kB``); other lines are left out."""
    found: dict[bytes, int] = {}
    for line in (text or b"").splitlines():
        parts = line.split()
        if len(parts) >= 2:
            try:
                found[parts[0].rstrip(b":")] = int(parts[1])
            except ValueError:
                continue
    return found


class Growth:
    """Remembers the last reading of named counters; one that is new or was set back has not grown."""

    def __init__(self) -> None:
        self._last: tuple[int, Mapping[str, float]] = (0, {})

    def since(self, counters: Mapping[str, float], t_ns: int) -> dict[str, float]:
        """By how much each has grown.

        Args:
            counters: Name → value now.
            t_ns: When they were read.

        Returns:
            By name, 0 or more; without counters that are new or have become smaller, so empty at the first reading.
        """
        (_, before), self._last = self._last, (t_ns, counters)
        return {name: n - before[name] for name, n in counters.items() if name in before and n >= before[name]}

    def per_s(self, counters: Mapping[str, float], t_ns: int) -> dict[str, float]:
        """As :meth:`since`, per second.

        Args:
            counters: Name → value now.
            t_ns: When they were read.

        Returns:
            By name; empty at the first reading, and where no time has passed.
        """
        elapsed_s = (t_ns - self._last[0]) / 1e9
        grown = self.since(counters, t_ns)
        return {name: value / elapsed_s for name, value in grown.items()} if elapsed_s > 0 else {}


@dataclass(eq=False, repr=False)
class CostLimiter:
    """Lets something be done as often as its cost allows, and not more often than wanted."""

    cost_ratio: float
    """Share of the time that it may take."""
    clock_s: Callable[[], float]
    """The clock by which its cost is measured: CPU time of the thread, or wall time."""
    at_least_s: float = 0.0
    """Time from one to the next even if it costs nothing."""
    _next_ns: int | None = None

    def run(self, t_ns: int, do: Callable[[], Result]) -> Result | None:
        """Do it if it is due; its cost decides when it is due again, also where it fails.

        Args:
            t_ns: When.
            do: What is limited.

        Returns:
            What it returns; None if it is not due.
        """
        if self._next_ns is not None and t_ns < self._next_ns:
            return None
        before_s = self.clock_s()
        try:
            return do()
        finally:
            cost_s = max(0.0, self.clock_s() - before_s)
            self._next_ns = t_ns + round(max(cost_s / self.cost_ratio, self.at_least_s) * 1e9)
