"""The slices of the run's time that may bound it, each compared with its threshold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lightning_gpuprof.model.clock_events import WORDS as THROTTLE_WORDS
from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_step import HOST_SLICES, DeviceStep
from lightning_gpuprof.model.finding import MIN_COST_MS, VerdictKind
from lightning_gpuprof.model.metrics import RankTimes
from lightning_gpuprof.model.numbers import counted, listed, seconds
from lightning_gpuprof.model.outliers import UNLIKELY, Stalls, dominant_phases
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Part
from lightning_gpuprof.model.signals import ordinary_ratio
from lightning_gpuprof.model.trace.idle import IdleCause
from lightning_gpuprof.rules.base import Metrics, MissingSignal, Phase, Share, measured, millis, percent, usable
from lightning_gpuprof.rules.device_limit import device_limit
from lightning_gpuprof.rules.steps.uneven import LIMIT_S

OUTSIDE_RATIO = 0.25
"""Validation, checkpoints and gaps between epochs, of the wall time. The method's decision tree."""

OUTLIERS_RATIO = 0.25
"""Excess of outlying steps, of the time of the checked steps. Heuristic."""

INPUT_RATIO = 0.20
"""Wait for batches, of the step. The method's decision tree."""

SYNC_RATIO = 0.15
"""Ranks synchronising, or a device idle after the host waited for it, of the step. The method's decision tree."""

COMMUNICATION_RATIO = 0.20
"""Communication that no computation covers, of the step. The method's decision tree."""

WAITING_RATIO = 0.20
"""Share of the collectives' time above the fastest of their size from which it is named. Heuristic."""

CLOCK_RATIO = 0.85
"""Clock of the busy device over its maximum, below which the hardware limits. The method's decision tree."""

ALLOCATOR_RATIO = 0.30
"""Share of the device's idle time from which allocating memory is named as its reason. Heuristic."""

HOST_RATIO = 0.15
"""Training thread blocked in the model's phases, or device idle for want of launches. The method's decision tree."""

TRANSFER_RATIO = 0.10
"""Moving the batch to the device, of the step. The method's decision tree."""

LOOP_RATIO = 0.10
"""Callbacks, logging and Lightning's loop, of the step. The method's decision tree."""

LOOP_FIXED_MS = 1.0
"""What logging, progress bar and loop cost in any run, taken off before the threshold. Heuristic: 0.3 to 0.9 ms with
one logged value on a slow machine."""

COMPUTE_RATIO = 0.50
"""The model's own phases, of the step. Heuristic."""

MIN_NAMED_RATIO = 0.01
"""Of the run: what is less is not named. Heuristic."""

_NOT_LATE: tuple[IdleCause, ...] = ("host_sync", "communication", "queued", "back_to_back", "unexplained")
"""Causes of idle time that are no late launch."""

_OUTSIDE_WORDS: dict[Part, str] = {
    "validation": "validation",
    "checkpoint": "checkpoints",
    "epoch_gap": "gaps between epochs",
}

_KIND_OF_PHASE: dict[Phase, VerdictKind] = {
    "data_wait": "input-bound",
    "h2d": "transfer-bound",
    "sync": "sync-bound",
    "callbacks": "loop-bound",
    "logging": "loop-bound",
    "loop": "loop-bound",
}
"""What a stall in a phase is called; a stall in one of the model's own phases holds the host up."""


STARVED = "CPU-starved"
"""What a run is called whose main thread waits for a CPU because of the run itself; its kind is host-bound."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A slice of the run's time that may bound it."""

    kind: VerdictKind
    ratio: float
    """Of the run's time without set-up and tear-down: the measure in which causes are compared."""
    passes: bool
    """Whether its lower bound passes its threshold."""
    words: str
    headline: str = ""
    """Its name as a verdict, where that says more than the kind."""


