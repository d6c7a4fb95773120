"""Finds another Python thread of the program that keeps the training thread from the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Blocked, InterpreterLock, Metrics, PythonThread, Share
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    possible,
    severity,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.steps.waiting import LEAST_SAMPLES, waiting
from lightning_gpuprof.rules.wording import cpus, millis


@dataclass(frozen=True, kw_only=True)
class InterpreterLockHeld(BaseRule):
    """Another thread of the program runs Python, and the training thread waits for the interpreter.

    ## What it means

    Only one thread at a time runs Python. A thread that computes in pure Python (metrics, logging, a queue that
    pickles) gives the interpreter away every 5 ms. The training thread lets go of it in each operator of torch, and
    then waits up to 5 ms to get it back, many times a step.

    ## How it is measured

    The CPU time of each other Python thread is read once a second. In sampled steps the training thread waits without
    computing and without wanting for a CPU, in all phases but the fetch: now in one, now in another, so that no phase
    by itself shows it (waiting for threads of torch is taken off, as in `blocked-in-step`). And a thread of this
    profiler that asks for the interpreter now and then gets it a fifth of the switch interval (1 ms) late or more, as
    it does from a thread that runs Python. The training thread is such a thread itself, so each phase counts by how
    long the training thread waits in it: where it runs Python it does not wait. Named is the thread with most CPU time,
    with the line of your code at which it was most often seen. The gain is the waiting time, at most the CPU time of
    the thread: an upper bound. What `blocked-in-step` finds is then the same time.

    ## When it is wrong

    - A thread that computes in native code without the interpreter keeps nobody waiting: then our own thread gets it
      at once, and the rule is silent.
    - A part of the waiting may be for something else in the same phases: the gain is an upper bound. A phase in which
      the training thread both runs Python for long and waits for something else looks the same.
    - On a GPU waiting for the device cannot be told apart: not evaluated. Nor where `/proc` does not tell the CPU time
      of threads, or in runs of a few seconds.

    ## What to do

    Move the work to a process (`multiprocessing`, `concurrent.futures.ProcessPoolExecutor`), or into native code that
    lets go of the interpreter (numpy, torch).

    ## Example

    "Thread metrics (train.py:21 count) keeps the Python interpreter busy (0.9 CPUs): the training thread waits up to
    18.0 ms of 25.0 ms per step for it."
    """

    id = "interpreter-lock"
    specialises = ("blocked-in-step",)

    least_ratio: float = threshold(0.10, source="as blocked-in-step")
    least_cpus: float = threshold(0.10, source="heuristic: a thread that works a tenth of the time")
    least_late_ratio: float = threshold(0.30, source="heuristic: from a program without such a thread it is below 0.1")
    least_asked: int = threshold(10, source="heuristic: fewer say nothing")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the busiest other thread."""
        period_ms = steady_period_ms(metrics)
        found = waiting(metrics)
        lock, waited, thread = self._judged(metrics.interpreter_lock)
        certain = max(0.0, waited.lower_ratio - sum(map(found.companions_ratio, found.phases)))
        late_ratio = _late_ratio(lock, found.phases)
        if thread is None or thread.cpus < self.least_cpus or late_ratio < self.least_late_ratio:
            return None
        lost_ms = min(waited.median_ms, thread.cpus * period_ms, period_ms)
        if certain < self.least_ratio or not worthwhile(lost_ms, period_ms):
            return None
        site = thread.sites[0][0] if thread.sites else ""
        name = f"Thread {thread.name}{f' ({site})' if site else ''}"
        level: Severity = severity(min(certain, lost_ms / period_ms), min(metrics.steps.steady_count, lock.samples))
        return self.finding(
            severity="info" if found.crowded else level,
            subject=f"thread {thread.name}",
            summary=(
                f"{name} keeps the Python interpreter busy ({cpus(thread.cpus)}): the training thread waits up to "
                f"{millis(lost_ms)} of {millis(period_ms)} per step for it."
            ),
            advice=(
                f"Move the work of thread {thread.name}{f' at {site}' if site else ''} to a process "
                "(multiprocessing, ProcessPoolExecutor), or into native code that lets go of the interpreter: only one "
                "thread at a time runs Python."
            ),
            evidence=(
                self.evidence(
                    "least_ratio", certain, "training thread waits outside of the fetch, share of the step, at least"
                ),
                self.evidence("least_cpus", thread.cpus, f"CPUs that thread {thread.name} uses", "CPUs"),
                self.evidence(
                    "least_late_ratio",
                    late_ratio,
                    "interpreter handed over late while the training thread waits, share of the tries",
                ),
                *(Evidence(name="call site", value=f"{place} ({looks} looks)") for place, looks in thread.sites[:3]),
            ),
            gain=gain(lost_ms, min(certain * period_ms, lost_ms), period_ms),
            confidence=0.5 if found.crowded else 0.8,
            explains=claims.INTERPRETER,
        )

    def _judged(self, lock: InterpreterLock | None) -> tuple[InterpreterLock, Share, PythonThread | None]:
        if lock is None or lock.asked < self.least_asked:
            raise MissingSignal("what other threads of the program do was not measured, or in too few looks")
        if lock.waited is None or not usable(lock.waited) or lock.samples < LEAST_SAMPLES:
            raise MissingSignal(f"the training thread's CPU times of {LEAST_SAMPLES} steps are needed")
        known = [thread for thread in lock.threads if possible(thread.cpus)]
        return lock, lock.waited, max(known, key=lambda thread: thread.cpus, default=None)


def holds_the_interpreter(metrics: Metrics) -> bool:
    """Whether the waiting of the training thread is for the interpreter, by this rule."""
    try:
        return InterpreterLockHeld().check(metrics) is not None
    except MissingSignal:
        return False


def _late_ratio(lock: InterpreterLock, phases: Sequence[Blocked]) -> float:
    """How often the interpreter came late, each phase by the mean time that the training thread waits in it."""
    waited, late = 0.0, 0.0
    for row in phases:
        asked, of_them = lock.by_phase.get(row.phase, (0, 0))
        if asked > 0:
            waited += row.blocked.total_ratio
            late += row.blocked.total_ratio * of_them / asked
    return late / waited if waited > 0 else 0.0
