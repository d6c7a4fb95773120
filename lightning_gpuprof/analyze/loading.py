"""How the training loop is fed: from steps, CPU times and what was measured in the workers."""

import math
from statistics import median

from msgspec.structs import replace

from lightning_gpuprof.model.cpu_demand import exceeds_its_cpus
from lightning_gpuprof.model.host import ProcessUse
from lightning_gpuprof.model.input_pipeline import InputLoader
from lightning_gpuprof.model.loading import (
    EMPTY_QUEUE_RATIO,
    MIN_WAIT_RATIO,
    RECEIVE_GUARD_MS,
    SINGLE_GUARD_MS,
    SPIN_MS,
    STREAM_SAMPLER,
    CpuTime,
    Fetch,
    Loading,
    Pace,
    Starving,
)
from lightning_gpuprof.model.metrics import CpuFacts, Metrics
from lightning_gpuprof.model.missing import MissingSignal, measured, or_unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.model.share import Share, usable
from lightning_gpuprof.model.signals import device_step, require_possible, step_idle_ratio
from lightning_gpuprof.model.worker_time import WorkerTime, sampled_rows

STEADY_WAIT_MS = 0.5
"""Median wait below which the steps do not all wait. Heuristic: as the verdict of the input pipeline has it."""

_EACH_STEP_RATIO = 0.9
"""Batches of a loader per step, from which each step is said to have one of it. Heuristic."""

UNEVEN_WAIT = 1.2
"""Mean over median wait from which few steps hold much of it. Heuristic: steps that wait alike have about 1, and 1.3 to
1.5 where two workers and the training compute on two CPUs."""

OVERSTATED_WAIT = 1.2
"""Median over mean wait from which the median stands for too many steps. Heuristic: about 1 where steps wait alike, 1.5
to 1.9 where two workers hand over at once and every other step waits for both."""


def fetch(metrics: Metrics) -> Fetch:
    """What the wait for batches costs; the run's ``device_step`` and ``interpreter_wait`` are read."""
    order, step = _slowest_order(metrics), device_step(metrics)
    idle_ratio, period_ms = _idle_ratio(metrics), metrics.period_ms
    elsewhere_ms = (0.0 if order is None else order.order_ms or 0.0) + _in_other_loaders_ms(metrics)
    less = elsewhere_ms / period_ms if period_ms else 0.0
    return Fetch(
        order=order,
        making=_making(metrics, elsewhere_ms),
        idle_ratio=idle_ratio,
        making_idle_ratio=None if idle_ratio is None else max(0.0, idle_ratio - less),
        is_seen=bool(metrics.is_cpu_only) or (step is not None and step.sees_fetch),
        workers_set_the_pace=_workers_set_the_pace(metrics),
    )


@or_unmeasured
def loading(metrics: Metrics) -> Loading:
    """How the training loop is fed; the run's ``fetch`` is read. It needs steady steps and torch's own DataLoader."""
    found = _loading(metrics)
    crowded = bool(found.num_workers and found.cpu_bound) and exceeds_its_cpus(metrics.cpu, metrics.host)
    return replace(
        found,
        pace=_pace(metrics, found),
        bursts=_bursty_loading(metrics, found),
        delayed_ms=_delayed_ms(metrics) if crowded else 0.0,
    )


@or_unmeasured
def starving(metrics: Metrics) -> Starving | None:
    """Whether steps wait because batches are made too slowly, whatever the reason; the run's ``loading`` is read.

    Returns:
        None if they do not wait, or not for certain longer than a fetch may take, or for another reason (batches are
        made in time but come late), or if the device has work meanwhile.

    Raises:
        MissingSignal: The steps wait, but the making of batches was not measured; or as :func:`loading`.
    """
    state, found = measured(metrics.loading), metrics.input
    bursts = state.bursts
    if bursts is None and state.certain_ratio < MIN_WAIT_RATIO:
        return None
    if found is None:
        raise MissingSignal("batch loading was not measured from inside")
    if found.verdict == "not-enough-data":
        raise MissingSignal(found.summary)
    if found.verdict != "processing":
        return None
    if bursts is None and state.num_workers:  # without workers nothing but their making can be the reason
        if metrics.fetch_waited_ratio is None:
            raise MissingSignal("how many steps had to wait for a batch was not measured")
        if metrics.fetch_waited_ratio < EMPTY_QUEUE_RATIO:
            return None
    state = bursts or state
    if state.made is None:
        raise MissingSignal("the slowest loader is not the configured one, or it changed its workers")
    return None if state.is_free else Starving(state=state, made=state.made, bursts=bursts is not None)


