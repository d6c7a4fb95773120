"""What rules share on a main thread that waits for a CPU because its own run takes them."""

import math

import msgspec

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Severity
from lightning_gpuprof.model.loading import Starving
from lightning_gpuprof.model.worker_time import worker_threads
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, Change, Cost, Metrics, MissingSignal, counted, cpus, measured, possible

_TOO_FEW_CPUS = "The run has too few CPUs"
ONE_THREAD_PER_WORKER = Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",))


def waiting_for_cpu(metrics: Metrics, least_ratio: float) -> Cost | None:
    """How long the main thread waits for a CPU that its own run takes.

    Args:
        metrics: The run.
        least_ratio: Share of the step that it has to wait for certain.

    Returns:
        None if it is less, or not worthwhile, or other programs take the CPUs.

    Raises:
        MissingSignal: It was not measured, or not in enough steps; or no window shows how much of it a device hides.
    """
    step_ms, share = metrics.step_ms, measured(metrics.contention.delay)
    if not metrics.cost_of(share).is_worth(least_ratio) or not metrics.contention.by_this_run:
        return None
    # not the median time: it was read in a few steps, which may have been longer ones
    cost = metrics.cost(
        min(1.0, share.median_ratio) * step_ms,
        share.lower_ratio * step_ms,
        most_ratio=measured(metrics.host_limit.ratio),
        samples=metrics.cpu.run_delay_samples,
    )
    return cost if cost.is_worth(least_ratio) else None


class Fitting(msgspec.Struct, frozen=True, kw_only=True):
    """How a run fits into its CPUs."""

    advice: str | Advice
    severity: Severity | None = None
    """Information where no setting helps; None: by the cost."""
    title: str = ""
    """Empty: the rule's."""
    leaves: str = ""
    """What still shares the CPUs after the change."""
    explains: Claim = claims.NO_CPU


def fitting(metrics: Metrics) -> Fitting:
    """How a run that takes its main thread's CPU fits into its CPUs.

    A higher quota where that runs out; one thread in each worker, where these compute on more than there are CPUs; else
    fewer torch threads, then fewer workers, as many as keep up with the step.
    """
    found, usable_cpus = metrics.contention, metrics.cpu.usable_cpus
    if found.by_quota:
        raised = f"Raise the container's CPU quota above {cpus(usable_cpus)}"
        return Fitting(advice=f"{raised} or use fewer workers and threads.")
    room, workers = usable_cpus if possible(usable_cpus) else 1.0, found.workers
    on_each = _threads_per_worker(metrics)
    if on_each * workers > max(room, workers):
        advice = f"Let each worker compute on one thread instead of {on_each:.0f}: {ONE_THREAD_PER_WORKER.added[0]}."
        return Fitting(advice=(advice, ONE_THREAD_PER_WORKER))
    computing = found.computing_workers > 0
    taken = workers if computing else metrics.cpu.worker_cpus or 0.0
    left = max(1, math.floor(room - max(0.0, min(room, taken))))
    fewer = max(1, math.floor(room) - left)  # not 0: then nothing is made while a device computes
    enough = None if metrics.input is None else metrics.input.enough_workers  # with one to spare
    needed = 0 if enough is None else enough - 1
    kept = min(workers, max(fewer, needed)) if computing else workers
    change = fitting_change(workers=workers, kept=kept, threads=found.threads, left=left)
    if change.added:
        ranks = metrics.positive("trainer.devices") or 1
        each = " in each rank (or OMP_NUM_THREADS)" if ranks > 1 else ""
        settings = [f"{line}{each}" for line in change.add]
        settings += [f"num_workers={kept} instead of {workers}"] if kept < workers else []
        crowded = computing and kept > fewer
        aim = "Take less of the" if crowded else "Fit the run into"
        return Fitting(
            advice=(f"{aim} {cpus(usable_cpus)}: {' and '.join(settings)}.", change),
            leaves=f"{counted(kept, 'worker')} on {cpus(usable_cpus)}, as many as the step needs" if crowded else "",
        )
    more = cpus(math.floor(room) + 1)
    if not computing or needed < workers:
        return Fitting(advice=f"Use at least {more}, or find the other threads that compute: `top -H`.")
    advice = f"No setting helps: use at least {more}, or make the batch cheaper."
    return Fitting(advice=advice, severity="info", title=_TOO_FEW_CPUS, explains=_of_late_batches(metrics))


def _of_late_batches(metrics: Metrics) -> Claim:
    """Where only a cheaper batch leaves the thread a CPU, and batches that come too late are a finding: their time."""
    found = metrics.starving
    if not isinstance(found, Starving):
        return claims.NO_CPU
    return claims.OUTLIERS if found.bursts else claims.WAIT_FOR_BATCHES


def _threads_per_worker(metrics: Metrics) -> float:
    """Threads on which a typical worker computes; 1 where that is not known."""
    try:
        found = worker_threads(metrics.host.worker_rows)
    except MissingSignal:
        return 1.0
    return found.computing if found.share_the_work() else 1.0


def fitting_change(*, workers: int | None, kept: int, threads: int | None, left: int | None) -> Change:
    """Workers and torch threads that fit into the CPUs, without what is set already.

    Args:
        workers: Now; None: not known.
        kept: Of them.
        threads: Of torch now; None: not known.
        left: CPUs for them; None: leave them as they are.

    Returns:
        Of the DataLoader, with the line that sets the threads; without both if nothing has to change.
    """
    fewer_threads = left is not None and (threads is None or threads > left)
    fewer_workers = kept != (workers or 0)
    return Change(
        call="DataLoader" if fewer_workers else "",
        arguments={"num_workers": kept} if fewer_workers else {},
        before={"num_workers": workers} if fewer_workers and workers is not None else {},
        remove=(f"torch.set_num_threads({threads})",) if fewer_threads and threads is not None else (),
        add=(f"torch.set_num_threads({left})",) if fewer_threads else (),
    )
