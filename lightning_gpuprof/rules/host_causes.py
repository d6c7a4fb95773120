"""The host's slices of a step: waits and work around the model, a thread that is held up, and its own work."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_step import HOST_SLICES
from lightning_gpuprof.model.finding import MIN_COST_MS
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.phases import COMPUTE_PHASES, words_of
from lightning_gpuprof.model.signals import ordinary_ratio
from lightning_gpuprof.rules.base import Metrics, Phase, Share, millis, percent, usable
from lightning_gpuprof.rules.cause import KIND_OF_PHASE, MIN_NAMED_RATIO, Cause, late_ranks

INPUT_RATIO = 0.20
"""Wait for batches, of the step. The method's decision tree."""

SYNC_RATIO = 0.15
"""Ranks synchronising, or a device idle after the host waited for it, of the step. The method's decision tree."""

HOST_RATIO = 0.15
"""Training thread blocked in the model's phases, or device idle for lack of launches. The method's decision tree."""

TRANSFER_RATIO = 0.10
"""Moving the batch to the device, of the step. The method's decision tree."""

LOOP_RATIO = 0.10
"""Callbacks, logging and Lightning's loop, of the step. The method's decision tree."""

LOOP_FIXED_MS = 1.0
"""What logging, progress bar and loop cost in any run, taken off before the threshold. Heuristic: 0.3 to 0.9 ms with
one logged value on a slow machine."""

COMPUTE_RATIO = 0.50
"""The model's own phases, of the step. Heuristic."""

STARVED = "CPU-starved"
"""What a run is called whose main thread waits for a CPU because of the run itself; its kind is host-bound."""


def host_causes(metrics: Metrics) -> Iterable[Cause]:
    """Of steps without a device, or whose device was not seen; the model's own work last.

    Where no device was seen, time of the host in transfer, rank synchronisation and loop may be that of its work.
    """
    for cause in around_the_model(metrics, dict.fromkeys(HOST_SLICES, 1.0)):
        seen = metrics.is_cpu_only is not False or cause.kind == "input-bound"
        yield cause if seen else replace(cause, passes=False)
    host, blocked_ratio = _blocked_host(metrics)
    yield from host
    for cause in _waiting_for_ranks(metrics):
        yield cause
        blocked_ratio += cause.ratio
    compute_ratio = sum(share.median_ratio for share in _compute_shares(metrics).values()) - blocked_ratio
    crowded_ratio = _without_a_cpu(metrics, most=compute_ratio)
    own = metrics.contention.by_this_run
    if own and crowded_ratio >= HOST_RATIO:
        yield Cause(
            kind="host-bound",
            ratio=crowded_ratio,
            passes=crowded_ratio * metrics.step_ms >= MIN_COST_MS,
            words=starved_words(crowded_ratio, metrics.step_ms, at="at least "),
            headline=STARVED,
        )
    blocked_ratio += crowded_ratio if own else 0.0
    yield _host_compute(metrics, blocked_ratio=blocked_ratio, foreign_ratio=0.0 if own else crowded_ratio)


def around_the_model(metrics: Metrics, most: Mapping[Phase, float], *, uploads: float = 0.0) -> Iterable[Cause]:
    """Wait for batches, synchronising ranks, transfer, and callbacks with logging and loop.

    Args:
        metrics: The run.
        most: What each phase of the host costs at most.
        uploads: Copies of the batch that nothing covers, as a share of the step; they come on top of the host's time.

    Yields:
        One for each of the four in that order, whether it passes or not; its ratio is of the step.
    """
    yield _phase_cause(
        metrics,
        "data_wait",
        limit=INPUT_RATIO,
        words="each step waits {time} of its {period} for the next batch ({share})"
        + _of_it_idle(metrics, "data_wait", most),
        most=most["data_wait"],
    )
    sync = _phase_cause(
        metrics,
        "sync",
        limit=SYNC_RATIO,
        words="synchronising the ranks before the batch takes {time} of each {period} step ({share})",
        most=most["sync"],
    )
    late = late_ranks(metrics, sync.ratio)
    yield replace(sync, words=f"{sync.words}; this rank waits for {late}") if late else sync
    yield _transfer(metrics, most, uploads=uploads)
    yield _loop(metrics, most)