def _loading(metrics: Metrics) -> Loading:
    period_ms = metrics.step_ms
    wait = measured(metrics.fetch.making)
    facts = metrics.loader
    if facts is None or facts.num_workers is None:
        kind = f" ({facts.kind})" if facts is not None and facts.kind else ""
        raise MissingSignal(f"the training loader{kind} is not a torch DataLoader, its workers are not known")
    workers = facts.num_workers
    require_possible("the number of workers", workers)
    cpu = metrics.cpu
    threads = metrics.condition("torch.num_threads")
    made = _measured_loader(metrics, workers)
    require_possible("the number of usable CPUs", cpu.usable_cpus)
    require_possible("the use of the CPUs", cpu.process_cpus or 0.0, cpu.worker_cpus or 0.0)
    most_ms = wait.median_ms if workers == 0 else workers * period_ms
    return Loading(
        period_ms=period_ms,
        wait=wait,
        num_workers=workers,
        batch_ms=most_ms if made is None or made.make_ms is None else made.make_ms,
        cpu_ms=_loading_cpu_ms(metrics, made, workers=workers, wait_ms=wait.median_ms, period_ms=period_ms),
        used_cpus=_used_cpus(cpu, workers=workers),
        usable_cpus=cpu.usable_cpus,
        on_gpu=metrics.condition("device.type") == "cuda",
        dataset=facts.dataset,
        slowest_batch_ms=_slowest_batch_ms(metrics, made),
        queue_pace_ms=_queue_pace_ms(metrics, made),
        made=made,
        compute_threads=threads if metrics.run.get("device.type") == "cpu" and isinstance(threads, int) else None,
        queued_ms=_cpu_wait_ms(metrics, workers=workers, period_ms=period_ms),
        others_cpus=metrics.host.others_cpus,
        idle_ratio=metrics.fetch.making_idle_ratio,
        is_stream=metrics.condition("loader.sampler") == STREAM_SAMPLER,
        has_model=metrics.run.get("loader.dataset_has_model") is True,
        worker_time=worker_time(metrics, made),
        waited_ratio=metrics.fetch_waited_ratio,
        fetch_cost_ms=_fetch_cost_ms(metrics, made, wait.median_ms, workers=workers),
        guard_ms=SINGLE_GUARD_MS if workers == 0 else RECEIVE_GUARD_MS,
        elsewhere_ms=metrics.share_of("data_wait").median_ms - wait.median_ms,
    )


def _slowest_batch_ms(metrics: Metrics, made: InputLoader | None) -> float | None:
    """The slowest sample, beside as many usual ones as a batch has."""
    if made is None or made.make_ms is None or metrics.input is None:
        return None
    samples_ms = [one.item_max_ms for one in metrics.input.workers if one.loader == made.loader and one.item_max_ms]
    return max(samples_ms) + made.make_ms if samples_ms else None


def _queue_pace_ms(metrics: Metrics, made: InputLoader | None) -> float:
    """Without the longest item and collation of each worker, which may be its first."""
    if made is None or not made.workers or metrics.input is None or metrics.condition("loader.in_order") is False:
        return 0.0
    own_ms = [
        one.make_ms - ((one.item_max_ms or 0.0) + (one.collate_max_ms or 0.0)) / max(1, one.batches)
        for one in metrics.input.workers
        if one.loader == made.loader and one.make_ms is not None and possible(one.make_ms)
    ]
    return max(0.0, max(own_ms, default=0.0)) / made.workers


