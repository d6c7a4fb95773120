"""What the busiest device does in an untraced step, from trace windows, NVML samples and step times.

How long it is idle: the time of an untraced step without the work of a traced one. Why: the causes of the window.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.analyze.device_copies import device_copies
from lightning_gpuprof.analyze.host_waits import host_waits
from lightning_gpuprof.model.device import LOWERED_RATIO, MIN_SAMPLES
from lightning_gpuprof.model.device_step import HOST_SLICES, ClockLoss, DeviceStep, ExplainedStep
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import ONE_SIDED_5_PERCENT, lower_share, possible
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.model.trace.communication import Communication
from lightning_gpuprof.model.trace.idle import DeviceIdle, IdleCause
from lightning_gpuprof.model.window import DeviceActivity, WindowFacts

REASON_RATIO = 0.20
"""Lower bound of a reason's share of the busy samples from which it holds the clock down. Heuristic."""

_NO_CAUSE = frozenset({"gpu_idle", "display_clock", "sync_boost", "reliability"})
"""Reasons that say nothing about what holds this GPU down, or that every GPU at its top clock gives."""

MIN_STEPS = 10
"""Steps whose time NVML's samples of the whole training can stand for. Heuristic, after TraceML."""

MAX_OUTSIDE_RATIO = 0.10
"""Time outside the steps up to which NVML's samples of the whole training stand for the steps. Heuristic."""

MAX_UNSTEADY_RATIO = 0.20
"""Share of the steps that may be no steady ones, likewise. Heuristic."""

MIN_COLLECTIVES = 3
"""Collectives of one size from which their fastest stands for what the links can do. Heuristic."""

MIN_SEEN_RATIO = 0.5
"""Of the fetches of a window: what must lie between work of the device to show what a fetch costs. Heuristic."""

_OF_PHASES: Mapping[Phase, IdleCause] = {"data_wait": "data", "callbacks": "callbacks", "checkpoint": "checkpoint"}
"""Phases that the causes of idle time name by themselves."""

_NOT_OF_MODEL = frozenset({"data", "checkpoint", "callbacks", "validation", "profiler"})

_MEDIAN_OVER_MEAN_ERROR = math.sqrt(math.pi / 2)


