"""The method's checklist."""

from collections.abc import Collection, Iterable, Sequence

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.method import Check, CheckState, Level, LevelName
from lightning_gpuprof.model.numbers import amount, counted
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.rules.base import Metrics, Phase, millis, percent, possible
from lightning_gpuprof.rules.engine import Diagnosis

MIN_WARM_UP_STEPS = 5
"""The method's checklist."""


def checklist(metrics: Metrics, diagnosis: Diagnosis, levels: Sequence[Level]) -> Iterable[Check]:
    """Each point of the method's checklist, with whether it holds and the evidence for it.

    Args:
        metrics: Metrics of the run.
        diagnosis: What the rules said.
        levels: The answers of the method, level by level.
    """
    yield from _baseline_checks(metrics)
    yield from _bottleneck_checks(metrics, diagnosis)
    yield from _component_checks(metrics, levels)
    yield from _operation_checks(metrics, diagnosis, levels)
    yield from _verification_checks(metrics)


def _check(group: LevelName, text: str, state: bool | None, evidence: str) -> Check:
    states: dict[bool | None, CheckState] = {True: "yes", False: "no", None: "not applicable"}
    return Check(group=group, text=text, state=states[state], evidence=evidence)


def _baseline_checks(metrics: Metrics) -> Iterable[Check]:
    steps, period = metrics.steps, metrics.steps.period_ms
    speed = f"{amount(steps.samples_per_s)} samples/s" if steps.samples_per_s is not None else "the step time"
    yield _check("baseline", "a metric is defined", period is not None, speed if period else "no steady step")
    spans = any(row.device_ms is not None for row in metrics.phases)
    on_cpu = metrics.is_cpu_only
    yield _check(
        "baseline",
        "device time is measured with events, not with a host clock",
        None if on_cpu else spans,
        "no GPU" if on_cpu else ("device spans of phases" if spans else "no device spans"),
    )
    warm_up = steps.labels.get("warm-up", 0)
    yield _check(
        "baseline",
        f"at least {MIN_WARM_UP_STEPS} steps of warm-up are left out",
        steps.steady_from is not None and warm_up >= MIN_WARM_UP_STEPS,
        f"{counted(warm_up, 'step')} left out" if steps.steady_from is not None else "the run never became steady",
    )
    yield _check(
        "baseline",
        "mean, standard deviation and percentiles are reported",
        period is not None,
        f"over {counted(steps.steady_count, 'steady step')}",
    )
    hashed = metrics.run.get("conditions.hash")
    yield _check(
        "baseline",
        "conditions are written down",
        hashed is not None,
        f"{counted(len(metrics.run), 'fact')}, hash {hashed}" if hashed is not None else "no conditions in the journal",
    )


def _bottleneck_checks(metrics: Metrics, diagnosis: Diagnosis) -> Iterable[Check]:
    samples = max((device.distinct_samples or 0 for device in metrics.devices), default=0)
    on_cpu = metrics.is_cpu_only
    yield _check(
        "bottleneck",
        "GPU utilization is looked at",
        None if on_cpu else samples >= MIN_SAMPLES,
        "no GPU" if on_cpu else f"{counted(samples, 'distinct sample')}, {MIN_SAMPLES} are needed",
    )
    wait = metrics.share("data_wait")
    computing = computing_ratio(metrics)
    yield _check(
        "bottleneck",
        "loading and computing are measured apart",
        wait is not None,
        f"wait for batches {percent(wait.median_ratio)}, the model's phases {percent(computing)} of the step"
        if wait is not None
        else "no steady step",
    )
    kind = diagnosis.verdict.kind
    known = kind != "not-enough-data"
    yield _check("bottleneck", "the bottleneck has a category", known, kind)
    yield _check(
        "bottleneck",
        "the category rests on measurements",
        known and metrics.validity.ok,
        diagnosis.verdict.summary if metrics.validity.ok else "the measurement is not valid",
    )