def _fetch_cost_ms(metrics: Metrics, made: InputLoader | None, wait_ms: float, *, workers: int) -> float | None:
    if made is None or metrics.input is None:
        return None
    if not workers:
        return None if made.items_ms is None else max(0.0, wait_ms - made.items_ms)
    return 0.0 if metrics.input.verdict == "processing" or wait_ms > RECEIVE_GUARD_MS else wait_ms


def _slowest_order(metrics: Metrics) -> InputLoader | None:
    loaders = () if metrics.input is None else metrics.input.loaders
    known = [one for one in loaders if one.order_ms is not None and possible(one.order_ms)]
    return max(known, key=lambda one: one.order_ms or 0.0, default=None)


def _in_other_loaders_ms(metrics: Metrics) -> float:
    """What the main process takes in each step to load the batches of all loaders but the slowest, without workers.

    Of loaders that are used up one after the other, a step has a batch of one.
    """
    found, least = metrics.input, _EACH_STEP_RATIO * metrics.steps.count
    if found is None:
        return 0.0
    made = {one.loader: sum(w.batches for w in found.workers if w.loader == one.loader) for one in found.loaders}
    others = [one for one in found.loaders if one.loader != found.slowest and not one.workers]
    of_each_step = (one.make_ms for one in others if made[one.loader] >= least)
    return sum(ms for ms in of_each_step if ms is not None and possible(ms))


@or_unmeasured
def _making(metrics: Metrics, elsewhere_ms: float) -> Share:
    if metrics.loader is not None and metrics.loader.num_workers == 0 and metrics.interpreter_is_held:
        raise MissingSignal(
            "another Python thread of the program keeps the main thread waiting (interpreter-lock): how long it "
            "takes to load a batch is not known"
        )
    wait = metrics.share_of("data_wait")
    if not elsewhere_ms:
        return wait
    ratio, lower = elsewhere_ms / metrics.step_ms, wait.total_lower_ratio
    return replace(
        wait,
        median_ms=max(0.0, wait.median_ms - elsewhere_ms),
        median_ratio=max(0.0, wait.median_ratio - ratio),
        lower_ratio=max(0.0, wait.lower_ratio - ratio),
        total_ratio=max(0.0, wait.total_ratio - ratio),
        total_lower_ratio=None if lower is None else max(0.0, lower - ratio),
    )


def _workers_set_the_pace(metrics: Metrics) -> bool:
    """Not where the wait may be what it costs to take a batch from a worker."""
    loader, wait = metrics.loader, metrics.share("data_wait")
    if loader is None or not loader.num_workers or wait is None or metrics.fetch_waited_ratio is None:
        return False
    return metrics.fetch_waited_ratio >= EMPTY_QUEUE_RATIO and wait.median_ms > RECEIVE_GUARD_MS


def _idle_ratio(metrics: Metrics) -> float | None:
    """A device that is idle elsewhere in the step, for lack of launches, makes a fetch beside its work no dearer."""
    idle_ratio, step, wait = step_idle_ratio(metrics), device_step(metrics), metrics.share("data_wait")
    in_fetch = step.idle_in_phase.get("data_wait") if step is not None and step.sees_fetch else None
    if idle_ratio is None or in_fetch is None or wait is None:
        return idle_ratio
    return min(idle_ratio, wait.median_ratio * in_fetch)


def _measured_loader(metrics: Metrics, workers: int) -> InputLoader | None:
    """How the loader that sets the pace makes its batches, if that was measured and it is the configured one."""
    found = metrics.input
    if found is None or found.verdict == "not-enough-data":
        return None
    one = next((x for x in found.loaders if x.loader == found.slowest), None)
    if one is None or one.workers != workers or one.make_ms is None:
        return None
    return one if possible(one.make_ms) and one.make_ms > 0 else None


