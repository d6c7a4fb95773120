"""Main-thread CPU time held against wall time, phase by phase: what neither computed nor waited for data, blocked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import call_sites, cpu_time, rank_waits, statistics
from lightning_gpuprof.analyze.cpu_time import MIN_SAMPLES
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import Blocked, Share
from lightning_gpuprof.model.phases import WORKING_PHASES, Phase

LEAST_DELAYED_RATIO = 0.05
"""Share of the step without a CPU from which times of the host say more about other programs. Heuristic."""


def blocked(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask) -> tuple[Blocked, ...] | None:
    """Blocked time of the phases in which the main thread works, largest first.

    Blocked = exclusive wall time minus exclusive CPU time of the main thread, not below 0, over steady steps in
    which both were read. Time for which the thread was ready to run but had no CPU is no blocking: where the kernel
    tells it, all of it is taken off these phases, in proportion. Waiting for other ranks is a row of its own where it
    can be told apart. Threads that compute for the main thread
    (intra-op parallelism) make it wait while others work: with several torch threads a part of the time is that wait.

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        None if fewer than ten steady steps were sampled.
    """
    rows, indices = cpu_time.sampled(journal, steady)
    if len(rows) < MIN_SAMPLES:
        return None
    period = journal.steps.period_ns[indices]
    ordinary_ns = statistics.median(journal.steps.period_ns[steady])
    idle = {
        phase: np.maximum(phases[phase][indices] - cpu_time.phase_ns(journal, phase)[rows], 0)
        for phase in WORKING_PHASES
    }
    delay = journal.cpu.run_delay_ns
    if delay is not None:
        all_idle = np.maximum(sum(idle.values(), np.zeros(len(rows), np.int64)), 1)
        left = np.maximum(1 - delay[rows] / all_idle, 0)
        idle = {phase: (ns * left).astype(np.int64) for phase, ns in idle.items()}
    waits = {phase: np.minimum(ns[indices], idle[phase]) for phase, ns in rank_waits.waits_of(journal, phases).items()}
    idle = {phase: ns - waits.get(phase, 0) for phase, ns in idle.items()}
    found = _for_ranks(waits, period, ordinary_ns) if "backward" in waits else []
    for phase, blocked_ns in idle.items():
        wall = phases[phase][indices] - waits.get(phase, 0)
        share = statistics.share(blocked_ns, period, ordinary_ns=ordinary_ns)
        if share is not None and wall.any():
            found.append(
                Blocked(
                    phase=phase,
                    wall_ms=float(np.median(wall) / np.median(period)) * ordinary_ns / 1e6,
                    blocked=share,
                    samples=len(rows),
                    sites=call_sites.most_seen(journal, _slots_of(journal, phase)),
                )
            )
    return tuple(sorted(found, key=lambda b: -b.blocked.median_ratio))


def _for_ranks(waits: dict[Phase, Ints], period: Ints, ordinary_ns: float) -> list[Blocked]:
    share = statistics.share(sum(waits.values(), np.zeros_like(period)), period, ordinary_ns=ordinary_ns)
    phase = max(waits, key=lambda one: int(waits[one].sum()))
    if share is None:
        return []
    return [Blocked(phase=phase, wall_ms=share.median_ms, blocked=share, samples=len(period), for_ranks=True)]


def without_delay(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask, phase: Phase) -> Share | None:
    """Share of a phase without the time for which the thread was ready to run but had no CPU.

    That time is known for a step as a whole. It is taken off the phases in proportion to what each did not compute, but
    for the fetch of a batch, in which the thread waits without being ready to run.

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
        steady: Which steps are steady, shape (n,) for n steps.
        phase: Which phase.

    Returns:
        None if fewer than ten steady steps were sampled, or if the thread had a CPU nearly all the time.
    """
    rows, indices = cpu_time.sampled(journal, steady)
    delay = journal.cpu.run_delay_ns
    if delay is None or len(rows) < MIN_SAMPLES:
        return None
    period = journal.steps.period_ns[indices]
    if float(np.median(delay[rows] / np.maximum(period, 1))) < LEAST_DELAYED_RATIO:
        return None
    computed: dict[Phase, Ints] = {one: cpu_time.phase_ns(journal, one)[rows] for one in phases if one != "data_wait"}
    idle: dict[Phase, Ints] = {one: np.maximum(phases[one][indices] - ns, 0) for one, ns in computed.items()}
    all_idle = np.maximum(sum(idle.values(), np.zeros(len(rows), np.int64)), 1)
    left = np.maximum(1 - delay[rows] / all_idle, 0)
    own = (np.minimum(computed[phase], phases[phase][indices]) + idle[phase] * left).astype(np.int64)
    return statistics.share(own, period, ordinary_ns=statistics.median(journal.steps.period_ns[steady]))


def run_delay_ratio(journal: Journal, steady: Mask) -> float | None:
    """Median share of the step time in which the main thread was ready to run but had no CPU; None if not known.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    rows, indices = cpu_time.sampled(journal, steady)
    delay = journal.cpu.run_delay_ns
    if delay is None or len(rows) < MIN_SAMPLES:
        return None
    return float(np.median(delay[rows] / np.maximum(journal.steps.period_ns[indices], 1)))


def run_delay(journal: Journal, steady: Mask) -> tuple[Share | None, int]:
    """The share of :func:`run_delay_ratio` with its lower bound, and the number of steps in which it was read.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        Share, None if it was not measured, and a count.
    """
    rows, indices = cpu_time.sampled(journal, steady)
    delay = journal.cpu.run_delay_ns
    if delay is None or len(rows) < MIN_SAMPLES:
        return None, 0
    ordinary_ns = statistics.median(journal.steps.period_ns[steady])
    return statistics.share(delay[rows], journal.steps.period_ns[indices], ordinary_ns=ordinary_ns), len(rows)


def _slots_of(journal: Journal, phase: Phase) -> list[int]:
    return [slot for slot, found in enumerate(journal.slots) if found.step_phase == phase]
