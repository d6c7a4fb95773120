"""Gives the beat of the sampled steps and hands over what was read; counts once what model and optimizers hold."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from lightning_gpuprof.capture.memory import held
from lightning_gpuprof.capture.memory.backend import sample_values
from lightning_gpuprof.capture.memory.edges import EdgeReading, MemoryEdges
from lightning_gpuprof.capture.recorder import Reading, Sampler
from lightning_gpuprof.model.journal import Conditions, Sample
from lightning_gpuprof.model.memory import HOLDERS

INTERVAL_S = 0.2
"""One step in so long a time is read: 20 µs are a ten-thousandth of it."""

DENSE_READINGS = 1000
"""After so many readings one in ten times as long a time has to do."""

IDLE_S = 60.0

COUNTS_NEEDED = 3
"""How often model and optimizers are counted: what is made late, or only at times, is seen by one of them."""

MAX_FAILURES = 10

_ANY_THREAD = tuple(holder for holder in HOLDERS if holder != "gradients")
"""What may be counted beside the main thread."""


@dataclass(eq=False, repr=False)
class MemorySampler(Sampler):
    """A sampler of its own thread."""

    edges: MemoryEdges | None
    """Reads the steps; None where there is no allocator to read."""
    _: KW_ONLY
    device: str
    """Of the allocator, as samples name it."""
    total_bytes: int | None
    """Of that device."""
    module: torch.nn.Module
    optimizers: Callable[[], Sequence[Any]]
    """Gives its optimizers."""
    is_ready: Callable[[], bool]
    """Whether the optimizers have made their states, which they do in their first steps."""
    wake: Callable[[], None]
    """Has the next step's beginning looked at."""
    interval_s: float = INTERVAL_S
    """Between two steps that are read."""

    name = "memory"

    def __post_init__(self) -> None:
        self._counted = held.HeldCounts()
        self._gradients = held.HeldCounts()
        """What the main thread counted."""
        self._wants_gradients = False
        self._looks = 0
        self._failures = 0
        self._handed_over = False
        self._ended = False
        self._readings = 0
        self._last_ns = 0

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """Fetch what was read, ask for the next step, count what is held."""
        self._last_ns = t_ns
        found: list[Reading] = list(self._edge_samples())
        if self.total_bytes is not None:
            found.append(Conditions(values={f"memory.{self.device}.total_bytes": self.total_bytes}))
            self.total_bytes = None
        if self.edges is not None:
            self.edges.ask()
            self.wake()
        if not (self._handed_over or self._ended) and self.is_ready():
            if self._looks < COUNTS_NEEDED and self._failures < MAX_FAILURES:
                self._look()
            elif not self._wants_gradients:  # a long step may last for all looks
                found += self._held_samples(t_ns)
        if self.edges is None and self._handed_over:
            self.interval_s = IDLE_S
        return found

    def close(self) -> Sequence[Reading]:
        """Hand over what is left."""
        found: list[Reading] = list(self._edge_samples())
        if not self._handed_over:
            found += self._held_samples(self._last_ns)
        return found

    def between_steps(self) -> None:
        """Count the gradients if the last look at the others asked for it; on the main thread, which owns them.

        Raises:
            RuntimeError: A tensor without what others have.
        """
        if not self._wants_gradients:
            return
        self._wants_gradients = False
        self._count_gradients()
        if self.edges is not None and self.edges.witness is None:
            self.edges.witness = held.gradient_finder(self.module)

    def end(self) -> None:
        """Training is over, on its thread: count if the run was too short for it, and not any more from here on.

        Raises:
            RuntimeError: A tensor without what others have.
        """
        if not self._ended and self.is_ready():
            if not self._looks:
                self._counted.merge(held.count(self.module, self.optimizers()))
                self._looks += 1
            elif self._wants_gradients or not self._gradients.bytes:
                self._wants_gradients = False
                self._count_gradients()
        self._ended = True

    def _count_gradients(self) -> None:
        self._gradients.merge(held.count(self.module, holders=("gradients",)))

    def _look(self) -> None:
        try:
            self._counted.merge(held.count(self.module, self.optimizers(), _ANY_THREAD, polite=True))
            self._looks += 1
        except RuntimeError:  # changed while it was read, or a tensor without a storage: tried again
            self._failures += 1
        if not self._gradients.bytes:
            self._wants_gradients = True
            self.wake()

    def _edge_samples(self) -> Iterable[Sample]:
        edges = self.edges
        if edges is None:
            return
        for _ in range(len(edges.readings)):
            self._readings += 1
            if self._readings == DENSE_READINGS:
                self.interval_s *= 10
            yield self._sample_of(edges.readings.popleft())

    def _sample_of(self, reading: EdgeReading) -> Sample:
        values = {"batch_index": float(reading.batch), **sample_values(reading.counters)}
        if reading.gradients_live is not None:
            values["gradients_live_count"] = float(reading.gradients_live)
        return Sample(source="memory", subject=f"{self.device} {reading.phase}", t_ns=reading.t_ns, values=values)

    def _held_samples(self, t_ns: int) -> list[Reading]:
        self._handed_over = True
        if not self._looks:
            return []
        self._counted.merge(self._gradients)
        found: list[Reading] = [
            Sample(
                source="memory",
                subject=f"held {row.device} {row.dtype}",
                t_ns=t_ns,
                values={
                    f"{holder}_bytes": float(count)
                    for holder in HOLDERS
                    if (count := getattr(row, f"{holder}_bytes")) is not None
                },
            )
            for row in self._counted.rows()
        ]
        if skipped := self._counted.skipped:
            words = ", ".join(f"{number} {why}" for why, number in sorted(skipped.items()))
            found.append(Conditions(values={"memory.without_storage": words}))
        return found
