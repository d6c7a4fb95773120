"""Builds Metrics with an input pipeline and a host that agree with how batches are made."""

from collections.abc import Mapping
from typing import Any

from metrics_builder import build, replace
from msgspec.structs import replace as stored

from lightning_gpuprof.model.host import HostUse, Level, MachineUse, ProcessUse, Reading, WorkerUse
from lightning_gpuprof.model.input_pipeline import (
    InputLoader,
    InputPart,
    InputPipeline,
    InputVerdictKind,
    InputWorker,
    Padding,
)
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import Share


def level(value: float | None) -> Level | None:
    return None if value is None else Level(mean=value, max=value)


def part(
    name: str, share: float, *, mean_ms: float | None = 1.0, kind: Any = "transform", loader: int = 0
) -> InputPart:
    calls = None if mean_ms is None else 1000
    return InputPart(loader=loader, kind=kind, name=name, calls=calls, mean_ms=mean_ms, max_ms=mean_ms, share=share)


def worker_row(
    number: int = 0,
    *,
    cpu: float | None = 0.95,
    delay: float | None = 0.02,
    disk: float | None = 0.0,
    threads: float = 3.0,
    samples: int = 30,
    read_bytes_per_s: float | None = None,
    own_bytes: float | None = None,
    **values: Any,
) -> WorkerUse:
    waiting = None if cpu is None or delay is None else max(0.0, 1.0 - cpu - delay)
    use = ProcessUse(
        cpu_cpus=level(cpu),
        run_delay_ratio=level(delay),
        disk_sleep_ratio=disk,
        waiting_ratio=waiting,
        threads_count=threads,
        uss_bytes=level(own_bytes),
        **({} if read_bytes_per_s is None else {"read_call_bytes_per_s": level(read_bytes_per_s)}),
        **values,
    )
    return WorkerUse(number=number, samples=samples, use=use)


