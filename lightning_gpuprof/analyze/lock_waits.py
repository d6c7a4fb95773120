"""Which other threads run Python beside the steps."""

import numpy as np

from lightning_gpuprof.analyze.call_sites import MAX_SITES
from lightning_gpuprof.analyze.cpu_time import SampledSteps
from lightning_gpuprof.analyze.journal import Ints
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.waiting import InterpreterLock, PythonThread

MAX_THREADS = 8


_WAITS: frozenset[Phase] = frozenset({"data_wait", "sync", "validation", "checkpoint"})
"""Phases in which the main thread may wait for something else."""


def interpreter_lock(sampled: SampledSteps) -> InterpreterLock | None:
    """The interpreter's lock in the phases in which the main thread works, and the other Python threads.

    Returns:
        None if CPU times of threads were not read.
    """
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
