"""The main thread sleeps or is blocked inside forward, backward, the optimizer or the transfer of the batch.

## What it means
Reading a file, a lock, the network, a subprocess or a plain `sleep` stops the training without using a CPU. Tables of
operators do not show it, because no operator runs.

## How it is measured
In sampled steps, the CPU time of the main thread is read at every phase edge. Blocked time is wall time minus CPU time
in `forward`, `backward`, `optimizer`, `zero_grad`, `clip` and `h2d`. Time in which the thread was ready but had no CPU
(`schedstat`) does not count, nor do learning rate schedulers (`lr-scheduler-cost`) or waits of the whole control group
for memory (`host-swap`).

With N torch threads, the main thread also waits for the others. At most N - 1 times its own CPU time in the phase, and
at most the CPU time of the rest of the process, is subtracted before the lower bound is compared with the threshold.

The finding names the phase that is blocked longest, and the line of your code at which the thread was seen most often.
The gain is the blocked time. If the thread waits for the GIL, `interpreter-lock` carries the gain.

## When it is wrong
- On a GPU, blocked time includes waiting for the device, which may be useful work: not evaluated.
- With several ranks, waits for slower ranks are left out: at the end of the backward and in collectives.
- If waiting for a CPU is not measured and the CPUs are 90 % busy, the finding is information only.
- With several torch threads, a real wait beside parallel computation is underestimated.

## What to do
Move the blocking call out of the step: read before training or in the Dataset, write from a background thread, or do it
every N steps.
"""

import re

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase, words_of
from lightning_gpuprof.model.waiting import MIN_SAMPLES, Waiting
from lightning_gpuprof.rules.base import BaseRule, Evidence, Finding, Metrics, claims, counted, listed, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_SLEEPING = {
    "times_ms": {"forward": 13.0, "backward": 3.0, "optimizer": 1.0},
    "blocked_ms": {"forward": 10.0},
    "sites": {"forward": [("train.py:41 training_step", 55)]},
    "process_cpus": 0.5,
    "worker_cpus": None,
}


class BlockedInStep(BaseRule):
    id = "blocked-in-step"
    title = "A blocking call stalls the step"

    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the step")

    examples = (
        fires(
            "training_step sleeps 10 ms", "critical", "the blocking call in training_step() (train.py:41)", **_SLEEPING
        ),
        fires("the CPUs are full", "info", "waiting for a CPU", **{**_SLEEPING, "usable_cpus": 0.5}),
        quiet("the thread hardly waits", **{**_SLEEPING, "blocked_ms": {"forward": 0.5}}),
        looks_alike("the thread waits for torch's threads", blocked_ms={"forward": 10.0}, run={"torch.num_threads": 2}),
        looks_alike("its memory comes from swap", swapping={"full": 0.6}, **_SLEEPING),
        looks_alike("the thread waits for other ranks", blocked_ms={"backward": 10.0}, run={"trainer.world_size": 2}),
        not_evaluated("its memory comes from swap, for how long is unknown", "swap", swapping={}, **_SLEEPING),
        not_evaluated("its CPU time is unknown", "CPU time of the main thread", blocked_known=False),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        found = measured(metrics.waiting).without(metrics.lr_scheduler)  # in which it may wait as well
        if not found.phases:
            raise MissingSignal("the CPU time of the main thread was not measured")
        worst = found.worst
        swapped = metrics.host.memory_stall_ratio
        certain = max(0.0, found.certain_ratio(worst) - (swapped or 0.0))
        most_ms = min(worst.blocked.median_ms, step_ms * (1.0 - (swapped or 0.0)))
        cost = metrics.cost(most_ms, certain * step_ms, samples=worst.samples)
        if not cost.is_worth():
            return None
        if certain < self.least_ratio:
            self._require_told_apart(found)
            return None
        if swapped is None and metrics.host.is_swapped:
            raise MissingSignal("waiting for memory from swap cannot be separated: it was not measured")
        site = worst.sites[0][0] if worst.sites else ""
        code = next((row.code for row in metrics.lines if row.place == site), "")  # as written; empty: not known
        where = f", mostly in {in_words(site)}" if site else ""
        does = "sleeps" if re.search(_SLEEPS, code) else "is blocked"
        also = [
            words_of(b.phase) for b in found.phases if b is not worst and found.certain_ratio(b) >= self.least_ratio
        ]
        others = f" Also in {listed(also)}." if also else ""
        crowded = " The CPUs are fully used: part of this may be waiting for a CPU." if found.crowded else ""
        return self.finding(
            severity="info" if found.crowded else None,
            subject=site or words_of(worst.phase),
            summary=f"The main thread {does} in {words_of(worst.phase)} for {cost}{where}.{others}{crowded}",
            advice=_advice(worst.phase, site, code),
            evidence=(
                self.evidence(
                    "least_ratio", worst.blocked.median_ratio, f"blocked in {words_of(worst.phase)}, of the step"
                ),
                self.fact(f"{words_of(worst.phase)} wall time", worst.wall_ms, "ms"),
                self.fact("blocked", worst.blocked.median_ms, "ms"),
                self.fact("waiting for torch's other threads, at most", found.companions_ratio(worst), "ratio"),
                Evidence(name="sampled steps", value=worst.samples, limit=MIN_SAMPLES),
                *(
                    self.fact("call site", f"{in_words(name)}: {counted(looks, 'sample')}")
                    for name, looks in worst.sites[:3]
                ),
            ),
            cost=cost,
            confidence=0.5 if found.crowded else 0.9 if site else 0.8,
            explains=claims.INTERPRETER if metrics.interpreter_is_held else claims.of_phase(worst.phase),
        )

    def _require_told_apart(self, found: Waiting) -> None:
        """Raise if much is blocked, and only for lack of a signal it is not known on what."""
        if found.process_companions_ratio is not None or found.worst.blocked.lower_ratio < self.least_ratio:
            return
        if found.companions_ratio(found.worst) > 0:
            raise MissingSignal(
                "waiting for torch's threads cannot be separated: the CPU time of the process was not measured"
            )


_REMEDIES = (
    (r"\b(open|load|loads|read\w*)\(", "Read the data before training or in the Dataset."),
    (r"\b(dump|dumps|save\w*|write\w*|to_csv|flush|fsync)\(", "Write from a background thread."),
    (r"\b(get|post|put|request|urlopen|recv\w*|send\w*)\(", "Send and receive from a background thread."),
    (r"\b(acquire|wait|join|result|communicate|check_output|run)\(", "Collect its result a few steps later instead."),
)
"""What a line visibly calls, and what to do instead."""
_SLEEPS = r"\bsleep\("
_ANY = "Read files before training or in the Dataset; write them from a background thread."


def _advice(phase: Phase, site: str, code: str) -> str:
    """What to do about the blocking call, by what the line visibly does."""
    if not site:
        where = f"{words_of(phase)} ({PHASE_TERMS[phase]}; no line of your code was seen there)"
        return f"Find the blocking call in {where}. {_ANY}"
    if re.search(_SLEEPS, code):
        return f"Remove the sleep in {in_words(site)}. If it waits for something, wait for that in a background thread."
    remedy = next((words for called, words in _REMEDIES if re.search(called, code)), _ANY)
    return f"Move the blocking call in {in_words(site)} out of {words_of(phase)}. {remedy}"