def starved(
    *,
    items_ms: float = 39.0,
    collate_ms: float = 1.0,
    workers: int = 2,
    enough: int | None = None,
    compute_ms: Mapping[Phase, float] | None = None,
    parts: tuple[InputPart, ...] = (),
    verdict: InputVerdictKind | None = None,
    burst: float | tuple[float, float | None] | None = None,
    ordinary_wait_ms: float = 0.1,
    rows: tuple[WorkerUse, ...] | None = None,
    each_worker: Mapping[str, Any] | None = None,
    transforms: Mapping[str, float] | None = None,
    later_epochs: Mapping[str, Any] | None = None,
    idle_ratio: float = 0.01,
    waited: float | None = None,
    measured: bool = True,
    samples_ms: tuple[float, float | None] | None = None,
    worker_ms: float | None = None,
    order_ms: float | None = None,
    memory_bytes: float | None = None,
    host: HostUse | None = None,
    others_cpus: float | None = None,
    device_idle: float | None = None,
    **changes: Any,
) -> Metrics:
    """Steps of 10 ms that wait for batches of 40 ms from two workers, and what the keywords change in it.

    Args:
        items_ms: Time of the items of a batch in one process.
        collate_ms: Time of collation.
        workers: Of the loader.
        enough: Of them, with one to spare; None: not known.
        compute_ms: Phases of the step without its wait; with ``data_wait`` the wait as well.
        parts: Transforms and regions.
        verdict: Of the input pipeline; default: ``processing`` where there is a wait.
        burst: Share of the time of all steps that is wait, all of it in few steps but for ``ordinary_wait_ms``; or
            that and its lower bound, by default nine tenths of it.
        ordinary_wait_ms: What the median step waits where there is a burst.
        rows: The host's rows of workers; default: none.
        each_worker: Keywords of :func:`worker_row` for each worker, in place of ``rows``.
        later_epochs: What was read after the first epoch, on a machine that can cache 1 GB.
        transforms: Names and shares of the items' time, in place of ``parts``.
        idle_ratio: Of the workers, waiting for work.
        waited: Share of steps that found no batch ready; default: all that wait.
        measured: Whether the pipeline was measured from inside.
        samples_ms: Mean and slowest sample of a worker.
        worker_ms: Its mean batch.
        order_ms: Time of the sampler per batch.
        memory_bytes: Of the machine.
        host: The whole host; default: what ``rows`` and ``others_cpus`` say.
        others_cpus: CPUs that others used.
        device_idle: What trace windows say about the device.
        changes: As :func:`metrics_builder.build` has them.
    """
    step: dict[Phase, float] = {"forward": 4.0, "backward": 4.0, "optimizer": 1.0, "zero_grad": 0.1}
    step |= {"h2d": 0.1, "callbacks": 0.1, "logging": 0.1, "loop": 0.6, **(compute_ms or {})}
    if each_worker is not None:
        rows = tuple(worker_row(number, **each_worker) for number in range(workers))
    if transforms is not None:
        parts = tuple(part(name, share) for name, share in transforms.items())
    make_ms = items_ms + collate_ms
    given_ms = ordinary_wait_ms if burst is not None else step.pop("data_wait", None)
    late_ms = max(0.1, make_ms / max(1, workers) - (sum(step.values()) if workers else 0.0))
    ordered_ms = max(late_ms, order_ms or 0.0) if workers else late_ms + (order_ms or 0.0)
    wait_ms = ordered_ms if given_ms is None else given_ms
    if rows is not None or others_cpus is not None:
        host = HostUse(
            samples=30,
            worker_rows=rows or (),
            machine=MachineUse(
                cpu_others_cpus=level(others_cpus),
                memory_available_bytes=level(1e9),
                memory_total_bytes=memory_bytes,
            ),
            later_epochs=None if later_epochs is None else Reading(**later_epochs),
        )
    default_waited = 0.2 if burst is not None else (0.98 if wait_ms > 0.2 else 0.02)
    metrics = build(
        times_ms={"data_wait": wait_ms, **step},
        num_workers=workers,
        fetch_waited_ratio=default_waited if waited is None else waited,
        host=host,
        idle_ratio=device_idle,
        **changes,
    )
    if burst is not None:
        total, lower = burst if isinstance(burst, tuple) else (burst, 0.9 * burst)
        wait = replace(metrics.shares["data_wait"], total_ratio=total, total_lower_ratio=lower)
        metrics = shares_of(metrics, "data_wait", wait)
        period = metrics.steps.period_ms
        mean_ms = (period.median - wait_ms) / (1 - total)
        metrics = replace(metrics, steps=stored(metrics.steps, period_ms=stored(period, mean=mean_ms)))
    if not measured:
        return metrics
    made = InputLoader(
        loader=0,
        workers=workers,
        make_ms=make_ms,
        items_ms=items_ms,
        collate_ms=collate_ms,
        deliver_ms=make_ms / max(1, workers),
        idle_ratio=idle_ratio if workers else None,
        order_ms=order_ms,
        order_of="" if order_ms is None else "ByLength (data.py:31)",
    )
    found = InputPipeline(
        verdict=verdict or ("processing" if wait_ms > 0.5 or burst is not None else "compute"),
        summary="3 batches were measured while they were made, 10 are needed",
        step_ms=sum(step.values()),
        wait_ms=wait_ms,
        waited_ratio=default_waited if waited is None else waited,
        enough_workers=enough,
        loaders=(made,),
        workers=() if samples_ms is None else (_worker(*samples_ms, worker_ms),),
        parts=parts,
        slowest=0,
    )
    return replace(metrics, input=found)


def looked_at(padding: Padding | None) -> InputPipeline:
    """A loader that keeps pace, and what was seen of the padding in its batches."""
    made = InputLoader(
        loader=0, workers=2, make_ms=1.0, items_ms=0.9, collate_ms=0.1, deliver_ms=0.5, idle_ratio=0.9, padding=padding
    )
    return InputPipeline(
        verdict="compute",
        summary="",
        step_ms=49.0,
        wait_ms=0.1,
        waited_ratio=0.0,
        enough_workers=2,
        loaders=(made,),
        slowest=0,
    )


def _worker(mean_ms: float, max_ms: float | None, make_ms: float | None) -> InputWorker:
    return InputWorker(
        loader=0,
        process="worker0",
        batches=200,
        measured=200,
        items=1600,
        item_mean_ms=mean_ms,
        item_p95_ms=2.0,
        item_max_ms=max_ms,
        items_ms=8.0,
        collate_mean_ms=0.1,
        collate_max_ms=0.1,
        idle_ms=80.0,
        idle_ratio=0.5,
        make_ms=make_ms,
    )


def shares_of(metrics: Metrics, phase: Phase, share: Share) -> Metrics:
    """The same run with another share of one phase."""
    return replace(metrics, shares={**metrics.shares, phase: share})
