"""Main-thread CPU time held against wall time, phase by phase: what neither computed nor waited for data, blocked."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import Blocked
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase

MIN_SAMPLES = 10
MAX_SITES = 5


def blocked(journal: Journal, phases: dict[Phase, Ints], steady: Mask) -> tuple[Blocked, ...] | None:
    """Blocked time of the phases in which the model works, largest first.

    Blocked = exclusive wall time minus exclusive CPU time of the training thread, not below 0, over steady steps in
    which both were read. Threads that compute for the training thread (intra-op parallelism) make it *wait* while
    others work: with several torch threads a part of the difference is that wait.

    Returns:
        None if fewer than ten steady steps were sampled.
    """
    order = {int(batch): index for index, batch in enumerate(journal.steps.batch)}
    sampled = [(m, order[int(b)]) for m, b in enumerate(journal.cpu.batch) if int(b) in order]
    sampled = [(m, index) for m, index in sampled if steady[index]]
    if len(sampled) < MIN_SAMPLES:
        return None
    rows = np.array([m for m, _ in sampled])
    indices = np.array([index for _, index in sampled])
    period = journal.steps.period_ns[indices]
    found = []
    for phase in COMPUTE_PHASES:
        cpu = np.zeros(len(rows), np.int64)
        for slot, column in journal.cpu.charged.items():
            if journal.slots[slot].phase == phase:
                cpu += column[rows]
        wall = phases[phase][indices]
        share = statistics.share(np.maximum(wall - cpu, 0), period)
        if share is not None and wall.any():
            found.append(
                Blocked(
                    phase=phase,
                    wall_ms=float(np.median(wall)) / 1e6,
                    blocked=share,
                    samples=len(rows),
                    sites=_sites(journal, phase),
                )
            )
    return tuple(sorted(found, key=lambda b: -b.blocked.median_ratio))


def _sites(journal: Journal, phase: Phase) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for slot, looks in journal.sites.items():
        if slot < len(journal.slots) and journal.slots[slot].phase == phase:
            for site, n in looks.items():
                counts[site] = counts.get(site, 0) + n
    return tuple(sorted(counts.items(), key=lambda item: -item[1])[:MAX_SITES])
