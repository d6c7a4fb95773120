"""The steady steps in which the CPU time of the main thread was read, and those with spans of the device."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal_columns import Ints, Journal, sorting
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.share import Share

MIN_SAMPLES = 10
"""Fewer sampled steps say nothing about the others."""


class SampledSteps:
    """Steady steps whose CPU time was read; arrays have shape (m,) for m of them.

    Args:
        journal: One rank's journal.
        steady: Which of all steps are steady, shape (n,).
    """

    def __init__(self, journal: Journal, steady: Mask) -> None:
        self.journal = journal
        self._steady = steady
        self._rows, self.indices = rows_of(journal.cpu.batch, journal, steady)
        """Their places among all steps."""
        self.period_ns = journal.steps.period_ns[self.indices]
        delay = journal.cpu.run_delay_ns
        self.delay_ns = None if delay is None else delay[self._rows]
        """How long the thread was ready to run but had no CPU; None if not known."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def few(self) -> bool:
        """Whether there are fewer than ten."""
        return len(self) < MIN_SAMPLES

    @cached_property
    def cpu_ns(self) -> dict[Phase, Ints]:
        """CPU time by phase."""
        found = {phase: np.zeros(len(self), np.int64) for phase in PHASES}
        for slot, column in self.journal.cpu.charged.items():
            found[self.journal.slots[slot].step_phase] += column[self._rows]
        return found

    def cpu_ms(self, phases: Iterable[Phase] = PHASES) -> dict[Phase, float]:
        """Median CPU time of phases; empty of few steps."""
        return {} if self.few else {phase: statistics.median(self.cpu_ns[phase]) / 1e6 for phase in phases}

    def delay_ratio(self) -> float | None:
        """Median share of the step time without a CPU; None if not known, or of few steps."""
        if self.delay_ns is None or self.few:
            return None
        return float(np.median(self.delay_ns / np.maximum(self.period_ns, 1)))

    def delay(self) -> Share | None:
        """The same with its lower bound. None: not known, or too few steps."""
        return None if self.delay_ns is None or self.few else self.share(self.delay_ns)

    @cached_property
    def ordinary_ns(self) -> float:
        """Median step time of all steady steps."""
        return statistics.median(self.journal.steps.period_ns[self._steady])

    def share(self, part_ns: Ints) -> Share | None:
        """Share of a part in these steps, in ms of the step time of all steady ones. None: too few steps."""
        return statistics.share(part_ns, self.period_ns, ordinary_ns=self.ordinary_ns)


def rows_of(sampled_batch: Ints, journal: Journal, steady: Mask) -> tuple[Ints, Ints]:
    """Sampled steps that are steady: their rows among the sampled, and among all steps.

    Args:
        sampled_batch: Batches of the sampled steps.
        journal: Has all steps.
        steady: Which of all steps are steady, shape (n,).

    Returns:
        Two arrays of shape (m,) for the m steady ones, in the order in which they were sampled.
    """
    batch = journal.steps.batch
    if not len(batch) or not len(sampled_batch):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = sorting(batch)
    wanted = sampled_batch.astype(batch.dtype)  # else all batches would be copied to the wider type
    place = np.minimum(np.searchsorted(batch[order], wanted), len(batch) - 1)
    if not isinstance(order, slice):
        place = order[place]
    rows = np.flatnonzero((batch[place] == sampled_batch) & steady[place])
    return rows, place[rows]


def device_medians_ms(journal: Journal, steady: Mask) -> Mapping[Phase, float]:
    """Median device span of each phase over the measured steady steps.

    A span is measured on the device's clock along the main thread's stream: it ends when the device has done what
    was queued in the phase, and contains the gaps between launches. It is no kernel time.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        Milliseconds of all phases; empty if fewer than ten steps were measured.
    """
    device = journal.device
    rows, _ = rows_of(device.batch, journal, steady)
    if len(rows) < MIN_SAMPLES:
        return {}
    return {phase: float(np.median(column[rows])) / 1e6 for phase, column in device.phases(journal.slots).items()}


def device_caveats(journal: Journal) -> list[str]:
    """Says so where more steps could not be measured than could."""
    device = journal.device
    reasons = {
        "the device was too far behind": device.dropped_backlog,
        "a graph was captured in them": device.dropped_capturing,
        "they had too many parts, or parts on several streams": device.dropped_unusable,
    }
    if sum(reasons.values()) <= len(device.batch):
        return []
    dropped = ", ".join(f"{count} because {why}" for why, count in reasons.items() if count)
    return [f"device spans: {len(device.batch)} step(s) measured, dropped {dropped}"]
