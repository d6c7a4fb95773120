"""What one reader needs for one trace: measured in the process that reads, told to the one that compares.

Readers run in other environments, too, and their memory is measured: only the standard library is imported here.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MB = 1e6
_STATUS = Path("/proc/self/status")
_OF_CHILDREN_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What reading a trace and analysing it took, once."""

    imports_s: float
    work_s: float
    """From the file to the last result, without imports."""
    cpu_s: float
    """The same in time on CPUs, of all its threads and processes: less is in the way of it than of the work's time."""
    peaks_mb: dict[str, float]
    """Largest resident memory of the process up to the end of the ``imports``, and of what else is named."""
    peak_mb: float
    """Largest resident memory of the process, and of the largest one that it started: at most so much at a time."""
    started_mb: float
    """The part of it that is of a process that was started."""
    parts_s: dict[str, float]
    """Of the work, by name, in order."""
    bytes_json: int | None
    """Size of the trace, if the reader tells."""
    problems: tuple[str, ...]
    """Analyses that failed: what was measured is without them."""

    @classmethod
    def parse(cls, line: str) -> Reading:
        """The line that :meth:`Meter.finish` prints."""
        values = json.loads(line)
        return cls(**{**values, "problems": tuple(values["problems"])})


class Meter:
    """Measures from its own begin on: first the imports, then the work."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._imported = self._begin
        self._cpu_begin_s = 0.0
        self.peaks_mb: dict[str, float] = {}
        self.parts_s: dict[str, float] = {}
        self.problems: list[str] = []
        self._peak_beside_mb = 0.0

    def imported(self) -> None:
        """All imports are done; the work begins."""
        self.mark("imports")
        self._cpu_begin_s = _cpu_s()
        self._imported = time.perf_counter()

    def mark(self, name: str) -> None:
        """Note the largest memory so far."""
        self.peaks_mb[name] = _own_peak_mb()

    def others_ended(self) -> None:
        """The processes that were started have ended: what is used from here on is not used beside theirs."""
        self._peak_beside_mb = _own_peak_mb() + _started_mb()

    def add(self, part: str, seconds: float) -> None:
        """Count time for a part of the work."""
        self.parts_s[part] = self.parts_s.get(part, 0.0) + seconds

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of the work."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    def attempt(self, name: str, analysis: Callable[[], T]) -> T | None:
        """Time an analysis; one that fails is told, and the others go on."""
        with self.part(name):
            try:
                return analysis()
            except Exception as error:  # what it does with any trace is not ours to know
                self.problems.append(f"{name}: {type(error).__name__}: {error}")
                return None

    def finish(self, *, bytes_json: int | None = None) -> None:
        """Print the measurement as the last line of the output."""
        work_s = time.perf_counter() - self._imported
        cpu_s = _cpu_s() - self._cpu_begin_s
        started_mb = _started_mb()
        reading = Reading(
            imports_s=self._imported - self._begin,
            work_s=work_s,
            cpu_s=cpu_s,
            peaks_mb=self.peaks_mb,
            peak_mb=max(_own_peak_mb(), self._peak_beside_mb or _own_peak_mb() + started_mb),
            started_mb=started_mb,
            parts_s=self.parts_s,
            bytes_json=bytes_json,
            problems=tuple(self.problems),
        )
        print(json.dumps(asdict(reading)), flush=True)


def _cpu_s() -> float:
    """Time on CPUs of this process and of those it started that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _started_mb() -> float:
    """Largest resident memory of the largest process that was started and has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _OF_CHILDREN_BYTES / MB


def _own_peak_mb() -> float:
    """Largest resident memory of this process so far."""
    if _STATUS.is_file():
        # not ru_maxrss, in which Linux counts what the starting process held before this program was loaded
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _OF_CHILDREN_BYTES / MB
