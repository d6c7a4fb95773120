"""How much of the blocked time in computing phases is certainly spent waiting.

The main thread may not run for three reasons: it waits for something (what is looked for), it waits for companion
threads of its own computation, or it waits for a CPU. The last is taken off already where the kernel reports it; the
others are taken off here, or lower what may be said.
"""

from collections.abc import Sequence

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured, or_unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import machine_busy_ratio
from lightning_gpuprof.model.waiting import MIN_SAMPLES, UNASKED, Blocked, InterpreterLock, InterpreterWait, Waiting

BUSY_CPUS_RATIO = 0.9
"""Use of the CPUs from which the thread may be waiting for one, where the kernel does not report it. Heuristic."""


@or_unmeasured
def waiting(metrics: Metrics) -> Waiting:
    """Blocked time in the phases in which the main thread works, :data:`WORKING_PHASES`.

    With several ranks, waiting for slower ones is kept apart; all of ``backward`` where that is not separated.

    Raises:
        NotApplicable: On a GPU: waiting for the device cannot be separated from it.
        MissingSignal: CPU time of the main thread was not measured, or in too few steps; or the device is not known.
    """
    period_ms = metrics.step_ms
    if metrics.blocked is None:
        raise MissingSignal("the CPU time of the main thread was not measured")
    cpu_only = metrics.is_cpu_only
    if cpu_only is None:
        raise MissingSignal("the device of the run is not known, so waiting for it cannot be separated")
    if not cpu_only:
        raise NotApplicable("on a GPU, waiting for the device cannot be separated from other waiting")
    mixed = metrics.is_distributed and not any(b.for_ranks for b in metrics.blocked)
    waits = {b: b.for_ranks or (mixed and b.phase == "backward") for b in metrics.blocked if usable(b.blocked)}
    found = tuple(b for b, for_ranks in waits.items() if not for_ranks)
    met = (b for b, for_ranks in waits.items() if for_ranks and b.samples >= MIN_SAMPLES)
    sampled = tuple(b for b in found if b.samples >= MIN_SAMPLES)
    if not sampled:
        most = max((b.samples for b in found), default=0)
        raise MissingSignal(f"CPU times were sampled in {most} of the {MIN_SAMPLES} steps needed")
    return Waiting(
        phases=sampled,
        period_ms=period_ms,
        threads=metrics.positive("torch.num_threads"),
        process_companions_ratio=_process_companions_ratio(metrics, sampled),
        crowded=_crowded(metrics),
        for_ranks=next(met, None),
    )


@or_unmeasured
def interpreter_wait(metrics: Metrics) -> InterpreterWait:
    """How the main thread waits for the interpreter, by the busiest other thread; reads the run's ``waiting``.

    Without enough samples it raises MissingSignal.
    """
    found, lock = measured(metrics.waiting), metrics.interpreter_lock
    if lock is None:
        raise MissingSignal(UNASKED)
    if lock.waited is None or not usable(lock.waited) or lock.samples < MIN_SAMPLES:
        raise MissingSignal(f"the main thread's CPU times of {MIN_SAMPLES} steps are needed")
    known = [thread for thread in lock.threads if possible(thread.cpus)]
    thread = max(known, key=lambda thread: thread.cpus, default=None)
    cpus = 0.0 if thread is None else thread.cpus
    return InterpreterWait(
        thread=thread,
        waiting=found,
        certain_ratio=max(0.0, lock.waited.lower_ratio - sum(map(found.companions_ratio, found.phases))),
        late_ratio=_late_interpreter_ratio(lock, found.phases),
        lost_ms=min(lock.waited.median_ms, cpus * found.period_ms, found.period_ms),
        asked=lock.asked,
        samples=lock.samples,
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


def _late_interpreter_ratio(lock: InterpreterLock, phases: Sequence[Blocked]) -> float:
    """How often the interpreter came late, each phase by the mean time that the main thread waits in it."""
    waited, late = 0.0, 0.0
    for row in phases:
        asked, of_them = lock.by_phase.get(row.phase, (0, 0))
        if asked > 0:
            waited += row.blocked.total_ratio
            late += row.blocked.total_ratio * of_them / asked
    return late / waited if waited > 0 else 0.0