def _loading_cpu_ms(
    metrics: Metrics, made: InputLoader | None, *, workers: int, wait_ms: float, period_ms: float
) -> CpuTime | None:
    if made is not None and made.cpu_ms is not None and possible(made.cpu_ms):
        return CpuTime(least_ms=made.cpu_ms, most_ms=made.cpu_ms)
    if workers:
        if metrics.cpu.worker_cpus is None:
            return None
        worker_ms = metrics.cpu.worker_cpus * period_ms
        return CpuTime(least_ms=worker_ms, most_ms=worker_ms)
    if metrics.cpu.process_cpus is None:
        return None
    process_ms = metrics.cpu.process_cpus * period_ms
    compute_ms = max(0.0, period_ms - wait_ms)
    threads = metrics.positive("torch.num_threads") or max(1, math.ceil(metrics.cpu.usable_cpus))
    # At most: the step without its wait kept one CPU at work. At least: it kept one busy per thread, and each thread
    # but the first went on spinning for a while.
    computing_ms = threads * compute_ms + (threads - 1) * min(SPIN_MS, wait_ms)
    return CpuTime(
        least_ms=min(wait_ms, max(0.0, process_ms - computing_ms)),
        most_ms=min(wait_ms, max(0.0, process_ms - compute_ms, _fetch_cpu_ms(metrics))),
    )


def _cpu_wait_ms(metrics: Metrics, *, workers: int, period_ms: float) -> float:
    """How long per step what makes batches was ready to run without having a CPU.

    Of the main thread that is known for whole steps: its fetch has the part that it has of the CPU time.
    """
    if workers:
        rows = metrics.host.worker_rows
        delays = [row.use.run_delay_ratio.mean for row in rows if row.use.run_delay_ratio is not None]
        return sum(delay for delay in delays if possible(delay)) * period_ms
    delay = metrics.cpu.run_delay_ratio
    whole_ms = sum(row.cpu_ms or 0.0 for row in metrics.phases)
    if delay is None or not possible(delay) or not whole_ms > 0:
        return 0.0
    return delay * period_ms * _fetch_cpu_ms(metrics) / whole_ms


def _fetch_cpu_ms(metrics: Metrics) -> float:
    """CPU time of the main thread in the fetch; 0 also where it was not sampled."""
    found = next((row.cpu_ms for row in metrics.phases if row.phase == "data_wait"), None)
    return found if found is not None and possible(found) else 0.0


def _used_cpus(facts: CpuFacts, *, workers: int) -> float | None:
    if facts.process_cpus is None or (workers and facts.worker_cpus is None):
        return None
    return facts.process_cpus + (facts.worker_cpus or 0.0)


def _pace(metrics: Metrics, state: Loading) -> Pace | None:
    """A lower bound of the step time that fixes beside the loader leave.

    It is without what such fixes may end as well, the time in which workers are ready but have no CPU, and without the
    longest item and collation of each worker, which may be its first.
    """
    found, made = metrics.input, state.made
    if not state.num_workers or made is None or found is None:
        return None
    own = [worker for worker in found.workers if worker.loader == made.loader]
    longest_ms = sum((worker.item_max_ms or 0.0) + (worker.collate_max_ms or 0.0) for worker in own)
    longest_ms /= max(1, sum(worker.batches or worker.measured for worker in own))
    least_ms = max(0.0, state.batch_ms - state.queued_ms - longest_ms)
    return Pace(workers=state.num_workers, batch_ms=least_ms / state.num_workers, period_ms=state.period_ms)