def causes_of(metrics: Metrics, period_ms: float, step: DeviceStep | None) -> Iterable[Cause]:
    """All causes in the order of the decision tree, the model's own work last.

    Args:
        metrics: The run.
        period_ms: Median step time of its steady steps.
        step: What a device's time is made of; None on a CPU, and where no device was seen.
    """
    outside = outside_steps(metrics)
    yield outside
    in_steps = max(0.0, 1.0 - outside.ratio)
    outliers = _outlying_steps(metrics, in_steps)
    if outliers is not None:
        yield outliers
        in_steps = max(0.0, in_steps - outliers.ratio)
    if step is None:
        around = _around_the_model(metrics, period_ms, dict.fromkeys(HOST_SLICES, 1.0), in_steps=in_steps)
        yield from _without_waits(around) if metrics.is_cpu_only is False else around
        host, blocked_ratio = _blocked_host(metrics, period_ms, in_steps=in_steps)
        yield from host
        for cause in _waiting_for_ranks(metrics, period_ms, in_steps=in_steps):
            yield cause
            blocked_ratio += cause.ratio / in_steps if in_steps else 0.0
        compute_ratio = sum(share.median_ratio for share in _compute_shares(metrics).values()) - blocked_ratio
        crowded_ratio = _without_a_cpu(metrics, most=compute_ratio)
        own = metrics.contention.by_this_run
        if own and crowded_ratio >= HOST_RATIO:
            yield _crowded_host(crowded_ratio, period_ms, in_steps=in_steps)
        yield _host_compute(
            metrics,
            period_ms,
            in_steps=in_steps,
            blocked_ratio=blocked_ratio + (crowded_ratio if own else 0.0),
            foreign_ratio=0.0 if own else crowded_ratio,
        )
        return
    most, starved = step.idle_by_phase, step.starved_ratio
    yield from _limited_hardware(step, in_steps=in_steps)
    yield from _communication(metrics, step, starved, in_steps=in_steps)
    yield from _around_the_model(metrics, period_ms, most, uploads=step.upload_ratio, in_steps=in_steps)
    yield from _starved_device(step, starved, period_ms, in_steps=in_steps)
    yield _device_compute(metrics, step, starved, in_steps=in_steps)


def _without_waits(causes: Iterable[Cause]) -> Iterable[Cause]:
    """Where no device was seen, time of the host in transfer, rank synchronisation and loop may be that of its work."""
    for cause in causes:
        yield cause if cause.kind == "input-bound" else replace(cause, passes=False)


def _around_the_model(
    metrics: Metrics, period_ms: float, most: Mapping[Phase, float], *, uploads: float = 0.0, in_steps: float
) -> Iterable[Cause]:
    """Wait for batches, synchronising ranks, transfer, and callbacks with logging and loop.

    Args:
        metrics: The run.
        period_ms: Of a step.
        most: What each phase of the host costs at most.
        uploads: Copies of the batch that nothing covers, as a share of the step; they come on top of the host's time.
        in_steps: Share of the run in ordinary steps.
    """
    yield _phase_cause(
        metrics,
        "data_wait",
        limit=INPUT_RATIO,
        in_steps=in_steps,
        words="each step waits {time} of its {period} for the next batch ({share})"
        + _of_it_idle(metrics, "data_wait", most),
        most=most["data_wait"],
    )
    sync = _phase_cause(
        metrics,
        "sync",
        limit=SYNC_RATIO,
        in_steps=in_steps,
        words="each step takes {time} of its {period} to synchronise the ranks before the batch ({share})",
        most=most["sync"],
    )
    late = _late_ranks(metrics, sync.ratio)
    yield replace(sync, words=f"{sync.words}; it waits for {late}") if late else sync
    yield _transfer(metrics, period_ms, most, uploads=uploads, in_steps=in_steps)
    yield _loop(metrics, period_ms, most, in_steps=in_steps)


