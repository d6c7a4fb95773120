"""Metrics flow in, the one word for what bounds the run flows out, with a sentence and the next cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Verdict, VerdictKind
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.rules.base import (
    MIN_COST_MS,
    MissingSignal,
    condition,
    device_idle_ratio,
    is_cpu_only,
    run_s,
    steady_period_ms,
    usable,
)
from lightning_gpuprof.rules.callback_slow import class_name
from lightning_gpuprof.rules.step_outliers import coherent, holding_phases, told_excess_ms
from lightning_gpuprof.rules.waiting import waiting
from lightning_gpuprof.rules.wording import counted, listed, millis, percent, seconds

OUTSIDE_RATIO = 0.25
"""Validation, checkpoints and gaps between epochs, of the wall time. The method's decision tree."""

OUTLIERS_RATIO = 0.25
"""Excess of outlying steps, of the time of the checked steps. Ours."""

INPUT_RATIO = 0.20
"""Wait for batches, of the step. The method's decision tree."""

SYNC_RATIO = 0.15
"""Ranks synchronising, of the step. The method's decision tree."""

HOST_RATIO = 0.15
"""Training thread blocked in the model's phases, or device idle for want of launches. The method's decision tree."""

TRANSFER_RATIO = 0.10
"""Moving the batch to the device, of the step. The method's decision tree."""

LOOP_RATIO = 0.10
"""Callbacks, logging and Lightning's loop, of the step. The method's decision tree."""

LOOP_FIXED_MS = 1.0
"""What logging, progress bar and loop cost in any run, taken off before the threshold. Ours: 0.3 to 0.9 ms with one
logged value on a slow machine."""

COMPUTE_RATIO = 0.50
"""The model's own phases, of the step. Ours."""

MIXED_RATIO = 0.10
"""Two causes that are closer than this are named together. The method."""

_LEAST_NAMED_RATIO = 0.01

_KIND_OF_PHASE: dict[Phase, VerdictKind] = {
    "data_wait": "input-bound",
    "h2d": "transfer-bound",
    "sync": "sync-bound",
    "callbacks": "loop-bound",
    "logging": "loop-bound",
    "loop": "loop-bound",
}
"""What a stall in a phase is called; a stall in one of the model's own phases holds the host up."""


@dataclass(frozen=True, kw_only=True)
class _Cause:
    kind: VerdictKind
    ratio: float
    """Of the run's time without set-up and tear-down: the measure in which causes are compared."""
    passes: bool
    """Whether its lower bound passes its threshold."""
    words: str


def decide(metrics: Metrics) -> Verdict:
    """Name what bounds the run.

    The causes are those of the method's decision tree as far as they are measured: time outside the steps, outlying
    steps, wait for batches, rank synchronisation, blocked host, transfer, loop; then compute. Each must pass its own
    threshold with its lower bound and cost at least 0.2 ms per step. All are slices of the same time that do not
    overlap, so of several that pass the largest is the verdict, rather than the first in the tree; two that are less
    than 10 points of the run apart are ``mixed``. Compute is the verdict only if nothing else passes.
    """
    try:
        period_ms = steady_period_ms(metrics)
    except MissingSignal as missing:
        return Verdict(kind="not-enough-data", summary=f"Not enough data for a verdict: {missing.why}.")
    causes = _merged(_causes(metrics, period_ms))
    compute = next(cause for cause in causes if cause.kind == "compute-bound")
    passing = [cause for cause in causes if cause.passes and cause is not compute]
    if len(passing) >= 2 and passing[0].ratio - passing[1].ratio < MIXED_RATIO:
        first, second = passing[:2]
        return Verdict(
            kind="mixed",
            summary=f"Mixed: {first.kind} ({first.words}) and {second.kind} ({second.words}).",
            runner_up=_runner_up(causes, named=(first, second)),
        )
    if passing or compute.passes:
        first = passing[0] if passing else compute
        return Verdict(
            kind=first.kind,
            summary=f"{first.kind.capitalize()}: {first.words}.",
            runner_up=_runner_up(causes, named=(first,)),
        )
    largest = listed([f"{cause.kind} {percent(cause.ratio)}" for cause in causes[:2]])
    return Verdict(
        kind="mixed",
        summary=f"Mixed: no cause stands out in a step of {millis(period_ms)}; the largest are {largest} of the run.",
        runner_up=_runner_up(causes, named=causes[:1]),
    )


