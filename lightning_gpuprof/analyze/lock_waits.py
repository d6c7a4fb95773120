"""Which other threads run Python beside the steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import cpu_time, statistics
from lightning_gpuprof.analyze.call_sites import MAX_SITES
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import InterpreterLock, PythonThread, Share
from lightning_gpuprof.model.phases import PHASES, Phase

MAX_THREADS = 8


_WAITS: frozenset[Phase] = frozenset({"data_wait", "sync", "validation", "checkpoint"})
"""Phases in which the main thread may wait for something else."""


def interpreter_lock(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask) -> InterpreterLock | None:
    """The interpreter's lock in the phases in which the main thread works, and the other Python threads.

    Args:
        journal: One rank's journal.
        phases: Exclusive time in ns, arrays of shape (n,).
        steady: Which of all steps are steady, shape (n,).

    Returns:
        None if CPU times of threads were not read.
    """
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
    waited, samples = _waited(journal, phases, steady)
    return InterpreterLock(
        asked=sum(times for times, _ in by_phase.values()),
        late=sum(times for _, times in by_phase.values()),
        by_phase=by_phase,
        waited=waited,
        samples=samples,
        threads=tuple(sorted(threads, key=lambda thread: -thread.cpus)[:MAX_THREADS]),
    )


def _waited(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask) -> tuple[Share | None, int]:
    rows, indices = cpu_time.sampled(journal, steady)
    if len(rows) < cpu_time.MIN_SAMPLES:
        return None, len(rows)
    idle_ns = np.zeros(len(rows), np.int64)
    for phase in PHASES:
        if phase not in _WAITS:
            idle_ns += phases[phase][indices] - cpu_time.phase_ns(journal, phase)[rows]
    delay = journal.cpu.run_delay_ns
    idle_ns -= 0 if delay is None else delay[rows]
    ordinary_ns = statistics.median(journal.steps.period_ns[steady])
    period_ns = journal.steps.period_ns[indices]
    return statistics.share(np.maximum(idle_ns, 0), period_ns, ordinary_ns=ordinary_ns), len(rows)