def _transfer(
    metrics: Metrics, period_ms: float, most: Mapping[Phase, float], *, uploads: float, in_steps: float
) -> Cause:
    """The host's time for moving the batch, as far as it costs, and copies that the device makes alone.

    A copy that does not block takes the host microseconds, however long the device is at it.
    """
    host = _phase_cause(
        metrics,
        "h2d",
        limit=TRANSFER_RATIO - uploads,
        in_steps=in_steps,
        words="each step takes {time} of its {period} to move the batch to the device ({share})"
        + _of_it_idle(metrics, "h2d", most),
        most=most["h2d"],
    )
    if uploads <= 0:
        return host
    device = f"in {percent(uploads)} of the step the device copies the batch and computes nothing"
    both = f"moving the batch to the device costs {percent(host.ratio + uploads)} of the step: {device}"
    return Cause(
        kind="transfer-bound",
        ratio=host.ratio + uploads * in_steps,
        passes=host.passes or (uploads >= TRANSFER_RATIO and uploads * period_ms >= MIN_COST_MS),
        words=f"{both}; {host.words}" if host.ratio >= MIN_NAMED_RATIO else device,
    )


def _share(metrics: Metrics, phase: Phase) -> Share | None:
    share = metrics.share(phase)
    return share if share is not None and usable(share) else None


def outside_steps(metrics: Metrics) -> Cause:
    """Validation, checkpoints and gaps between epochs, whatever the number of steps if most of the run is there."""
    try:
        total_s = metrics.run_s
    except MissingSignal:
        return Cause(kind="outside-steps", ratio=0.0, passes=False, words="")
    parts_s = sorted(((part_s, _OUTSIDE_WORDS[part]) for part, part_s in metrics.outside_s.items()), reverse=True)
    ratio = min(1.0, max(0.0, sum(part_s for part_s, _ in parts_s) / total_s))
    shown = [f"{name} {seconds(part_s)}" for part_s, name in parts_s if part_s >= MIN_NAMED_RATIO * total_s]
    return Cause(
        kind="outside-steps",
        ratio=ratio,
        passes=ratio > OUTSIDE_RATIO,
        words=f"{percent(ratio)} of the run lies outside the steps: {listed(shown or ['little'])} of "
        f"the {seconds(total_s)} after set-up",
    )


def _outlying_steps(metrics: Metrics, in_steps: float) -> Cause | None:
    stalls = metrics.stalls
    if not isinstance(stalls, Stalls) or stalls.alike:  # work of larger batches
        return None
    outliers, attributed_ms = stalls.outliers, stalls.attributed_ms
    if outliers.count == 0 or outliers.excess_ms == 0:
        return None
    holders = dominant_phases(attributed_ms, named_ratio=0.8)
    if outliers.excess_ms < LIMIT_S * 1e3 and stalls.may_be_pauses((phase for phase, _ in holders), UNLIKELY):
        return None
    ratio = min(1.0, sum(attributed_ms.values()) / outliers.total_ms, outliers.excess_ms / outliers.total_ms)
    phase, part = holders[0]
    return Cause(
        kind=_KIND_OF_PHASE.get(phase, "host-bound"),
        ratio=ratio * in_steps,
        passes=ratio >= OUTLIERS_RATIO,
        words=f"{outliers.count:,} of {counted(outliers.checked, 'step')} "
        + ("are a slow part of the run" if stalls.in_slow_levels else f"stalled, for up to {millis(outliers.worst_ms)}")
        + f": {percent(ratio)} of the steps' time, {percent(part)} of that in {phase}{_for_rare_ranks(metrics, ratio)}",
    )


def _phase_cause(
    metrics: Metrics, phase: Phase, *, limit: float, in_steps: float, words: str, most: float = 1.0
) -> Cause:
    kind = _KIND_OF_PHASE[phase]
    share = _share(metrics, phase)
    period_ms = metrics.period_ms
    if share is None or period_ms is None:
        return Cause(kind=kind, ratio=0.0, passes=False, words="")
    return Cause(
        kind=kind,
        ratio=min(share.median_ratio, most) * in_steps,
        passes=min(share.lower_ratio, most) >= limit and share.median_ms >= MIN_COST_MS,
        words=words.format(share=percent(share.median_ratio), time=millis(share.median_ms), period=millis(period_ms)),
    )


def _of_it_idle(metrics: Metrics, phase: Phase, most: Mapping[Phase, float]) -> str:
    """What a wait costs, where it is less than the wait because the device goes on working."""
    share = _share(metrics, phase)
    if share is None or most[phase] >= 0.95 * share.median_ratio:
        return ""
    return f"; it costs {percent(most[phase])}, as the device works in the rest"


