"""Records what was compiled when, from dynamo's notes: read once a second by a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from lightning_gpuprof.capture.compilation import dynamo
from lightning_gpuprof.model.journal import Compilation, CompilerCounts

MEMORY = 64
"""Compilations that dynamo remembers, as of torch 2.4 to 2.13."""


class CompileSampler:
    """Hands over each compilation once, and dynamo's counters as far as they moved since the stage was entered.

    Args:
        before: Dynamo's counters when the stage was entered; None if dynamo was not there.
        since_epoch_ns: Calendar time of the entry: compilations that began earlier are another's.
        interval_s: Seconds between two looks. Dynamo keeps its last 64 compilations.
        now: The run's clock in ns.
        epoch_now: The calendar in ns.
    """

    name = "torch.compile"

    def __init__(
        self,
        before: dynamo.Counters | None,
        since_epoch_ns: int,
        interval_s: float = 1.0,
        *,
        now: Callable[[], int] = time.perf_counter_ns,
        epoch_now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.interval_s = interval_s
        self._before: dynamo.Counters = before or {}
        self._since_epoch_ns = since_epoch_ns
        self._now = now
        self._epoch_now = epoch_now
        self._last: Any = None
        """The newest note that was seen: dynamo's own object, which it keeps as well."""
        self._lost = 0
        self._told: dict[str, int] = {}

    def open(self) -> None:
        """There is nothing to get ready: dynamo may come later, or never."""

    def sample(self, t_ns: int) -> Sequence[Compilation | CompilerCounts]:
        """What is new."""
        now = dynamo.counters_now()
        if now is None:
            return ()
        records: list[Compilation | CompilerCounts] = [*self._new_compilations()]
        counts = dynamo.counts_since(self._before, now)
        if counts and (counts != self._told or records):
            self._told = counts
            breaks = dynamo.breaks_since(self._before, now)
            records.append(CompilerCounts(t_ns=t_ns, counts=counts, breaks=breaks, lost=self._lost))
        return records

    def close(self) -> Sequence[Compilation | CompilerCounts]:
        """What is new since the last look."""
        return self.sample(self._now())

    def _new_compilations(self) -> Sequence[Compilation]:
        noted = dynamo.compilations_now()
        if not noted:
            return ()
        first = next((index for index in range(len(noted), 0, -1) if noted[index - 1] is self._last), None)
        self._last, new = noted[-1], noted[first or 0 :]
        epoch_to_run_ns = self._now() - self._epoch_now()
        if first is None and len(noted) >= MEMORY and (dynamo.start_epoch_ns(noted[0]) or 0) >= self._since_epoch_ns:
            self._lost += 1  # at least: how many is not known
        ours = [note for note in new if (dynamo.start_epoch_ns(note) or 0) >= self._since_epoch_ns]
        records = (dynamo.record_of(note, epoch_to_run_ns) for note in ours)
        return [record for record in records if record is not None]
