"""Blocked time of the phases in which the thread works flows in, what is certainly waiting for something flows out.

The training thread may not run for three reasons: it waits for something (what is looked for), it waits for companion
threads of its own computation, or it waits for a CPU. The last is taken off already where the kernel tells it; the
others are taken off here, or lower what may be said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lightning_gpuprof.model.metrics import Blocked, Metrics
from lightning_gpuprof.model.phases import COMPUTE_PHASES, WORKING_PHASES, Phase
from lightning_gpuprof.rules.base import (
    MissingSignal,
    condition,
    is_cpu_only,
    is_distributed,
    machine_busy_ratio,
    steady_period_ms,
    usable,
)

LEAST_SAMPLES = 20
"""Steps with CPU times that a statement about blocked time needs. Catalogue: n of at least 20."""

BUSY_CPUS_RATIO = 0.9
"""Use of the CPUs from which the thread may be waiting for one, where the kernel does not tell. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Waiting in steady steps, inside the phases in which the training thread works."""

    phases: tuple[Blocked, ...]
    """Phases that were sampled often enough."""
    period_ms: float
    threads: int | None
    """Threads on which torch computes; None: not known."""
    process_companions_ratio: float | None
    """CPU time per step of the process's threads but the training thread, as a share of the period; None: not
    measured."""
    crowded: bool
    """The CPUs were used so much that the thread may have waited for one, and whether it did was not measured."""

    def companions_ratio(self, phase: Blocked) -> float:
        """Share of the period that the thread can at most have waited for companion threads in this phase.

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

    @property
    def worst(self) -> Blocked:
        """The phase with most of it."""
        return max(self.phases, key=lambda b: (self.certain_ratio(b), b.blocked.lower_ratio))


def waiting(metrics: Metrics) -> Waiting:
    """What is known about blocked time in the phases in which the training thread works, :data:`WORKING_PHASES`.

    With several ranks ``backward`` is left out: there, waiting is waiting for slower ranks.

    Raises:
        MissingSignal: CPU time of the training thread was not measured, or in too few steps; or waiting for the device
            cannot be told from it.
    """
    period_ms = steady_period_ms(metrics)
    if metrics.blocked is None:
        raise MissingSignal("the CPU time of the training thread was not measured")
    cpu_only = is_cpu_only(metrics)
    if cpu_only is None:
        raise MissingSignal("the device of the run is not known, so waiting for it cannot be told apart")
    if not cpu_only:
        raise MissingSignal("waits for the device cannot be told apart yet from other waiting")
    phases: tuple[Phase, ...] = WORKING_PHASES
    if is_distributed(metrics):
        phases = tuple(p for p in phases if p != "backward")
    found = tuple(b for b in metrics.blocked if b.phase in phases and usable(b.blocked))
    sampled = tuple(b for b in found if b.samples >= LEAST_SAMPLES)
    if not sampled:
        most = max((b.samples for b in found), default=0)
        raise MissingSignal(f"CPU times of {most} steps were read, {LEAST_SAMPLES} are needed")
    threads = condition(metrics, "torch.num_threads")
    return Waiting(
        phases=sampled,
        period_ms=period_ms,
        threads=threads if isinstance(threads, int) and threads >= 1 else None,
        process_companions_ratio=_process_companions_ratio(metrics, sampled),
        crowded=_crowded(metrics),
    )


def _process_companions_ratio(metrics: Metrics, sampled: tuple[Blocked, ...]) -> float | None:
    process_cpus = metrics.cpu.process_cpus
    if process_cpus is None:
        return None
    wait = metrics.share("data_wait")
    own_ratio = 1.0 - sum(b.blocked.median_ratio for b in sampled) - (wait.median_ratio if wait is not None else 0.0)
    return max(0.0, process_cpus - max(0.0, own_ratio))


def _crowded(metrics: Metrics) -> bool:
    cpu = metrics.cpu
    if cpu.run_delay_ratio is not None:  # waiting for a CPU was measured, and taken off already
        return False
    machine = machine_busy_ratio(metrics)
    if machine is not None and machine >= BUSY_CPUS_RATIO:
        return True
    if cpu.process_cpus is None or cpu.usable_cpus <= 0:
        return False
    return cpu.process_cpus + (cpu.worker_cpus or 0.0) >= BUSY_CPUS_RATIO * cpu.usable_cpus