def _limited_hardware(step: DeviceStep, *, in_steps: float) -> Iterable[Cause]:
    """A GPU whose clock something holds down while it sets the pace."""
    loss = step.clock_loss
    if loss is None:
        return
    yield Cause(
        kind="hardware-limited",
        ratio=loss.ratio * step.computing_ratio * in_steps,
        passes=1.0 - loss.ratio < CLOCK_RATIO and step.computing_ratio >= COMPUTE_RATIO,
        words=f"{loss.device} runs at {loss.clock_mhz:,.0f} of {loss.most_mhz:,.0f} "
        f"MHz in {percent(loss.held_ratio)} of the samples in which it works; the driver's reason: "
        f"{THROTTLE_WORDS[loss.reason]}",
    )


def _communication(metrics: Metrics, step: DeviceStep, starved: float, *, in_steps: float) -> Iterable[Cause]:
    """Kernels of collectives that nothing covers, and a device that is idle while the host prepares them."""
    calls = starved * step.causes.get("communication", 0.0)
    ratio = step.exposed_communication_ratio + calls
    if ratio <= 0:
        return
    waiting_ratio = step.above_fastest_ratio or 0.0
    slow = ""
    if waiting_ratio >= WAITING_RATIO:
        slow = f"; {percent(waiting_ratio)} of the collectives' time is above the fastest of their size: a wait, not "
        slow += "transfer"
    if late := _late_ranks(metrics, ratio):
        slow += f"; it waits for {late}"
    yield Cause(
        kind="comm-bound",
        ratio=ratio * in_steps,
        passes=ratio >= COMMUNICATION_RATIO,
        words=f"in {percent(step.exposed_communication_ratio)} of the step the device communicates or waits for other "
        "ranks while nothing computes"
        + (f", and in {percent(calls)} the host sets that up" if calls >= 0.01 else "")
        + slow,
    )


def _starved_device(step: DeviceStep, starved: float, period_ms: float, *, in_steps: float) -> Iterable[Cause]:
    """A device that is idle inside the model's phases: after the host waited for it, or for want of launches."""
    synced = starved * step.causes.get("host_sync", 0.0)
    late = starved * max(0.0, 1.0 - sum(step.causes.get(cause, 0.0) for cause in _NOT_LATE))
    yield Cause(
        kind="sync-bound",
        ratio=synced * in_steps,
        passes=synced >= SYNC_RATIO and synced * period_ms >= MIN_COST_MS,
        words=f"the device has no work in {percent(step.idle_ratio)} of the step, and in {percent(synced)} because "
        f"the host had waited for it before it launched more{_sync_site(step)}",
    )
    allocator = step.causes.get("allocator", 0.0)
    memory = f"; {percent(allocator)} of that is allocating and freeing memory" if allocator >= ALLOCATOR_RATIO else ""
    yield Cause(
        kind="host-bound",
        ratio=late * in_steps,
        passes=late >= HOST_RATIO and late * period_ms >= MIN_COST_MS,
        words=f"the device has no work in {percent(step.idle_ratio)} of the step by {step.source}, and in "
        f"{percent(late)} only because the host does not launch it in time{memory}",
    )


def _sync_site(step: DeviceStep) -> str:
    found = None if step.window is None or step.window.analysis is None else step.window.analysis.sync_points
    if found is None or not found.sites:
        return ""
    site = found.sites[0]
    by = f", called by {in_words(site.line.frame)}" if site.line is not None else ""
    return f", most in {site.operation}{by}"


def _device_compute(metrics: Metrics, step: DeviceStep, starved: float, *, in_steps: float) -> Cause:
    """The device's own work, with the gaps that are its own, by what limits it."""
    turns = starved * (step.causes.get("queued", 0.0) + step.causes.get("back_to_back", 0.0))
    kind, why = device_limit(metrics, step)
    computing = step.computing_ratio + turns
    return Cause(
        kind=kind,
        ratio=computing * in_steps,
        passes=computing >= COMPUTE_RATIO,
        words=f"the device works in {percent(1.0 - step.idle_ratio)} of the step by {step.source} and computes in "
        f"{percent(step.computing_ratio)}" + (f"; {why}" if why else ""),
    )


