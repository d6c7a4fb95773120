"""What rules share on a main thread that waits for a CPU because its own run takes them."""

from __future__ import annotations

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import worthwhile
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.numbers import millis, percent
from lightning_gpuprof.model.signals import steady_period_ms
from lightning_gpuprof.rules.steps.host_time import HostTime


def waiting_for_cpu(metrics: Metrics, least_ratio: float) -> HostTime | None:
    """How long the main thread waits for a CPU that its own run takes.

    Args:
        metrics: The run.
        least_ratio: Share of the step that it has to wait for certain.

    Returns:
        None if it is less, or not worthwhile, or other programs take the CPUs.

    Raises:
        MissingSignal: It was not measured, or not in enough steps; or no window shows how much of it a device hides.
    """
    period_ms, share = steady_period_ms(metrics), measured(metrics.contention.delay)
    if share.lower_ratio < least_ratio or not worthwhile(share.median_ms, period_ms):
        return None
    if not metrics.contention.by_this_run:
        return None
    # not the median time: it was read in a few steps, which may have been longer ones
    waited_ms, most_ratio = min(1.0, share.median_ratio) * period_ms, measured(metrics.host_limit.ratio)
    time = HostTime(period_ms=period_ms, ratio=share.lower_ratio, taken_ms=waited_ms, most_ratio=most_ratio)
    return time if time.is_worth(least_ratio) else None


def waiting_words(time: HostTime, what: str) -> str:
    """As "The main thread waits 8.00 ms of each 50.0 ms step (16 %) for a free CPU.".

    Args:
        time: What it waits.
        what: For a free CPU, or one.
    """
    waits = f"{millis(time.taken_ms)} of each {millis(time.period_ms)} step ({percent(time.taken_ms / time.period_ms)})"
    return f"The main thread waits {waits} for a free {what}."


def fitting_change(*, workers: int | None, kept: int, threads: int | None, left: int | None) -> Change:
    """Workers and torch threads that fit into the CPUs, without what is set already.

    Args:
        workers: Now; None: not known.
        kept: Of them.
        threads: Of torch now; None: not known.
        left: CPUs for them; None: leave them as they are.
    """
    fewer_threads = left is not None and (threads is None or threads > left)
    return Change(
        call="DataLoader",
        arguments={"num_workers": kept} if kept != (workers or 0) else {},
        before={} if workers is None else {"num_workers": workers},
        remove=(f"torch.set_num_threads({threads})",) if fewer_threads and threads is not None else (),
        add=(f"torch.set_num_threads({left})",) if fewer_threads else (),
    )