def _causes(metrics: Metrics, period_ms: float) -> Iterable[_Cause]:
    """All causes in the order of the decision tree, compute last."""
    outside = _outside_steps(metrics)
    yield outside
    in_steps = max(0.0, 1.0 - outside.ratio)
    outliers = _outlying_steps(metrics, in_steps)
    if outliers is not None:
        yield outliers
        in_steps = max(0.0, in_steps - outliers.ratio)
    idle_ratio = None if is_cpu_only(metrics) else device_idle_ratio(metrics, period_ms)
    most_wait = 1.0 if idle_ratio is None else idle_ratio  # a wait while the device works is free
    yield _phase_cause(
        metrics,
        "data_wait",
        limit=INPUT_RATIO,
        in_steps=in_steps,
        words="{share} of the step is spent waiting for the next batch ({time} of {period})",
        most=most_wait,
    )
    yield _phase_cause(
        metrics,
        "sync",
        limit=SYNC_RATIO,
        in_steps=in_steps,
        words="{share} of the step is spent synchronising the ranks before the batch ({time} of {period})",
    )
    host, blocked_ratio = _host(metrics, period_ms, idle_ratio=idle_ratio, in_steps=in_steps)
    yield from host
    yield _phase_cause(
        metrics,
        "h2d",
        limit=TRANSFER_RATIO,
        in_steps=in_steps,
        words="{share} of the step is spent moving the batch to the device ({time} of {period})",
    )
    yield _loop(metrics, period_ms, in_steps=in_steps)
    yield _compute(metrics, period_ms, in_steps=in_steps, blocked_ratio=blocked_ratio, idle_ratio=idle_ratio)


def _merged(causes: Iterable[_Cause]) -> list[_Cause]:
    """One cause per kind, largest first; equals stay in the order of the tree."""
    by_kind: dict[VerdictKind, _Cause] = {}
    for cause in causes:
        known = by_kind.get(cause.kind)
        if known is None:
            by_kind[cause.kind] = cause
            continue
        # Of two of a kind, the one that passes has the words; its own share stays the one that is compared if the
        # other does not pass.
        speaker = max(known, cause, key=lambda c: (c.passes, c.ratio))
        both = known.passes and cause.passes
        by_kind[cause.kind] = _Cause(
            kind=cause.kind,
            ratio=known.ratio + cause.ratio if both else speaker.ratio,
            passes=speaker.passes,
            words="; ".join(dict.fromkeys((known.words, cause.words))) if both else speaker.words,
        )
    return sorted(by_kind.values(), key=lambda cause: -cause.ratio)


def _runner_up(causes: list[_Cause], *, named: Iterable[_Cause]) -> str:
    kinds = {cause.kind for cause in named}
    following = next((c for c in causes if c.kind not in kinds and c.ratio >= _LEAST_NAMED_RATIO), None)
    return "" if following is None else f"{following.kind} {percent(following.ratio)}"


def _share(metrics: Metrics, phase: Phase) -> Share | None:
    share = metrics.share(phase)
    return share if share is not None and usable(share) else None


def _outside_steps(metrics: Metrics) -> _Cause:
    try:
        total_s = run_s(metrics)
    except MissingSignal:
        return _Cause(kind="outside-steps", ratio=0.0, passes=False, words="")
    names = {"validation": "validation", "checkpoint": "checkpoints", "epoch_gap": "gaps between epochs"}
    parts_s = sorted(((metrics.wall.parts.get(part, 0.0), name) for part, name in names.items()), reverse=True)
    ratio = min(1.0, max(0.0, sum(part_s for part_s, _ in parts_s) / total_s))
    shown = [f"{name} {seconds(part_s)}" for part_s, name in parts_s if part_s >= _LEAST_NAMED_RATIO * total_s]
    return _Cause(
        kind="outside-steps",
        ratio=ratio,
        passes=ratio > OUTSIDE_RATIO,
        words=f"{percent(ratio)} of the run lies outside the steps: {listed(shown or ['little'])} of "
        f"{seconds(total_s)}",
    )


def _outlying_steps(metrics: Metrics, in_steps: float) -> _Cause | None:
    outliers = metrics.outliers
    if outliers is None or outliers.count == 0 or not coherent(outliers) or outliers.excess_ms == 0:
        return None
    told_ms = told_excess_ms(metrics, outliers)
    ratio = min(1.0, sum(told_ms.values()) / outliers.total_ms, outliers.excess_ms / outliers.total_ms)
    phase, part = holding_phases(told_ms, named_ratio=0.0)[0]
    return _Cause(
        kind=_KIND_OF_PHASE.get(phase, "host-bound"),
        ratio=ratio * in_steps,
        passes=ratio >= OUTLIERS_RATIO,
        words=f"{outliers.count:,} of {counted(outliers.checked, 'step')} hold {percent(ratio)} of the steps' time as "
        f"stalls of up to {millis(outliers.worst_ms)}, {percent(part)} of it in {phase}",
    )


def _phase_cause(
    metrics: Metrics, phase: Phase, *, limit: float, in_steps: float, words: str, most: float = 1.0
) -> _Cause:
    kind = _KIND_OF_PHASE[phase]
    share = _share(metrics, phase)
    period_ms = metrics.period_ms
    if share is None or period_ms is None:
        return _Cause(kind=kind, ratio=0.0, passes=False, words="")
    return _Cause(
        kind=kind,
        ratio=min(share.median_ratio, most) * in_steps,
        passes=min(share.lower_ratio, most) >= limit and share.median_ms >= MIN_COST_MS,
        words=words.format(share=percent(share.median_ratio), time=millis(share.median_ms), period=millis(period_ms)),
    )