def _blocked_host(metrics: Metrics, period_ms: float, *, in_steps: float) -> tuple[list[Cause], float]:
    """Waiting inside the model's phases; and the blocked share of the step."""
    try:
        found = measured(metrics.waiting).of_model
    except MissingSignal:
        return [], 0.0
    if found.crowded or not found.phases:  # the thread may be waiting for a CPU
        return [], 0.0
    certain = found.total_certain_ratio
    blocked_ms = sum(b.blocked.median_ms for b in found.phases)
    worst = found.worst
    site = f", mostly in {in_words(worst.sites[0][0])}" if worst.sites else ""
    return [
        Cause(
            kind="host-bound",
            ratio=certain * in_steps,
            passes=certain >= HOST_RATIO and blocked_ms >= MIN_COST_MS,
            words=f"in each {millis(period_ms)} step the main thread waits {millis(blocked_ms)} "
            f"({percent(min(1.0, blocked_ms / period_ms))}) without computing, most in {worst.phase}{site}",
        )
    ], max(certain, min(1.0, blocked_ms / period_ms) if certain >= HOST_RATIO else 0.0)


def _waiting_for_ranks(metrics: Metrics, period_ms: float, *, in_steps: float) -> Iterable[Cause]:
    """Waiting until all ranks have come as far: on a CPU, whose thread computes or waits there."""
    try:
        found = measured(metrics.waiting)
    except MissingSignal:
        return
    if found.for_ranks is None or found.crowded:
        return
    certain, waited_ms = found.certain_ratio(found.for_ranks), found.for_ranks.blocked.median_ms
    whom = _late_ranks(metrics, certain) or "other ranks"
    yield Cause(
        kind="comm-bound",
        ratio=certain * in_steps,
        passes=certain >= SYNC_RATIO and waited_ms >= MIN_COST_MS,
        words=f"in each {millis(period_ms)} step this rank waits {millis(waited_ms)} "
        f"({percent(min(1.0, waited_ms / period_ms))}) in {found.for_ranks.phase} for {whom}",
    )


def _late_ranks(metrics: Metrics, ratio: float) -> str:
    """Ranks that are late for at least half of what is waited, and in what; empty if there are none."""
    times = metrics.ranks
    if not isinstance(times, RankTimes) or times.late.lost.lower_ratio <= 0.5 * ratio:
        return ""
    return f"{times.late_name}, which {'takes' if len(times.late.ranks) == 1 else 'take'} longer in {times.late.phase}"


def _for_rare_ranks(metrics: Metrics, ratio: float) -> str:
    """Ranks that are late now and then for at least half of what stalls cost; empty if there are none."""
    times = metrics.ranks
    rare = times.rare if isinstance(times, RankTimes) else None
    if not isinstance(times, RankTimes) or rare is None or rare.lower_ratio <= 0.5 * ratio:
        return ""
    ranks = times.named(*rare.ranks)
    return f", because of {ranks}, which {'takes' if len(rare.ranks) == 1 else 'take'} longer in {rare.phase} then"


def _without_a_cpu(metrics: Metrics, *, most: float) -> float:
    """Share of the step in which the main thread has no CPU while it would compute; 0 where a device computes.

    In which phase it has none is known of few steps only: what the model's phases have room for is taken off them.
    """
    delay = metrics.cpu.run_delay
    if delay is None or not usable(delay) or metrics.is_cpu_only is False:
        return 0.0
    return max(0.0, min(delay.lower_ratio, most))


def _crowded_host(ratio: float, period_ms: float, *, in_steps: float) -> Cause:
    return Cause(
        kind="host-bound",
        ratio=ratio * in_steps,
        passes=ratio * period_ms >= MIN_COST_MS,
        words=starved_words(ratio, period_ms, at="at least "),
        headline=STARVED,
    )