def device_step(metrics: Metrics) -> DeviceStep | Unmeasured:
    """What the busiest device does in an untraced step.

    Windows on slow steps do not count. Of several windows with the work of whole steps, if possible such whose idle
    causes are known, the one with the median busy time is taken, of two the busier. Where every window holds much work
    that was launched before it, the work of a step is not known, but the busy share of the window is, and so that of as
    much untraced time. Without a usable window NVML's utilization gives the idle share alone, if its samples are many
    and the run has little beside its steps.
    """
    if metrics.run.get("device.type") == "cpu":
        return Unmeasured(why="the model runs on the CPU")
    period_ms = metrics.period_ms
    if period_ms is None or not possible(period_ms) or period_ms == 0:
        return Unmeasured(why="the step time was not measured")
    pace, by_utilization = pace_ms(metrics, period_ms), _idle_by_utilization(metrics)
    seen = [window for window in metrics.windows if _busiest(window) is not None]
    whole = [window for window in seen if not window.has_earlier_work]
    explained = [window for window in whole if not _problem(window)]
    why = "" if explained else _unexplained_reason(metrics.windows)
    clocks = clock_loss(metrics.devices)
    if seen:
        by_busy = sorted(explained or whole or seen, key=lambda window: _busy_ms(window, pace))
        step = _seen(
            by_busy[len(by_busy) // 2],
            period_ms=period_ms,
            pace=pace,
            utilization_idle_ratio=by_utilization,
            clock_loss=clocks,
            why_unexplained=why,
        )
        step = replace(step, idle_by_phase=_idle_by_phase(metrics, step))
        return _explained(step, metrics, most_busy_ms=_busy_ms(by_busy[-1], pace)) if explained else step
    if by_utilization is None:
        return Unmeasured(why=why)
    step = DeviceStep(
        source="NVML's utilization",
        period_ms=period_ms,
        pace_ms=pace,
        busy_ms=(1.0 - by_utilization) * pace,
        idle_ms=by_utilization * pace,
        utilization_idle_ratio=by_utilization,
        clock_loss=clocks,
        why_unexplained=why,
    )
    return replace(step, idle_by_phase=_idle_by_phase(metrics, step))


def _idle_by_phase(metrics: Metrics, step: DeviceStep) -> dict[Phase, float]:
    """Of each phase around the model the share of the step in which the device is idle: what it costs.

    A wait while the device works is free. Where the window does not show it, the device is taken to be idle, but never
    longer in all than it is.
    """
    left = step.idle_ratio
    most: dict[Phase, float] = {}
    for phase in HOST_SLICES:
        share = metrics.share(phase)
        wanted = 0.0 if share is None else share.median_ratio * step.idle_in_phase.get(phase, 1.0)
        most[phase] = min(wanted, left)
        left -= most[phase]
    return most


def pace_ms(metrics: Metrics, period_ms: float) -> float:
    """Time in which a device gets the work of one untraced step: the period, or the mean one if that is shorter.

    A host that is ahead launches the work of some steps at once and waits at others until the queue has room. The
    median of such steps is not the time that the device has for one; their mean is, with outlying steps, in which a
    device may well be idle, taken for ordinary ones. Of a run whose parts differ in speed, mean over median of the
    longest part is taken.

    Args:
        metrics: The run.
        period_ms: Median step time of steady untraced steps.

    Returns:
        Milliseconds, at most ``period_ms``; that itself if the mean is not known.
    """
    whole = metrics.steps.period_ms
    if whole is None:
        return period_ms
    found = metrics.outliers
    ratio = whole.mean / whole.median if whole.median > 0 else 1.0
    if len(metrics.steps.speed_levels) > 1:
        longest = max(metrics.steps.speed_levels, key=lambda level: level.count).period_ms
        ratio = longest.mean / longest.median if longest.median > 0 else 1.0
    elif found is not None and found.checked > 0 and whole.median > 0:
        ratio = (found.total_ms - found.excess_ms) / found.checked / whole.median
    return period_ms * min(1.0, ratio) if possible(ratio) and ratio > 0 else period_ms


def _unexplained_reason(windows: Iterable[WindowFacts]) -> str:
    problems = [_problem(window) for window in windows]
    if not problems:
        return "no trace window was recorded"
    none = "the trace window cannot" if len(problems) == 1 else f"none of {len(problems)} trace windows can"
    return f"{none} be used: {'; '.join(sorted(set(filter(None, problems))))}"


def _problem(window: WindowFacts) -> str:
    """Why a window cannot show how long, and why, the device is idle in whole steps; empty if it can."""
    if window.is_on_slow_step:
        return "it was opened on a slow step"
    if not window.devices or not window.device_work:
        return "it has no device activity"
    if not window.steps_us:
        return "it has no complete step"
    if window.has_earlier_work:
        return f"{window.launches_unmatched:,} of {window.device_work:,} kernels and copies were launched outside of it"
    if _busiest(window) is None:
        return "its device times are not valid numbers"
    if window.results.idle is None or not window.results.idle.devices:
        return "its idle times could not be computed"
    return ""


def _busiest(window: WindowFacts) -> DeviceActivity | None:
    """The busiest device of a window whose steps are known and ordinary; None if they show nothing."""
    if not window.devices or not window.steps_us or not window.device_work or window.is_on_slow_step:
        return None
    inflation = window.inflation_ratio
    if window.has_earlier_work and (inflation is None or not possible(inflation)):
        return None
    device = max(window.devices, key=lambda device: device.busy_us)
    return device if possible(device.busy_us) and possible(device.window_us) and device.window_us > 0 else None


def _busy_ms(window: WindowFacts, pace: float) -> float:
    """Work of an untraced step; where work and steps do not belong together, by as much untraced time as it took."""
    device = _busiest(window)
    assert device is not None
    if window.has_earlier_work:
        return pace * min(1.0, device.busy_us * max(1.0, window.inflation_ratio or 1.0) / device.window_us)
    return device.busy_us / 1e3 / len(window.steps_us)


def _seen(
    window: WindowFacts,
    *,
    period_ms: float,
    pace: float,
    utilization_idle_ratio: float | None,
    clock_loss: ClockLoss | None,
    why_unexplained: str,
) -> DeviceStep:
    device, busy_ms = _busiest(window), _busy_ms(window, pace)
    assert device is not None
    busy_ratio = min(1.0, busy_ms / pace)
    communication_ratio = copy_ratio = upload_ratio = 0.0
    found = window.results.communication
    own = next((d for d in found.devices if d.device == device.device), None) if found is not None else None
    if own is not None and device.busy_us > 0 and possible(own.exposed_us) and possible(own.copy_exposed_us):
        communication_ratio = busy_ratio * min(1.0, own.exposed_us / device.busy_us)
        copy_ratio = min(busy_ratio - communication_ratio, busy_ratio * own.copy_exposed_us / device.busy_us)
        upload_ratio = min(copy_ratio, busy_ratio * _uploads_us(window) / device.busy_us)
    idle = _idle_of(window, device.device)
    return DeviceStep(
        source="trace windows",
        period_ms=period_ms,
        pace_ms=pace,
        busy_ms=busy_ms,
        idle_ms=max(0.0, pace - busy_ms),
        exposed_communication_ratio=communication_ratio,
        above_fastest_ratio=None if found is None else _excess_over_fastest(found),
        exposed_copy_ratio=copy_ratio,
        upload_ratio=upload_ratio,
        idle_in_phase={} if idle is None else _idle_in_phase(window, idle),
        causes={} if idle is None else _causes(idle),
        window=window,
        sees_fetch=_fetched_beside_device_us(window) != 0.0,
        utilization_idle_ratio=utilization_idle_ratio,
        clock_loss=clock_loss,
        why_unexplained=why_unexplained,
    )


def _explained(step: DeviceStep, metrics: Metrics, *, most_busy_ms: float) -> ExplainedStep:
    window = step.window
    assert window is not None
    assert window.results.idle is not None
    device = max(window.results.idle.devices, key=lambda device: device.busy_us)
    traced_ms = {share.cause: share.idle_us / 1e3 / step.steps for share in device.causes}
    traced_idle_ms = max(sum(window.steps_us) - device.busy_us, device.idle_us) / 1e3 / step.steps
    data_ms = _idle_for_data_ms(step, window, traced_ms.get("data", 0.0), metrics)
    others_ms = traced_idle_ms - traced_ms.get("data", 0.0)
    explained = ExplainedStep(
        **msgspec.structs.asdict(step),
        analysis=window.results,
        device=device,
        idle_lower_ms=max(0.0, min(step.pace_ms, _lower_period_ms(metrics, step.period_ms)) - most_busy_ms),
        traced_ms=traced_ms,
        traced_idle_ms=traced_idle_ms,
        data_ms=data_ms,
        outside_model_ms=sum(
            share.median_ms
            for phase, share in metrics.shares.items()
            if phase not in COMPUTE_PHASES and share.median_ms > 0
        ),
        scale=min(1.0, (step.idle_ms - data_ms) / others_ms) if others_ms > 0 else 0.0,
        copies=device_copies(metrics, window.results, step.steps),
    )
    return replace(explained, waits=host_waits(metrics, explained))


def _idle_for_data_ms(step: DeviceStep, window: WindowFacts, traced_data_ms: float, metrics: Metrics) -> float:
    """Of the untraced wait for batches the part that is idle in traced ones."""
    seen_us = _fetched_beside_device_us(window)
    traced_wait_ms = (window.dataloader_us if seen_us is None else seen_us) / 1e3 / step.steps
    if traced_wait_ms <= 0:
        return min(step.idle_ms, traced_data_ms)
    wait = metrics.share("data_wait")
    wait_ms = 0.0 if wait is None else wait.median_ms
    return min(step.idle_ms, wait_ms * min(1.0, traced_data_ms / traced_wait_ms))


def _excess_over_fastest(found: Communication) -> float | None:
    known = [row for row in found.sizes if row.message_bytes is not None and row.count >= MIN_COLLECTIVES]
    known_us = sum(row.total_us for row in known)
    all_us = sum(row.total_us for row in found.kinds)
    if not (possible(known_us) and possible(all_us)) or known_us <= 0 or known_us < 0.5 * all_us:
        return None
    ratio = 1.0 - sum(row.count * row.min_us for row in known) / known_us
    return min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else None


def _idle_of(window: WindowFacts, device: str) -> DeviceIdle | None:
    found = window.results.idle
    return None if found is None else next((d for d in found.devices if d.device == device), None)


def _uploads_us(window: WindowFacts) -> float:
    tables = window.results.api_tables
    rows = () if tables is None else tables.cuda_gpu_mem_time_sum
    return sum(row.total_us for row in rows if "HtoD" in row.name or "HostToDevice" in row.name)


def _idle_in_phase(window: WindowFacts, idle: DeviceIdle) -> dict[Phase, float]:
    steps = window.results.step_trace
    host_us: dict[Phase, float] = {}
    if steps is not None and steps.mean is not None:
        host_us = {phase: us * len(window.steps_us) for phase, us in steps.mean.phases_us.items()}
    if window.dataloader_us > 0:
        host_us.setdefault("data_wait", window.dataloader_us)
    seen_us = _fetched_beside_device_us(window)
    if seen_us:
        host_us["data_wait"] = seen_us
    idle_us = {share.cause: share.idle_us for share in idle.causes}
    return {
        phase: min(1.0, idle_us.get(cause, 0.0) / host_us[phase])
        for phase, cause in _OF_PHASES.items()
        if possible(host_us.get(phase, 0.0)) and host_us.get(phase, 0.0) > 0
    }


def _fetched_beside_device_us(window: WindowFacts) -> float | None:
    """Time in the fetch of which the window shows whether the device worked meanwhile.

    What lies before the first or after the last work of the device shows nothing: it may have been busy with steps that
    were not traced. If that is more than half of the fetch, the rest is not taken for it.

    Returns:
        0 if too little of it is known; None if the window has no ranges of fetches.
    """
    seen_us = window.dataloader_beside_device_us
    if seen_us is None or not window.dataloader_us > 0:
        return None
    return seen_us if seen_us >= MIN_SEEN_RATIO * window.dataloader_us else 0.0


def _causes(idle: DeviceIdle) -> dict[IdleCause, float]:
    of_model = {share.cause: share.idle_us for share in idle.causes if share.cause not in _NOT_OF_MODEL}
    total_us = sum(of_model.values())
    return {cause: us / total_us for cause, us in of_model.items()} if possible(total_us) and total_us > 0 else {}


def _idle_by_utilization(metrics: Metrics) -> float | None:
    """Idle share by NVML's samples of the whole training, where that is hardly more than its steps."""
    used = [
        found.mean
        for device in metrics.devices
        if (found := device.values.get("utilization_ratio")) is not None
        and (device.distinct_samples or 0) >= MIN_SAMPLES
        and possible(found.mean)
    ]
    parts, steps = metrics.wall.parts, metrics.steps
    total_s = metrics.wall.total_s - parts.get("setup", 0.0) - parts.get("teardown", 0.0)
    outside_s = sum(parts.get(part, 0.0) for part in ("validation", "checkpoint", "epoch_gap"))
    if not used or steps.count < MIN_STEPS or not (possible(total_s) and 0 <= outside_s <= MAX_OUTSIDE_RATIO * total_s):
        return None
    if steps.count - steps.steady_count > MAX_UNSTEADY_RATIO * steps.count:
        return None
    return min(1.0, max(0.0, 1.0 - max(used)))


def _lower_period_ms(metrics: Metrics, period_ms: float) -> float:
    """5 % lower bound of the median step time, by the standard error of a median of normal values."""
    period = metrics.steps.period_ms
    if period is None or not math.isfinite(period.p95 - period.p05) or metrics.steps.steady_count < 1:
        return period_ms
    std_ms = (period.p95 - period.p05) / (2 * ONE_SIDED_5_PERCENT)
    error_ms = _MEDIAN_OVER_MEAN_ERROR * std_ms / math.sqrt(metrics.steps.steady_count)
    return period_ms - ONE_SIDED_5_PERCENT * error_ms


def clock_loss(devices: Iterable[Device]) -> ClockLoss | None:
    """What costs the run's GPUs most of their speed.

    A reason counts if the 5 % lower bound (Wilson) of its share of the busy samples is :data:`REASON_RATIO`. A power
    cap counts only if the limit was lowered: at its default limit a board under dense load is where it is built to be.

    Returns:
        None if there is no reason, or no GPU has :data:`MIN_SAMPLES` busy samples.
    """
    losses = [loss for device in devices for loss in _losses(device)]
    return max(losses, key=lambda loss: (loss.ratio, loss.held_ratio), default=None)


def _losses(device: Device) -> Iterable[ClockLoss]:
    busy, most_mhz = device.busy, device.facts.sm_clock_max_mhz
    if busy is None or busy.samples < MIN_SAMPLES or not most_mhz or not possible(most_mhz):
        return
    for share in device.throttle or ():
        clock_mhz = busy.sm_clock_median_mhz if share.sm_clock_median_mhz is None else share.sm_clock_median_mhz
        if share.busy_ratio is None or clock_mhz is None or not (possible(share.busy_ratio) and possible(clock_mhz)):
            continue
        if share.reason in _NO_CAUSE or lower_share(share.busy_ratio, busy.samples) < REASON_RATIO:
            continue
        limit = device.power_limit_ratio
        if share.reason == "sw_power_cap" and (limit is None or limit >= LOWERED_RATIO):
            continue
        held_ratio = min(1.0, share.busy_ratio)
        yield ClockLoss(
            device=device.subject or device.name,
            ratio=held_ratio * max(0.0, 1.0 - clock_mhz / most_mhz),
            reason=share.reason,
            clock_mhz=clock_mhz,
            most_mhz=most_mhz,
            held_ratio=held_ratio,
        )