def _transfer(metrics: Metrics, most: Mapping[Phase, float], *, uploads: float) -> Cause:
    """The host's time for moving the batch, as far as it costs, and copies that the device makes alone.

    A copy that does not block takes the host microseconds, however long the device is at it.
    """
    host = _phase_cause(
        metrics,
        "h2d",
        limit=TRANSFER_RATIO - uploads,
        words="moving the batch to the device takes {time} of each {period} step ({share})"
        + _of_it_idle(metrics, "h2d", most),
        most=most["h2d"],
    )
    if uploads <= 0:
        return host
    device = f"the GPU copies the batch without computing for {percent(uploads)} of the step"
    both = f"moving the batch to the device costs {percent(host.ratio + uploads)} of the step: {device}"
    return Cause(
        kind="transfer-bound",
        ratio=host.ratio + uploads,
        passes=host.passes or (uploads >= TRANSFER_RATIO and uploads * metrics.step_ms >= MIN_COST_MS),
        words=f"{both}; {host.words}" if host.ratio >= MIN_NAMED_RATIO else device,
    )


def _phase_cause(metrics: Metrics, phase: Phase, *, limit: float, words: str, most: float = 1.0) -> Cause:
    kind = KIND_OF_PHASE[phase]
    share = metrics.share(phase)
    period_ms = metrics.period_ms
    if share is None or period_ms is None:
        return Cause(kind=kind, ratio=0.0, passes=False, words="")
    return Cause(
        kind=kind,
        ratio=min(share.median_ratio, most),
        passes=min(share.lower_ratio, most) >= limit and share.median_ms >= MIN_COST_MS,
        words=words.format(share=percent(share.median_ratio), time=millis(share.median_ms), period=millis(period_ms)),
    )


def _of_it_idle(metrics: Metrics, phase: Phase, most: Mapping[Phase, float]) -> str:
    """What a wait costs, where it is less than the wait because the device goes on working."""
    share = metrics.share(phase)
    if share is None or most[phase] >= 0.95 * share.median_ratio:
        return ""
    return f"; only {percent(most[phase])} costs time, because the GPU is busy during the rest"


def _loop(metrics: Metrics, most: Mapping[Phase, float]) -> Cause:
    period_ms = metrics.step_ms
    phases: tuple[Phase, ...] = ("callbacks", "logging", "loop")
    shares = {phase: share for phase in phases if (share := metrics.share(phase)) is not None}
    # What happens every few steps is in no median.
    ordinary = {phase: ordinary_ratio(metrics, share, phase) for phase, share in shares.items()}
    times_ms = {phase: max(share.median_ms, ordinary[phase] * period_ms) for phase, share in shares.items()}
    total_ms = sum(times_ms.values())
    names: dict[Phase, str] = {"callbacks": "callbacks", "logging": "logging", "loop": "Lightning's loop"}
    costly = next(iter(metrics.callback_shares), None)
    if costly is not None and max(costly.share.median_ms, costly.share.total_ratio * period_ms) >= 0.5 * total_ms:
        names["callbacks"] = f"callbacks, mostly {costly.class_name}.{costly.hook}"
    largest = sorted(times_ms.items(), key=lambda item: -item[1])
    named = [f"{names[p]} ({millis(ms)})" for p, ms in largest if ms >= 0.1 * total_ms]
    return Cause(
        kind="loop-bound",
        ratio=min(1.0, sum(min(max(s.median_ratio, ordinary[p]), most[p]) for p, s in shares.items())),
        passes=sum(min(ordinary[p], most[p]) for p in shares) - LOOP_FIXED_MS / period_ms >= LOOP_RATIO,
        words=f"work outside the model takes {millis(total_ms)} of each {millis(period_ms)} step "
        f"({percent(min(1.0, total_ms / period_ms))}): {listed(named or ['nothing'])}",
    )


