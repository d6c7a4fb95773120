"""Samples of the garbage collector's pauses: sums by generation, and each long pause by itself."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Mapping, Sequence

from lightning_gpuprof.capture.host.gc_pauses import GcPauses, Pause
from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.model.host import LONG_PAUSE_S
from lightning_gpuprof.model.journal import Sample

_MAX_LONG = 4
"""Long pauses that are handed over one by one from one interval."""


def collections_so_far() -> Sequence[int]:
    """Collections by generation since the interpreter's start, by its own count."""
    return [int(each["collections"]) for each in gc.get_stats()]


_MAX_SAMPLES = 7200
"""In the time so far, as of the host."""


class GcSampler:
    """Samples the pauses of Python's garbage collector, which stop the main thread whoever caused them.

    ============  =====================================================================================================
    subject       values
    ============  =====================================================================================================
    ``gc``        ``pause_ratio`` (share of the time), ``longest_s``; for each generation ``gen<N>_count``,
                  ``gen<N>_pause_s``, ``gen<N>_longest_s``: in the time since the sample before; ``lost_count``:
                  collections that were too many to be noted
    ``gc_pause``  a pause of 5 ms or more, at its start: ``pause_s``, ``generation``
    ============  =====================================================================================================

    Args:
        interval_s: Seconds between two samples.
        pauses: Notes them.
        collections: The interpreter's count of collections by generation.
    """

    name = "gc"

    def __init__(
        self,
        interval_s: float = 1.0,
        *,
        pauses: GcPauses | None = None,
        collections: Callable[[], Sequence[int]] = collections_so_far,
    ) -> None:
        self.interval_s = interval_s
        self._wanted_s = interval_s
        self._first_ns: int | None = None
        self._pauses = GcPauses() if pauses is None else pauses
        self._collections = collections
        self._counted = 0
        self._last_ns: int | None = None

    def open(self) -> None:
        """Listen to the collector."""
        self._counted = sum(self._collections())
        self._pauses.begin()

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """What happened since the sample before; nothing at the first."""
        last, self._last_ns = self._last_ns, t_ns
        self._first_ns = t_ns if self._first_ns is None else self._first_ns
        self.interval_s = max(self._wanted_s, (t_ns - self._first_ns) / 1e9 / _MAX_SAMPLES)
        pauses = self._pauses.take()
        counted = sum(self._collections())
        lost = counted - self._counted - len(pauses)
        self._counted = counted
        if last is None or t_ns <= last:
            return ()
        values = _values(pauses, (t_ns - last) / 1e9)
        if lost > 1:  # one may be under way
            values["lost_count"] = float(lost)
        long = [pause for pause in pauses if pause.duration_ns >= LONG_PAUSE_S * 1e9]
        return [
            Sample(source="host", subject="gc", t_ns=t_ns, values=values),
            *(
                Sample(
                    source="host",
                    subject="gc_pause",
                    t_ns=pause.start_ns,
                    values={"pause_s": round(pause.duration_ns / 1e9, 6), "generation": float(pause.generation)},
                )
                for pause in heapq.nlargest(_MAX_LONG, long, key=lambda pause: pause.duration_ns)
            ),
        ]

    def close(self) -> Sequence[Reading]:
        """Listen no more."""
        self._pauses.end()
        return ()


def _values(pauses: Sequence[Pause], elapsed_s: float) -> dict[str, float | None]:
    by_generation: Mapping[int, list[float]] = {
        generation: [pause.duration_ns / 1e9 for pause in pauses if pause.generation == generation]
        for generation in sorted({pause.generation for pause in pauses})
    }
    durations = [duration for several in by_generation.values() for duration in several]
    values: dict[str, float | None] = {
        "pause_ratio": round(sum(durations) / elapsed_s, 6),
        "longest_s": round(max(durations, default=0.0), 6),
    }
    for generation, several in by_generation.items():
        values[f"gen{generation}_count"] = float(len(several))
        values[f"gen{generation}_pause_s"] = round(sum(several), 6)
        values[f"gen{generation}_longest_s"] = round(max(several), 6)
    return values