def _host(
    metrics: Metrics, period_ms: float, *, idle_ratio: float | None, in_steps: float
) -> tuple[list[_Cause], float]:
    """Waiting inside the model's phases on a CPU, want of launches on a device; and the blocked share of the step."""
    if idle_ratio is not None:
        elsewhere = sum(s.median_ratio for phase, s in metrics.shares.items() if phase not in COMPUTE_PHASES)
        starved = max(0.0, idle_ratio - elsewhere)
        return [
            _Cause(
                kind="host-bound",
                ratio=starved * in_steps,
                passes=starved >= HOST_RATIO and starved * period_ms >= MIN_COST_MS,
                words=f"the device has no work in {percent(idle_ratio)} of the step, and in {percent(starved)} only "
                "because the host does not launch it in time",
            )
        ], 0.0
    try:
        found = waiting(metrics)
    except MissingSignal:
        return [], 0.0
    if found.crowded:  # the thread may be waiting for a CPU
        return [], 0.0
    certain = found.total_certain_ratio
    blocked_ms = sum(b.blocked.median_ms for b in found.phases)
    worst = found.worst
    site = f", mostly at {worst.sites[0][0]}" if worst.sites else ""
    return [
        _Cause(
            kind="host-bound",
            ratio=certain * in_steps,
            passes=certain >= HOST_RATIO and blocked_ms >= MIN_COST_MS,
            words=f"in {percent(min(1.0, blocked_ms / period_ms))} of the step ({millis(blocked_ms)} of "
            f"{millis(period_ms)}) the training thread waits without computing, most in {worst.phase}{site}",
        )
    ], max(certain, min(1.0, blocked_ms / period_ms) if certain >= HOST_RATIO else 0.0)


def _loop(metrics: Metrics, period_ms: float, *, in_steps: float) -> _Cause:
    phases: tuple[Phase, ...] = ("callbacks", "logging", "loop")
    shares = {phase: share for phase in phases if (share := _share(metrics, phase)) is not None}
    total_ms = sum(s.median_ms for s in shares.values())
    names: dict[Phase, str] = {"callbacks": "callbacks", "logging": "logging", "loop": "Lightning's loop"}
    costly = next(iter(metrics.callback_shares), None)
    if costly is not None and costly.share.median_ms >= 0.5 * total_ms:
        names["callbacks"] = f"callbacks, most in {class_name(costly)}.{costly.hook}"
    largest = sorted(shares.items(), key=lambda item: -item[1].median_ms)
    named = [f"{names[p]} ({millis(s.median_ms)})" for p, s in largest if s.median_ms >= 0.1 * total_ms]
    return _Cause(
        kind="loop-bound",
        ratio=sum(s.median_ratio for s in shares.values()) * in_steps,
        passes=sum(s.lower_ratio for s in shares.values()) - LOOP_FIXED_MS / period_ms >= LOOP_RATIO,
        words=f"{percent(total_ms / period_ms)} of the step ({millis(total_ms)} of {millis(period_ms)}) is spent "
        f"around the model: {listed(named or ['nothing'])}",
    )


def _compute(
    metrics: Metrics, period_ms: float, *, in_steps: float, blocked_ratio: float, idle_ratio: float | None
) -> _Cause:
    shares = {phase: share for phase in COMPUTE_PHASES if (share := _share(metrics, phase)) is not None}
    total_ms = sum(s.median_ms for s in shares.values())
    largest = sorted(shares.items(), key=lambda item: -item[1].median_ms)
    named = [f"{phase} {millis(s.median_ms)}" for phase, s in largest if s.median_ms >= 0.05 * total_ms]
    return _Cause(
        kind="compute-bound",
        ratio=max(0.0, sum(s.median_ratio for s in shares.values()) - blocked_ratio) * in_steps,
        passes=sum(s.lower_ratio for s in shares.values()) - blocked_ratio >= COMPUTE_RATIO,
        words=f"{percent(min(1.0, total_ms / period_ms))} of the step is the model's own work "
        f"({listed(named or ['nothing'])} of {millis(period_ms)}); {_whose_work(metrics, idle_ratio)}",
    )


def _whose_work(metrics: Metrics, idle_ratio: float | None) -> str:
    if is_cpu_only(metrics):
        return "on the CPU, compute is the host's work"
    if idle_ratio is not None:
        return f"the device works in {percent(1.0 - idle_ratio)} of the step"
    device = condition(metrics, "device.type") or "device"
    return f"whether the host or the {device} sets the pace in it was not measured"
