"""Several traced ranks open a window at the same step: one of them writes the step into a file, and all look there.

Nobody is asked and nobody waits. A rank that sees the file only after that step opens its window later than the others.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.capture.triggers import TRIGGER_FILE, TriggerFile

PLAN_FILE = "window"
"""In the run's folder: first step and reason of the window that was planned last."""

LEAD_S = 3.0
"""From the plan to its step. The ranks look twice a second; a network file system may show a file 1 or 2 s late."""


@dataclass(eq=False, repr=False)
class SharedPlan:
    """Windows that are not planned from the start, for the traced ranks that share a folder."""

    folder: Path
    """Theirs."""
    _: KW_ONLY
    leads: bool
    """This rank makes the plans, also those that it is asked for by the others."""
    warmup: int
    """Steps before a window that are traced and discarded."""
    now: Callable[[], int] = time.perf_counter_ns
    """The clock of the steps, in ns."""

    def __post_init__(self) -> None:
        self._file = TriggerFile(self.folder / PLAN_FILE, now=lambda: self.now() / 1e9)
        self._wishes: deque[str] = deque(maxlen=8)
        self._last: ClosedStep | None = None
        self._steps_per_ns = 0.0

    def wish(self, reason: str) -> None:
        """Ask for a window; callable from any thread and from a signal handler."""
        self._wishes.append(reason)

    def look(self, steps: Sequence[ClosedStep]) -> tuple[int, str] | None:
        """Pass on what was wished for, and see what is planned; called with the steps that ended since the last call.

        Returns:
            First step and reason of a window that was planned since the last call; None: nothing new is planned.
        """
        if steps:
            first, self._last = steps[0], steps[-1]
            self._steps_per_ns = (self._last.global_step - first.global_step + 1) / (self._last.end_ns - first.start_ns)
        if self._wishes and not self.leads:
            self._wishes.clear()
            (self.folder / TRIGGER_FILE).touch()
        elif self._wishes and self._last is not None:
            # One that has lasted for long is none: validation, or a checkpoint.
            begun = min(1.0, (self.now() - self._last.end_ns) * self._steps_per_ns)
            ahead = math.ceil(begun + LEAD_S * 1e9 * self._steps_per_ns)
            start = self._last.global_step + 1 + ahead + self.warmup
            self._write(start, "; ".join(dict.fromkeys(self._wishes.popleft() for _ in range(len(self._wishes)))))
        if not self._file.touched():
            return None
        start_step, _, reason = (self.folder / PLAN_FILE).read_text("utf-8").partition(" ")
        return int(start_step), reason

    def _write(self, start: int, reason: str) -> None:
        """Whole, or not at all."""
        temporary = self.folder / f".{PLAN_FILE}.{os.getpid()}.tmp"
        temporary.write_text(f"{start} {reason}", "utf-8")
        temporary.replace(self.folder / PLAN_FILE)
