"""CPU time of the main thread by phase of the steady steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal import Ints, Journal, sorting
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.phases import PHASES, Phase

MIN_SAMPLES = 10
"""Fewer sampled steps say nothing about the others."""


def sampled(journal: Journal, steady: Mask) -> tuple[Ints, Ints]:
    """Steady steps whose CPU time was read: their rows among the sampled, and among all steps.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        Two arrays of indices of equal length: into the sampled steps and into all steps.
    """
    return rows_of(journal.cpu.batch, journal, steady)


def rows_of(sampled_batch: Ints, journal: Journal, steady: Mask) -> tuple[Ints, Ints]:
    """Sampled steps that are steady: their rows among the sampled, and among all steps.

    Args:
        sampled_batch: Batches of the sampled steps.
        journal: Has all steps.
        steady: Which of all steps are steady.
    """
    batch = journal.steps.batch
    if not len(batch) or not len(sampled_batch):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = sorting(batch)
    place = np.minimum(np.searchsorted(batch[order], sampled_batch), len(batch) - 1)
    if not isinstance(order, slice):
        place = order[place]
    rows = np.flatnonzero((batch[place] == sampled_batch) & steady[place])
    return rows, place[rows]


def phase_ns(journal: Journal, phase: Phase) -> Ints:
    """CPU time in ns of one phase in each sampled step, shape (m,).

    Args:
        journal: The journal of one stage.
        phase: Which phase.
    """
    total = np.zeros(len(journal.cpu.batch), np.int64)
    for slot, column in journal.cpu.charged.items():
        if journal.slots[slot].step_phase == phase:
            total += column
    return total


def medians_ms(journal: Journal, steady: Mask) -> Mapping[Phase, float]:
    """Median CPU time of each phase over the sampled steady steps; empty if there are fewer than ten.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    rows, _ = sampled(journal, steady)
    if len(rows) < MIN_SAMPLES:
        return {}
    return {phase: statistics.median(phase_ns(journal, phase)[rows]) / 1e6 for phase in PHASES}