def _blocked_host(metrics: Metrics) -> tuple[list[Cause], float]:
    """Waiting inside the model's phases; and the blocked share of the step."""
    period_ms = metrics.step_ms
    found = None if isinstance(metrics.waiting, Unmeasured) else metrics.waiting.of_model
    if found is None or found.crowded or not found.phases:  # the thread may be waiting for a CPU
        return [], 0.0
    certain = found.total_certain_ratio
    blocked_ms = sum(b.blocked.median_ms for b in found.phases)
    worst = found.worst
    site = f", in {in_words(worst.sites[0][0])}" if worst.sites else ""
    return [
        Cause(
            kind="host-bound",
            ratio=certain,
            passes=certain >= HOST_RATIO and blocked_ms >= MIN_COST_MS,
            words=f"the main thread is blocked for {millis(blocked_ms)} of each {millis(period_ms)} step "
            f"({percent(min(1.0, blocked_ms / period_ms))}), mostly in {words_of(worst.phase)}{site}",
        )
    ], max(certain, min(1.0, blocked_ms / period_ms) if certain >= HOST_RATIO else 0.0)


def _waiting_for_ranks(metrics: Metrics) -> Iterable[Cause]:
    """Waiting until all ranks have come as far: on a CPU, whose thread computes or waits there."""
    found = metrics.waiting
    if isinstance(found, Unmeasured) or found.for_ranks is None or found.crowded:
        return
    period_ms = metrics.step_ms
    certain, waited_ms = found.certain_ratio(found.for_ranks), found.for_ranks.blocked.median_ms
    whom = late_ranks(metrics, certain) or "other ranks"
    yield Cause(
        kind="comm-bound",
        ratio=certain,
        passes=certain >= SYNC_RATIO and waited_ms >= MIN_COST_MS,
        words=f"this rank waits {millis(waited_ms)} of each {millis(period_ms)} step "
        f"({percent(min(1.0, waited_ms / period_ms))}) in {words_of(found.for_ranks.phase)} for {whom}",
    )


def _without_a_cpu(metrics: Metrics, *, most: float) -> float:
    """Share of the step in which the main thread has no CPU while it would compute; 0 where a device computes.

    In which phase it has none is known of few steps only: what the model's phases have room for is taken off them.
    """
    delay = metrics.cpu.run_delay
    if delay is None or not usable(delay) or metrics.is_cpu_only is False:
        return 0.0
    return max(0.0, min(delay.lower_ratio, most))


def starved_words(ratio: float, period_ms: float, *, at: str = "") -> str:
    """What is said of a main thread that waits for a CPU in so much of the step, or ``at`` least in so much.

    Args:
        ratio: Share of the step, 0 to 1.
        period_ms: Step time in ms.
        at: Words before the time: ``"at least "`` if the share is a lower bound.

    Returns:
        Two clauses without their full stop.
    """
    return (
        f"in every {millis(period_ms)} step the main thread waits {at}{millis(ratio * period_ms)} "
        f"({percent(ratio)}) for a free CPU; this run has too few CPUs"
    )


def _compute_shares(metrics: Metrics) -> dict[Phase, Share]:
    return {phase: share for phase in COMPUTE_PHASES if (share := metrics.share(phase)) is not None}


def _host_compute(metrics: Metrics, *, blocked_ratio: float, foreign_ratio: float) -> Cause:
    """The model's phases as the host sees them.

    Args:
        metrics: The run.
        blocked_ratio: What of them is no work of the model's.
        foreign_ratio: Share of the step in which other programs had the main thread's CPU: no property of this
            run. It makes all that computes longer alike, and leaves shares as they are.
    """
    shares = _compute_shares(metrics)
    total_ms = sum(s.median_ms for s in shares.values())
    largest = sorted(shares.items(), key=lambda item: -item[1].median_ms)
    named: list[str] = [phase for phase, s in largest if s.median_ms >= 0.05 * total_ms > 0]
    few = "mostly " if named and len(named) < sum(s.median_ms > 0 for s in shares.values()) else ""
    waits = foreign_ratio >= HOST_RATIO
    words = f"{percent(min(1.0, total_ms / metrics.step_ms))} of the step is computation"
    words += f"{' and waiting for a CPU' if waits else ''}{f' ({few}{listed(named)})' if named else ''}"
    if waits:
        words += f"; other programs had the CPU for {percent(foreign_ratio)} of the step"
    return Cause(
        kind="compute-bound",
        ratio=max(0.0, sum(s.median_ratio for s in shares.values()) - blocked_ratio),
        passes=sum(s.lower_ratio for s in shares.values()) - blocked_ratio >= COMPUTE_RATIO,
        words=words if metrics.is_cpu_only else f"{words}; whether the host or the device limits it was not measured",
    )
