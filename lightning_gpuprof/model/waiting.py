"""What the main thread waits for where it should work: its own companions, another thread, or something else."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.finding import worthwhile
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.model.share import Share, usable

MIN_SAMPLES = 20
"""Steps with CPU times that a statement about blocked time needs. Catalogue: n of at least 20."""


HELD_RATIO = 0.10
"""Certain share of the step that the main thread waits for the GIL. As blocked-in-step."""

HELD_CPUS = 0.10
"""CPUs that another thread uses. Heuristic: it works a tenth of the time."""

HELD_LATE_RATIO = 0.30
"""How often the interpreter comes late. Heuristic: from a program without such a thread it is below 0.1."""

MIN_ASKED = 10
"""How often it was asked for. Heuristic: fewer say nothing."""

UNASKED = "what other threads of the program do was not measured, or too rarely"


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which the main thread neither worked nor waited for data, in one phase of sampled steps."""

    phase: Phase
    wall_ms: float
    """Median exclusive wall time of the phase in the sampled steps."""
    blocked: Share
    """Wall time minus main-thread CPU time, as a share of the step; time spent waiting for a CPU is taken off where
    it is known (:attr:`CpuFacts.run_delay_ratio`)."""
    samples: int
    sites: tuple[tuple[str, int], ...] = ()
    """Call sites seen in this phase, most frequent first: ``file:line function``, looks."""
    for_ranks: bool = False
    """It waits until other ranks have come as far, over all phases; this one has most of it."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting in steady steps, inside the phases in which the main thread works."""

    phases: tuple[Blocked, ...]
    """Phases that were sampled often enough; empty where only waiting for ranks is known, as from a trace."""
    period_ms: float
    threads: int | None
    """Threads on which torch computes; None: not known."""
    process_companions_ratio: float | None
    """CPU time per step of the process's threads but the main thread, as a share of the step time; None: not
    measured."""
    crowded: bool
    """The CPUs were used so much that the thread may have waited for one, and whether it did was not measured."""
    for_ranks: Blocked | None = None
    """Of several ranks: where this one waits for the others; all of the backward where that is not separated."""

    def companions_ratio(self, phase: Blocked) -> float:
        """Share of the step time that the thread can at most have waited for companion threads in this phase.

        Of N threads each does an equal part of an operation, so the others used at most N - 1 times what the training
        thread did; and not more than what the process used beside it. The smaller of what is known, or all.
        """
        bounds = [phase.blocked.median_ratio]
        if self.threads is not None:
            own_ratio = max(0.0, phase.wall_ms - phase.blocked.median_ms) / self.period_ms
            bounds.append((self.threads - 1) * own_ratio)
        if self.process_companions_ratio is not None:
            bounds.append(self.process_companions_ratio)
        return min(bounds)

    def certain_ratio(self, phase: Blocked) -> float:
        """Lower bound of the share in which the thread waited in this phase for something else than its companions."""
        return max(0.0, phase.blocked.lower_ratio - self.companions_ratio(phase))

    @property
    def total_certain_ratio(self) -> float:
        """The same over all phases."""
        companions = sum(self.companions_ratio(b) for b in self.phases)
        if self.process_companions_ratio is not None:
            companions = min(companions, self.process_companions_ratio)
        return max(0.0, sum(b.blocked.lower_ratio for b in self.phases) - companions)

    @property
    def of_model(self) -> Waiting:
        """The same in the phases in which the model works: waiting while a batch is moved is a part of the move."""
        return replace(self, phases=tuple(row for row in self.phases if row.phase in COMPUTE_PHASES))

    def without(self, part: Share | None) -> Waiting:
        """The same without a part of ``optimizer``, all of its time; None leaves it as it is."""
        if part is None or not usable(part):
            return self
        less = {
            "median_ms": part.median_ms,
            "median_ratio": part.median_ratio,
            "lower_ratio": part.median_ratio,
        }
        rows = []
        for row in self.phases:
            if row.phase == "optimizer":
                left = {name: max(0.0, getattr(row.blocked, name) - value) for name, value in less.items()}
                wall_ms = max(0.0, row.wall_ms - part.median_ms)
                row = replace(row, wall_ms=wall_ms, blocked=replace(row.blocked, **left))
            rows.append(row)
        return replace(self, phases=tuple(rows))

    @property
    def worst(self) -> Blocked:
        """The phase with most of it."""
        return max(self.phases, key=lambda b: (self.certain_ratio(b), b.blocked.lower_ratio))


class PythonThread(msgspec.Struct, frozen=True, kw_only=True):
    """Another Python thread of the program."""

    name: str
    cpus: float
    """CPUs that it used on average."""
    sites: tuple[tuple[str, int], ...] = ()
    """Where it was seen, most frequent first: ``file:line function``, looks."""


class InterpreterLock(msgspec.Struct, frozen=True, kw_only=True):
    """How hard it was to get hold of the interpreter while the main thread was at work in its steps."""

    asked: int
    """How often our own thread asked."""
    late: int
    """Of these, how often it got it only after a fifth of a switch interval or longer, as from a thread that runs
    Python; from one in operators of torch it has it at once."""
    by_phase: Mapping[Phase, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Both numbers by phase."""
    waited: Share | None = None
    """Of sampled steps, in all phases but the fetch, rank synchronisation, validation and checkpoints: time in which
    the main thread neither computed nor wanted for a CPU. A phase by itself hides it: the lock is waited for now
    here, now there. None: its CPU time was not measured, or in too few steps."""
    samples: int = 0
    """Those steps."""
    threads: tuple[PythonThread, ...] = ()
    """Most CPU time first."""


class InterpreterWait(msgspec.Struct, frozen=True, kw_only=True):
    """How the main thread waits for another Python thread that holds the interpreter."""

    thread: PythonThread | None
    """The busiest one; None: no other was seen."""
    waiting: Waiting
    certain_ratio: float
    """Lower bound of the share of the step in which it waits, without what it waits for its own companions."""
    late_ratio: float
    """How often the interpreter came late, each phase by how long the main thread waits in it."""
    lost_ms: float
    """Waiting per step, at most the CPU time of the other thread."""
    asked: int
    samples: int

    def is_held(
        self,
        *,
        least_ratio: float = HELD_RATIO,
        least_cpus: float = HELD_CPUS,
        least_late_ratio: float = HELD_LATE_RATIO,
        least_asked: int = MIN_ASKED,
    ) -> bool:
        """Whether another thread holds the interpreter so that it is worth a change.

        Args:
            least_ratio: Least share of the step in which the main thread may wait for it.
            least_cpus: Least CPU use of the other thread, in CPUs.
            least_late_ratio: Least share of the requests that were answered late.
            least_asked: Least number of requests.
        """
        if self.thread is None or self.asked < least_asked or self.thread.cpus < least_cpus:
            return False
        certain = self.late_ratio >= least_late_ratio and self.certain_ratio >= least_ratio
        return certain and worthwhile(self.lost_ms, self.waiting.period_ms)