def starved_words(ratio: float, period_ms: float, *, at: str = "") -> str:
    """What is said of a main thread that waits for a CPU in so much of the step, or ``at`` least in so much.

    Args:
        ratio: Share of the step, 0 to 1.
        period_ms: Step time in ms.
        at: Words before the time: ``"at least "`` if the share is a lower bound.
    """
    return (
        f"in every {millis(period_ms)} step the main thread waits {at}{millis(ratio * period_ms)} "
        f"({percent(ratio)}) for a free CPU; this run needs more CPUs than it has"
    )


def _compute_shares(metrics: Metrics) -> dict[Phase, Share]:
    return {phase: share for phase in COMPUTE_PHASES if (share := _share(metrics, phase)) is not None}


def _loop(metrics: Metrics, period_ms: float, most: Mapping[Phase, float], *, in_steps: float) -> Cause:
    phases: tuple[Phase, ...] = ("callbacks", "logging", "loop")
    shares = {phase: share for phase in phases if (share := _share(metrics, phase)) is not None}
    # What happens every few steps is in no median.
    ordinary = {phase: ordinary_ratio(metrics, share, phase) for phase, share in shares.items()}
    times_ms = {phase: max(share.median_ms, ordinary[phase] * period_ms) for phase, share in shares.items()}
    total_ms = sum(times_ms.values())
    names: dict[Phase, str] = {"callbacks": "callbacks", "logging": "logging", "loop": "Lightning's loop"}
    costly = next(iter(metrics.callback_shares), None)
    if costly is not None and max(costly.share.median_ms, costly.share.total_ratio * period_ms) >= 0.5 * total_ms:
        names["callbacks"] = f"callbacks, most in {costly.class_name}.{costly.hook}"
    largest = sorted(times_ms.items(), key=lambda item: -item[1])
    named = [f"{names[p]} ({millis(ms)})" for p, ms in largest if ms >= 0.1 * total_ms]
    return Cause(
        kind="loop-bound",
        ratio=min(1.0, sum(min(max(s.median_ratio, ordinary[p]), most[p]) for p, s in shares.items())) * in_steps,
        passes=sum(min(ordinary[p], most[p]) for p in shares) - LOOP_FIXED_MS / period_ms >= LOOP_RATIO,
        words=f"each {millis(period_ms)} step spends {millis(total_ms)} "
        f"({percent(min(1.0, total_ms / period_ms))}) around the model: {listed(named or ['nothing'])}",
    )


def _host_compute(
    metrics: Metrics, period_ms: float, *, in_steps: float, blocked_ratio: float, foreign_ratio: float
) -> Cause:
    """The model's phases as the host sees them.

    Args:
        metrics: The run.
        period_ms: Of a step.
        in_steps: Share of the run in ordinary steps.
        blocked_ratio: What of them is no work of the model's.
        foreign_ratio: Share of the step in which other programs had the main thread's CPU: no property of this
            run. It makes all that computes longer alike, and leaves shares as they are.
    """
    shares = _compute_shares(metrics)
    total_ms = sum(s.median_ms for s in shares.values())
    largest = sorted(shares.items(), key=lambda item: -item[1].median_ms)
    named = [f"{phase} {millis(s.median_ms)}" for phase, s in largest if s.median_ms >= 0.05 * total_ms]
    foreign = f"; in {percent(foreign_ratio)} of the step other programs had the CPU"
    return Cause(
        kind="compute-bound",
        ratio=max(0.0, sum(s.median_ratio for s in shares.values()) - blocked_ratio) * in_steps,
        passes=sum(s.lower_ratio for s in shares.values()) - blocked_ratio >= COMPUTE_RATIO,
        words=f"{percent(min(1.0, total_ms / period_ms))} of the step is the model's own work "
        f"({listed(named or ['nothing'])} of {millis(period_ms)}){_whose_work(metrics)}"
        + (foreign if foreign_ratio >= HOST_RATIO else ""),
    )


def _whose_work(metrics: Metrics) -> str:
    if metrics.is_cpu_only:
        return ""
    device = metrics.condition("device.type") or "device"
    return f"; whether the host or the {device} sets the pace in it was not measured"
