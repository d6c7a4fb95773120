"""Main-thread CPU time compared with wall time, phase by phase: what neither computed nor waited for data, blocked.

Beside it the other threads that run Python, and how the main thread gets hold of the interpreter.
"""

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import call_sites, rank_waits
from lightning_gpuprof.analyze.call_sites import MAX_SITES
from lightning_gpuprof.analyze.cpu_time import SampledSteps
from lightning_gpuprof.analyze.journal_columns import Ints
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.phases import PHASES, WORKING_PHASES, Phase
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.model.waiting import Blocked, InterpreterLock, PythonThread

LEAST_DELAYED_RATIO = 0.05
"""Share of the step without a CPU from which times of the host say more about other programs. Heuristic."""

MAX_THREADS = 8

_WAITS: frozenset[Phase] = frozenset({"data_wait", "sync", "validation", "checkpoint"})
"""Phases in which the main thread may wait for something else."""


def blocked(sampled: SampledSteps) -> tuple[Blocked, ...] | None:
    """Blocked time of the phases in which the main thread works, largest first.

    Blocked = exclusive wall time minus exclusive CPU time of the main thread, not below 0, over steady steps in
    which both were read. Time for which the thread was ready to run but had no CPU is no blocking: where the kernel
    says it, all of it is taken off these phases, in proportion. Waiting for other ranks is a row of its own where it
    can be separated. Threads that compute for the main thread
    (intra-op parallelism) make it wait while others work: with several torch threads a part of the time is that wait.

    Returns:
        None if fewer than ten steady steps were sampled.
    """
    if sampled.few:
        return None
    journal, indices = sampled.journal, sampled.indices
    wall = {phase: journal.phases[phase][indices] for phase in WORKING_PHASES}
    idle = {phase: np.maximum(ns - sampled.cpu_ns[phase], 0) for phase, ns in wall.items()}
    if sampled.delay_ns is not None:
        left = _left_of(idle, sampled.delay_ns)
        idle = {phase: (ns * left).astype(np.int64) for phase, ns in idle.items()}
    waits = {phase: np.minimum(ns[indices], idle[phase]) for phase, ns in rank_waits.waits_of(journal).items()}
    idle = {phase: ns - waits.get(phase, 0) for phase, ns in idle.items()}
    found = _for_ranks(waits, sampled) if "backward" in waits else []
    for phase, blocked_ns in idle.items():
        working_ns = wall[phase] - waits.get(phase, 0)
        share = sampled.share(blocked_ns)
        if share is not None and working_ns.any():
            slots = [slot for slot, one in enumerate(journal.slots) if one.step_phase == phase]
            found.append(
                Blocked(
                    phase=phase,
                    wall_ms=float(np.median(working_ns) / np.median(sampled.period_ns)) * sampled.ordinary_ns / 1e6,
                    blocked=share,
                    samples=len(sampled),
                    sites=call_sites.most_seen(journal, slots),
                )
            )
    return tuple(sorted(found, key=lambda b: -b.blocked.median_ratio))


def _for_ranks(waits: dict[Phase, Ints], sampled: SampledSteps) -> list[Blocked]:
    share = sampled.share(sum(waits.values(), np.zeros_like(sampled.period_ns)))
    phase = max(waits, key=lambda one: int(waits[one].sum()))
    if share is None:
        return []
    return [Blocked(phase=phase, wall_ms=share.median_ms, blocked=share, samples=len(sampled), for_ranks=True)]


def without_delay(sampled: SampledSteps, phase: Phase) -> Share | None:
    """Share of a phase without the time for which the thread was ready to run but had no CPU.

    That time is known for a step as a whole. It is taken off the phases in proportion to what each did not compute, but
    for the fetch of a batch, in which the thread waits without being ready to run.

    Args:
        sampled: The steady steps with CPU times.
        phase: Which phase.

    Returns:
        None if fewer than ten steady steps were sampled, or if the thread had a CPU nearly all the time.
    """
    found = undelayed_ns(sampled)
    return None if found is None else sampled.share(found[phase])


def undelayed_ns(sampled: SampledSteps) -> dict[Phase, Ints] | None:
    """Time of each phase in each of the steps as :func:`without_delay` has it, shape (m,); None where it has none."""
    if sampled.delay_ns is None or (sampled.delay_ratio() or 0.0) < LEAST_DELAYED_RATIO:
        return None
    found: dict[Phase, Ints] = {one: ns[sampled.indices] for one, ns in sampled.journal.phases.items()}
    idle: dict[Phase, Ints] = {
        one: np.maximum(ns - sampled.cpu_ns[one], 0) for one, ns in found.items() if one != "data_wait"
    }
    left = _left_of(idle, sampled.delay_ns)
    for one, ns in idle.items():
        found[one] = (np.minimum(sampled.cpu_ns[one], found[one]) + ns * left).astype(np.int64)
    return found


def _left_of(idle_ns: Mapping[Phase, Ints], delay_ns: Ints) -> Floats:
    """Share of the time without computing that is left in each step without the delay, shape (m,)."""
    all_idle = np.maximum(sum(idle_ns.values(), np.zeros(len(delay_ns), np.int64)), 1)
    return np.maximum(1 - delay_ns / all_idle, 0)


def interpreter_lock(sampled: SampledSteps) -> InterpreterLock | None:
    """The GIL where the main thread works, and the other Python threads; None if CPU times of threads were not read."""
    journal = sampled.journal
    if journal.threads_ns <= 0:
        return None
    by_phase: dict[Phase, tuple[int, int]] = {}
    for slot, (times, of_them) in journal.lock.items():
        if slot < len(journal.slots) and (phase := journal.slots[slot].step_phase) not in _WAITS:
            before = by_phase.get(phase, (0, 0))
            by_phase[phase] = before[0] + times, before[1] + of_them
    threads = [
        PythonThread(
            name=name,
            cpus=seen.cpu_ns / journal.threads_ns,
            sites=tuple(sorted(seen.sites.items(), key=lambda item: -item[1])[:MAX_SITES]),
        )
        for name, seen in journal.threads.items()
        if seen.cpu_ns > 0
    ]
    return InterpreterLock(
        asked=sum(times for times, _ in by_phase.values()),
        late=sum(times for _, times in by_phase.values()),
        by_phase=by_phase,
        waited=None if sampled.few else sampled.share(_idle_ns(sampled)),
        samples=len(sampled),
        threads=tuple(sorted(threads, key=lambda thread: -thread.cpus)[:MAX_THREADS]),
    )


def _idle_ns(sampled: SampledSteps) -> Ints:
    """Time of each step in which the main thread had work but did not compute, though it could have had a CPU."""
    working = [phase for phase in PHASES if phase not in _WAITS]
    idle_ns = np.zeros(len(sampled), np.int64)
    for phase in working:
        idle_ns += sampled.journal.phases[phase][sampled.indices] - sampled.cpu_ns[phase]
    return np.maximum(idle_ns if sampled.delay_ns is None else idle_ns - sampled.delay_ns, 0)
