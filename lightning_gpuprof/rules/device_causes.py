"""A device's slices of a step: its own work, what it communicates, and what it waits for."""

from collections.abc import Iterable

from lightning_gpuprof.model.clock_events import WORDS as THROTTLE_WORDS
from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.finding import MIN_COST_MS
from lightning_gpuprof.model.trace.idle import IdleCause
from lightning_gpuprof.rules.base import Metrics, percent
from lightning_gpuprof.rules.cause import Cause, late_ranks
from lightning_gpuprof.rules.device_limit import device_limit
from lightning_gpuprof.rules.host_causes import COMPUTE_RATIO, HOST_RATIO, SYNC_RATIO, around_the_model

COMMUNICATION_RATIO = 0.20
"""Communication that no computation covers, of the step. The method's decision tree."""

WAITING_RATIO = 0.20
"""Share of the collectives' time above the fastest of their size from which it is named. Heuristic."""

CLOCK_RATIO = 0.85
"""Clock of the busy device over its maximum, below which the hardware limits. The method's decision tree."""

ALLOCATOR_RATIO = 0.30
"""Share of the device's idle time from which allocating memory is named as its reason. Heuristic."""

_NOT_LATE: tuple[IdleCause, ...] = ("host_sync", "communication", "queued", "back_to_back", "unexplained")
"""Causes of idle time that are no late launch."""


def device_causes(metrics: Metrics, step: DeviceStep) -> Iterable[Cause]:
    """In the order of the decision tree, the device's own work last.

    Args:
        metrics: The run.
        step: What a device's time is made of.

    Yields:
        Also those below their thresholds; each ratio is of the step, not yet of the run.
    """
    yield from _limited_hardware(step)
    yield from _communication(metrics, step)
    yield from around_the_model(metrics, step.idle_by_phase, uploads=step.upload_ratio)
    yield from _starved_device(step, metrics.step_ms)
    yield _device_compute(metrics, step)


def _limited_hardware(step: DeviceStep) -> Iterable[Cause]:
    """A GPU whose clock something holds down while it sets the pace."""
    loss = step.clock_loss
    if loss is None:
        return
    yield Cause(
        kind="hardware-limited",
        ratio=loss.ratio * step.computing_ratio,
        passes=1.0 - loss.ratio < CLOCK_RATIO and step.computing_ratio >= COMPUTE_RATIO,
        words=f"{loss.device} runs at {loss.clock_mhz:,.0f} MHz instead of {loss.most_mhz:,.0f} in "
        f"{percent(loss.held_ratio)} of the busy samples; the driver's reason: {THROTTLE_WORDS[loss.reason]}",
    )


def _communication(metrics: Metrics, step: DeviceStep) -> Iterable[Cause]:
    """Kernels of collectives that nothing covers, and a device that is idle while the host prepares them."""
    calls = step.starved_ratio * step.causes.get("communication", 0.0)
    ratio = step.exposed_communication_ratio + calls
    if ratio <= 0:
        return
    waiting_ratio = step.above_fastest_ratio or 0.0
    slow = ""
    if waiting_ratio >= WAITING_RATIO:
        slow = f"; {percent(waiting_ratio)} of the time in collectives is waiting for other ranks, not transfer"
    if late := late_ranks(metrics, ratio):
        slow += f"; the GPU waits for {late}"
    yield Cause(
        kind="comm-bound",
        ratio=ratio,
        passes=ratio >= COMMUNICATION_RATIO,
        words=f"communication that does not overlap with computation takes {percent(step.exposed_communication_ratio)} "
        "of the step" + (f", and preparing it on the host takes {percent(calls)}" if calls >= 0.01 else "") + slow,
    )


def _starved_device(step: DeviceStep, period_ms: float) -> Iterable[Cause]:
    """A device that is idle inside the model's phases: after the host waited for it, or for lack of launches."""
    starved = step.starved_ratio
    synced = starved * step.causes.get("host_sync", 0.0)
    late = starved * max(0.0, 1.0 - sum(step.causes.get(cause, 0.0) for cause in _NOT_LATE))
    yield Cause(
        kind="sync-bound",
        ratio=synced,
        passes=synced >= SYNC_RATIO and synced * period_ms >= MIN_COST_MS,
        words=f"the GPU idles for {percent(synced)} of the step because the host waited for it before launching "
        f"more{_sync_site(step)}{_in_all(step, synced)}",
    )
    allocator = step.causes.get("allocator", 0.0)
    memory = f"; {percent(allocator)} of that is allocating and freeing memory" if allocator >= ALLOCATOR_RATIO else ""
    yield Cause(
        kind="host-bound",
        ratio=late,
        passes=late >= HOST_RATIO and late * period_ms >= MIN_COST_MS,
        words=f"the GPU idles for {percent(late)} of the step because the host launches its kernels too late{memory}"
        f"{_in_all(step, late)} ({step.source})",
    )


def _in_all(step: DeviceStep, said: float) -> str:
    """All idle time of the step, where that is more than was said."""
    return "" if percent(said) == percent(step.idle_ratio) else f"; in all it idles for {percent(step.idle_ratio)}"


def _sync_site(step: DeviceStep) -> str:
    found = None if step.window is None else step.window.results.sync_points
    if found is None or not found.sites:
        return ""
    site = found.sites[0]
    by = f", called by {in_words(site.line.frame)}" if site.line is not None else ""
    return f", mostly in {site.operation}{by}"


def _device_compute(metrics: Metrics, step: DeviceStep) -> Cause:
    """The device's own work, with the gaps that are its own, by what limits it."""
    turns = step.starved_ratio * (step.causes.get("queued", 0.0) + step.causes.get("back_to_back", 0.0))
    kind, why = device_limit(metrics, step)
    computing = step.computing_ratio + turns
    return Cause(
        kind=kind,
        ratio=computing,
        passes=computing >= COMPUTE_RATIO,
        words=f"the GPU is busy for {percent(1.0 - step.idle_ratio)} of the step ({step.source}); it computes for "
        f"{percent(step.computing_ratio)}" + (f"; {why}" if why else ""),
    )
