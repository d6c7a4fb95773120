"""Another thread of the program holds the GIL, and the main thread waits for it.

## What it means
Only the thread that holds the GIL can run Python. One that computes in pure Python (metrics, logging, a queue that
pickles) releases it every 5 ms: the main thread, which releases it in each torch operator, waits up to 5 ms each time.

## How it is measured
Three signals must agree (on a GPU the rule is not evaluated):

- another Python thread uses CPU time, which is read once a second;
- in sampled steps, the main thread waits as in `blocked-in-step`, but in all phases except the fetch;
- a thread of this profiler, which requests the GIL now and then, gets it at least 1 ms late. Each phase is
  weighted by how long the main thread waits in it.

The finding names the thread with most CPU time, and the line of your code at which it was seen most often. The gain is
the waiting time, at most that thread's CPU time.

## When it is wrong
- The gain is an upper bound: a main thread that runs Python for long and waits for something else looks the same.

## What to do
Move the work to a process (`concurrent.futures.ProcessPoolExecutor`), or into native code (numpy, torch).
"""

from dataclasses import asdict

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.waiting import HELD_CPUS, HELD_LATE_RATIO, HELD_RATIO, MIN_ASKED, UNASKED
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, claims, measured, millis, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet


class InterpreterLockHeld(BaseRule):
    id = "interpreter-lock"
    title = "Another thread holds the GIL"
    specialises = ("blocked-in-step",)

    least_ratio: float = threshold(HELD_RATIO, source="as blocked-in-step")
    least_cpus: float = threshold(HELD_CPUS, source="heuristic: a thread that works a tenth of the time")
    least_late_ratio: float = threshold(HELD_LATE_RATIO, source="heuristic: without such a thread it is below 0.1")
    least_asked: int = threshold(MIN_ASKED, source="heuristic: fewer say nothing")

    examples = (
        fires("a thread computes", "critical", "`metrics` thread holds the GIL in count() (train.py:21)", beside={}),
        quiet("no other thread computes", beside={"cpus": 0.01}),
        looks_alike("the thread computes in native code", beside={"late": 5}),
        looks_alike("the training does not wait", beside={"waited_ms": 2.0}),
        not_evaluated("its CPU time is unknown", "CPU time of the main thread", beside={}, blocked_known=False),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms, found = metrics.step_ms, measured(metrics.interpreter_wait)
        thread, certain, lost_ms = found.thread, found.certain_ratio, found.lost_ms
        if found.asked < self.least_asked:
            raise MissingSignal(UNASKED)
        if thread is None or not found.is_held(**asdict(self)):
            return None
        sites = [(in_words(site), looks) for site, looks in thread.sites[:3]]
        where = f" in {sites[0][0]}" if sites else ""
        return self.finding(
            severity="info" if found.waiting.crowded else None,
            subject=f"thread {thread.name}",
            summary=f"The `{thread.name}` thread holds the GIL{where}. The main thread spends up to {millis(lost_ms)} "
            f"of each {millis(step_ms)} step waiting for it.",
            advice=f"Move the `{thread.name}` thread's work to a process (multiprocessing, ProcessPoolExecutor) or "
            "into native code that releases the GIL: only one thread can run Python at a time.",
            evidence=(
                self.evidence("least_ratio", certain, "waiting outside the fetch, share of the step, at least"),
                self.evidence("least_cpus", thread.cpus, f"used by thread {thread.name}", "CPUs"),
                self.evidence("least_late_ratio", found.late_ratio, "GIL came late, share of the requests"),
                *(self.fact("call site", f"{place}: {looks} samples") for place, looks in sites),
            ),
            cost=metrics.cost(lost_ms, min(certain * step_ms, lost_ms), samples=found.samples),
            leaves=_leaves(metrics, lost_ms, thread.cpus * step_ms),
            confidence=0.5 if found.waiting.crowded else 0.8,
            explains=claims.INTERPRETER,
        )


def _leaves(metrics: Metrics, lost_ms: float, most_ms: float) -> str:
    """What the gain has nothing of."""
    if lost_ms >= most_ms:
        return "waits beyond that thread's own CPU time"
    wait = metrics.share("data_wait")
    alone = metrics.loader is not None and metrics.loader.num_workers == 0
    if not alone or wait is None or wait.total_ratio < HELD_RATIO:
        return ""
    loading_ms = wait.total_ratio * metrics.step_ms
    return f"{millis(loading_ms)} of data loading per step, some of which may also be waiting for the GIL"