def _component_checks(metrics: Metrics, levels: Sequence[Level]) -> Iterable[Check]:
    times = [f"{p} {millis(s.median_ms)}" for p in ("forward", "backward", "optimizer") if (s := metrics.share(p))]
    yield _check("component", "phases of the step are profiled", bool(times), ", ".join(times) or "no steady step")
    phase, ratio = slowest(metrics)
    yield _check(
        "component",
        "the slowest phase is known",
        phase is not None,
        f"{phase}, {percent(ratio)}" if phase else "none",
    )
    opened = [
        level.name for level in levels if level.name in ("bottleneck", "component", "operation") and level.unfolded
    ]
    yield _check(
        "component", "narrowed down level by level", "component" in opened, f"opened: {', '.join(opened) or 'none'}"
    )
    traced = any(window.file for window in metrics.windows)
    yield _check(
        "component",
        "table and trace are both there",
        traced,
        f"{counted(len(metrics.windows), 'window')}" if traced else "no trace: GpuProfiler(windows=100)",
    )


def _operation_checks(metrics: Metrics, diagnosis: Diagnosis, levels: Sequence[Level]) -> Iterable[Check]:
    level = next(level for level in levels if level.name == "operation")
    # A folded level was judged: nobody needs to look there.
    state = level.holds if level.unfolded else None
    yield _check("operation", "the component is profiled in detail", state, level.answer if level.holds else level.why)
    named = next((finding for finding in diagnosis.findings if finding.subject), None)
    yield _check(
        "operation",
        "an operation, place or pattern is named",
        named is not None,
        f"{named.rule}: {named.subject}" if named is not None else "no finding names one",
    )
    proven = next((finding for finding in diagnosis.findings if finding.evidence), None)
    yield _check(
        "operation",
        "it is known why it is slow",
        proven is not None,
        f"{proven.rule}: {proven.evidence[0].name}" if proven is not None else "no finding",
    )
    valued = next((finding for finding in diagnosis.findings if finding.gain is not None), None)
    yield _check(
        "operation",
        "there is a target that can be acted on",
        valued is not None,
        valued.advice if valued is not None else "no finding with a gain",
    )


def _verification_checks(metrics: Metrics) -> Iterable[Check]:
    yield _check("verification", "a baseline is saved", True, "the journal of this run, and its report")
    yield _check("verification", "how to measure again is known", True, COMPARE)
    half_ratio = half_width(metrics)
    yield _check(
        "verification",
        "a change stands out from noise",
        half_ratio is not None and half_ratio < MAX_INTERVAL_RATIO,
        f"the median step is known to ± {percent(half_ratio)}" if half_ratio is not None else "too few steady steps",
    )
    files = [window.file for window in metrics.windows if window.file]
    yield _check(
        "verification",
        "traces and summaries are kept",
        bool(files),
        ", ".join(files) if files else "journal and report, no trace: GpuProfiler(windows=100)",
    )


MAX_INTERVAL_RATIO = 0.05
"""Half width of the 95 % interval of the median step time, of the median, up to which a baseline is firm. The
method."""


COMPARE = "gpuprof compare BEFORE AFTER, or GpuProfiler(baseline=<folder of this run>)"
"""How a change is measured."""


def half_width(metrics: Metrics) -> float | None:
    """Half of the 95 % interval of the median step time, of the median; None: not known."""
    ends, period = metrics.steps.period_median_interval_ms, metrics.steps.period_ms
    if ends is None or period is None or not period.median > 0:
        return None
    half_ratio = (ends[1] - ends[0]) / 2 / period.median
    return half_ratio if possible(half_ratio) else None


def slowest(metrics: Metrics, among: Collection[Phase] = ()) -> tuple[Phase | None, float]:
    """The longest phase and its share of the step; among some, or all.

    Args:
        metrics: Metrics of the run.
        among: Phases to choose from; empty: all.
    """
    shares = {phase: share.median_ratio for phase, share in metrics.shares.items() if not among or phase in among}
    longest = max(shares, key=lambda phase: shares[phase], default=None)
    return longest, 0.0 if longest is None else shares[longest]


def computing_ratio(metrics: Metrics) -> float:
    """Share of the step in the model's own phases."""
    ratios = (share.median_ratio for phase, share in metrics.shares.items() if phase in COMPUTE_PHASES)
    return sum(ratio for ratio in ratios if possible(ratio))
