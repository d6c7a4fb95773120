"""Finds another Python thread of the program that keeps the training thread from the interpreter."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.waiting import HELD_CPUS, HELD_LATE_RATIO, HELD_RATIO, LEAST_ASKED, UNASKED
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    measured,
    severity,
    steady_period_ms,
    threshold,
)
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

    least_ratio: float = threshold(HELD_RATIO, source="as blocked-in-step")
    least_cpus: float = threshold(HELD_CPUS, source="heuristic: a thread that works a tenth of the time")
    least_late_ratio: float = threshold(HELD_LATE_RATIO, source="heuristic: without such a thread it is below 0.1")
    least_asked: int = threshold(LEAST_ASKED, source="heuristic: fewer say nothing")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the busiest other thread."""
        period_ms = steady_period_ms(metrics)
        found = measured(metrics.interpreter_wait)
        thread, certain, lost_ms = found.thread, found.certain_ratio, found.lost_ms
        if found.asked < self.least_asked:
            raise MissingSignal(UNASKED)
        if thread is None or not found.is_held(
            least_ratio=self.least_ratio,
            least_cpus=self.least_cpus,
            least_late_ratio=self.least_late_ratio,
            least_asked=self.least_asked,
        ):
            return None
        site = thread.sites[0][0] if thread.sites else ""
        name = f"Thread {thread.name}{f' ({site})' if site else ''}"
        level: Severity = severity(min(certain, lost_ms / period_ms), min(metrics.steps.steady_count, found.samples))
        return self.finding(
            severity="info" if found.waiting.crowded else level,
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
                    found.late_ratio,
                    "interpreter handed over late while the training thread waits, share of the tries",
                ),
                *(Evidence(name="call site", value=f"{place} ({looks} looks)") for place, looks in thread.sites[:3]),
            ),
            gain=gain(lost_ms, min(certain * period_ms, lost_ms), period_ms),
            confidence=0.5 if found.waiting.crowded else 0.8,
            explains=claims.INTERPRETER,
        )