def _bursty_loading(metrics: Metrics, state: Loading) -> Loading | None:
    """How the loop is fed on average, if workers that are behind deliver several batches at a time.

    Then few steps wait, but for long, and medians show nothing or little of it. It needs the verdict ``processing`` of
    the input pipeline, which says that the workers deliver less often than steps could use and have no time left.

    Returns:
        The loading of a mean step, its wait with the bootstrap's bound of the total; None where ordinary steps wait,
        or none.
    """
    found = metrics.input
    if found is None or found.verdict != "processing" or not state.num_workers or state.made is None:
        return None
    total, lower = state.wait.total_ratio, state.wait.total_lower_ratio
    period = metrics.steps.period_ms
    if lower is None or not possible(lower) or not 0 < total < 1 or period is None or not possible(period.mean):
        return None
    period_ms = period.mean
    steadily = state.wait.lower_ratio >= MIN_WAIT_RATIO and state.wait.median_ms > STEADY_WAIT_MS
    uneven = total * period_ms >= UNEVEN_WAIT * state.wait.median_ms
    overstated = state.wait.median_ms >= OVERSTATED_WAIT * total * period_ms
    often = metrics.fetch_waited_ratio is None or metrics.fetch_waited_ratio >= EMPTY_QUEUE_RATIO
    if steadily and often and not uneven and not overstated:
        return None
    wait = Share(median_ratio=total, lower_ratio=min(lower, total), median_ms=total * period_ms, total_ratio=total)
    guard_ms = RECEIVE_GUARD_MS * (1.0 if metrics.fetch_waited_ratio is None else metrics.fetch_waited_ratio)
    mean = replace(state, period_ms=period_ms, wait=wait, guard_ms=guard_ms)
    if not usable(wait) or mean.certain_ratio < MIN_WAIT_RATIO:
        return None
    longer = period_ms / state.period_ms
    # CPU time that was measured where batches are made is that of a batch already.
    cpu_ms, per_batch = state.cpu_ms, state.made.cpu_ms is not None
    return replace(
        mean,
        cpu_ms=cpu_ms
        if cpu_ms is None or per_batch
        else replace(cpu_ms, least_ms=cpu_ms.least_ms * longer, most_ms=cpu_ms.most_ms * longer),
        queued_ms=state.queued_ms * longer,
        elsewhere_ms=state.elsewhere_ms * longer,
        idle_ratio=step_idle_ratio(metrics),
        delayed_ms=_delayed_ms(metrics) if state.cpu_bound else 0.0,
    )


def _delayed_ms(metrics: Metrics) -> float:
    """What the model waits for a CPU per step: its phases without their CPU time, at most what the kernel counted."""
    delay = metrics.cpu.run_delay_ratio
    if delay is None or not possible(delay):
        return 0.0
    waits_ms = (
        max(0.0, row.median_ms - row.cpu_ms)
        for row in metrics.phases
        if row.phase in COMPUTE_PHASES and row.median_ms and row.cpu_ms and possible(row.cpu_ms)
    )
    return min(delay * metrics.step_ms, sum(waits_ms))


@or_unmeasured
def worker_time(metrics: Metrics, made: InputLoader | None) -> WorkerTime:
    """Medians over the workers: one slow worker is not all of them.

    Args:
        metrics: The run.
        made: How the loader that sets the pace makes its batches; None: not measured.

    Returns:
        Shares of 0 to 1 of the time without the wait for work; computing, queued and waiting sum to 1.

    Raises:
        MissingSignal: The workers' time was not sampled, not often enough, or not its parts.
    """
    if made is None:
        raise MissingSignal("batch loading was not measured from inside")
    rows = sampled_rows(metrics.host.worker_rows)
    idle = min(0.99, made.idle_ratio or 0.0)
    making = 1.0 - idle
    cpu = median(_cpu(row.use) for row in rows)
    queued = median(_queued(row.use) for row in rows)
    if not possible(cpu) or not possible(queued):
        raise MissingSignal("the CPU time of the DataLoader workers is not a valid number")
    cpu_ratio = min(1.0, cpu / making)
    queued_ratio = min(1.0 - cpu_ratio, queued / making)
    disk = [row.use.disk_sleep_ratio for row in rows if row.use.disk_sleep_ratio is not None]
    read = [row.use.read_call_bytes_per_s.mean for row in rows if row.use.read_call_bytes_per_s is not None]
    return WorkerTime(
        cpu_ratio=cpu_ratio,
        queued_ratio=queued_ratio,
        waiting_ratio=1.0 - cpu_ratio - queued_ratio,
        disk_ratio=min(1.0, median(disk) / making) if disk else None,
        read_bytes_per_s=median(read) if read else None,
        workers=len(rows),
        samples=min(row.samples for row in rows),
    )


def _cpu(use: ProcessUse) -> float:
    if use.cpu_cpus is None:
        raise MissingSignal("the CPU time of the DataLoader workers was not measured")
    return use.cpu_cpus.mean


def _queued(use: ProcessUse) -> float:
    if use.run_delay_ratio is None:
        raise MissingSignal("how long the DataLoader workers waited for a CPU was not measured")
    return use.run_delay_ratio.mean
