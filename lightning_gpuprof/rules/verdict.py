"""What bounds the run, in one word, with a sentence and the next cause."""

from collections.abc import Iterable, Sequence

from lightning_gpuprof.model.finding import Verdict, VerdictKind
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.signals import device_step
from lightning_gpuprof.rules.base import Metrics, MissingSignal, millis, percent, possible
from lightning_gpuprof.rules.cause import MIN_NAMED_RATIO, Cause
from lightning_gpuprof.rules.causes import causes_of, outside_steps
from lightning_gpuprof.rules.host_causes import HOST_RATIO, STARVED, starved_words

MIXED_RATIO = 0.10
"""Two causes that are closer than this are named together. The method."""

_DEVICE_KINDS = frozenset({"compute-bound", "memory-bound", "latency-bound"})
"""The model's own work, by what limits it."""


def decide(metrics: Metrics) -> Verdict:
    """Name what bounds the run.

    The causes are those of the method's decision tree as far as they are measured: time outside the steps, outlying
    steps, clocks that are held down, communication that nothing covers, wait for batches, rank synchronisation, a
    device that is idle after waits or for lack of launches (without a device: a blocked host), transfer, loop; then the
    model's own work, by what limits it. Each must pass its own threshold with its lower bound and cost at least 0.2 ms
    per step. All are slices of the same time that do not overlap, so of several that pass the largest is the verdict,
    rather than the first in the tree; two that are less than 10 points of the run apart are ``mixed``. The model's own
    work is the verdict only if nothing else passes; on a CPU, time in which the main thread has none is no work of
    the model but of a host that is held up. If nothing passes, because it is stopped anywhere for lack of a CPU, that
    is the verdict. Where other programs have its CPU, that is no property of the run, and such time is left out.

    Too few steps make no verdict, unless at least half of the run, and a second, is outside of them.

    Of a device that neither windows nor NVML have seen it is not known whether it works while the host waits: transfer,
    rank synchronisation and loop then never pass.
    """
    try:
        period_ms = metrics.step_ms
    except MissingSignal as missing:
        if metrics.is_mostly_outside:
            return Verdict(kind="outside-steps", summary=f"Outside-steps: {outside_steps(metrics).words}.")
        return Verdict(kind="not-enough-data", summary=f"Not enough data for a verdict: {missing.why}.")
    step = device_step(metrics)
    unseen = step is None and metrics.is_cpu_only is False
    causes = _merged(causes_of(metrics, step))
    compute = next(cause for cause in causes if cause.kind in _DEVICE_KINDS)
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
            summary=f"{first.headline or first.kind.capitalize()}: {first.words}.",
            runner_up=_runner_up(causes, named=(first,)),
        )
    delay = metrics.cpu.run_delay_ratio
    held_up = delay is not None and possible(delay) and delay >= HOST_RATIO and delay > causes[0].ratio
    others = ""
    if delay is not None and held_up:
        if metrics.contention.by_this_run:
            return Verdict(
                kind="host-bound",
                summary=f"{STARVED}: {starved_words(min(1.0, delay), period_ms)}.",
                runner_up=_runner_up(causes, named=()),
            )
        others = f"; other programs had the CPU for {percent(min(1.0, delay))} of the step"
    largest = listed([f"{cause.kind} {percent(cause.ratio)}" for cause in causes[:2]])
    return Verdict(
        kind="mixed",
        summary=f"Mixed: no single cause stands out in a {millis(period_ms)} step; the largest are {largest} of the run"
        + others
        + ("; whether the device was busy at the same time was not measured." if unseen else "."),
        runner_up=_runner_up(causes, named=causes[:1]),
    )


def _merged(causes: Iterable[Cause]) -> list[Cause]:
    """One cause per kind, largest first; equals stay in the order of the tree."""
    by_kind: dict[VerdictKind, Cause] = {}
    for cause in causes:
        known = by_kind.get(cause.kind)
        if known is None:
            by_kind[cause.kind] = cause
            continue
        # Of two of a kind, the one that passes has the words; its own share stays the one that is compared if the
        # other does not pass.
        speaker = max(known, cause, key=lambda c: (c.passes, c.ratio))
        both = known.passes and cause.passes
        by_kind[cause.kind] = Cause(
            kind=cause.kind,
            ratio=known.ratio + cause.ratio if both else speaker.ratio,
            passes=speaker.passes,
            words="; ".join(dict.fromkeys((known.words, cause.words))) if both else speaker.words,
            headline="" if both else speaker.headline,
        )
    return sorted(by_kind.values(), key=lambda cause: -cause.ratio)


def _runner_up(causes: list[Cause], *, named: Sequence[Cause]) -> str:
    """The largest cause below those that are named: the model's own work can be above them, and is no runner-up."""
    kinds, most = {cause.kind for cause in named}, min((cause.ratio for cause in named), default=1.0)
    following = next((c for c in causes if c.kind not in kinds and MIN_NAMED_RATIO <= c.ratio <= most), None)
    return "" if following is None else f"{following.kind} {percent(following.ratio)}"
