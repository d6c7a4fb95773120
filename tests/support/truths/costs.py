"""Planted time: sleeps and computation of a wanted length, which know how long they really took."""

import statistics
import time
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Cost:
    """Takes time wherever it is called.

    Attributes:
        ms: Wanted length of one call.
        burns: Computes in Python rather than sleeps: by the CPU time of its thread, so that it is work of a known
            size however busy the machine is.
        every: Only each so many calls cost anything.
        calls: How often it was called so far, in this process.
        took_ms: What calls that cost anything really took, in this process: a busy machine wakes late.
    """

    ms: float
    burns: bool = False
    every: int = 1
    calls: int = 0
    took_ms: list[float] = field(default_factory=list)

    def take(self) -> None:
        """Sleep or compute."""
        self.calls += 1
        if self.ms <= 0 or self.calls % self.every:
            return
        begin_s = time.perf_counter()
        if self.burns:
            burn(self.ms)
        else:
            time.sleep(self.ms / 1e3)
        self.took_ms.append((time.perf_counter() - begin_s) * 1e3)

    @property
    def median_ms(self) -> float:
        """Of the calls that cost anything; 0 if there were none."""
        return statistics.median(self.took_ms) if self.took_ms else 0.0


def burn(ms: float) -> int:
    """Compute in Python for so many milliseconds of this thread's CPU time."""
    end_s = time.thread_time() + ms / 1e3
    rounds = 0
    while time.thread_time() < end_s:
        rounds += sum(range(200))
    return rounds
