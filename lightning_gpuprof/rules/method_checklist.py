"""The method's checklist."""

from collections.abc import Collection, Iterable, Sequence

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.method import Check, CheckState, Level, LevelName
from lightning_gpuprof.model.numbers import amount, counted
from lightning_gpuprof.model.phases import COMPUTE_PHASES, words_of
from lightning_gpuprof.rules.base import Metrics, Phase, millis, percent, possible
from lightning_gpuprof.rules.engine import Diagnosis

MIN_WARM_UP_STEPS = 5
"""The method's checklist."""

MAX_INTERVAL_RATIO = 0.05
"""Half width of the 95 % interval of the median step time, of the median, up to which a baseline is firm. The
method."""

COMPARE = "gpuprof compare BEFORE AFTER, or GpuProfiler(baseline=<folder of this run>)"
"""How a change is measured."""

_NO_TRACE = "no trace: GpuProfiler(windows=100)"
_STATES: dict[bool | None, CheckState] = {True: "yes", False: "no", None: "not applicable"}

Box = tuple[str, bool | None, str]
"""What is asked for, whether that holds (None: it does not apply), and the evidence."""


def checklist(metrics: Metrics, diagnosis: Diagnosis, levels: Sequence[Level]) -> Iterable[Check]:
    """Each point of the method's checklist, with whether it holds and the evidence for it.

    Args:
        metrics: Metrics of the run.
        diagnosis: What the rules said.
        levels: The answers of the method, level by level.

    Yields:
        In the order of the levels, those that do not hold with what is missing.
    """
    boxes: dict[LevelName, Iterable[Box]] = {
        "baseline": _baseline(metrics),
        "bottleneck": _bottleneck(metrics, diagnosis),
        "component": _component(metrics, levels),
        "operation": _operation(diagnosis, levels),
        "verification": _verification(metrics),
    }
    for group, found in boxes.items():
        for text, state, evidence in found:
            yield Check(group=group, text=text, state=_STATES[state], evidence=evidence)


def _baseline(metrics: Metrics) -> Iterable[Box]:
    steps, period, on_cpu = metrics.steps, metrics.steps.period_ms, metrics.is_cpu_only
    speed = f"{amount(steps.samples_per_s)} samples/s" if steps.samples_per_s is not None else "the step time"
    yield "a metric is defined", period is not None, speed if period else "no steady step"
    spans = any(row.device_ms is not None for row in metrics.phases)
    shown = "no GPU" if on_cpu else "device spans of phases" if spans else "no device spans"
    yield "device time is measured with events, not with a host clock", None if on_cpu else spans, shown
    steady, warm_up = steps.steady_from is not None, steps.labels.get("warm-up", 0)
    left_out = f"{counted(warm_up, 'step')} left out" if steady else "the run never became steady"
    enough = steady and warm_up >= MIN_WARM_UP_STEPS
    yield f"at least {MIN_WARM_UP_STEPS} steps of warm-up are left out", enough, left_out
    over = f"over {counted(steps.steady_count, 'steady step')}"
    yield "mean, standard deviation and percentiles are reported", period is not None, over
    hashed = metrics.run.get("conditions.hash")
    facts = f"{counted(len(metrics.run), 'fact')}, hash {hashed}" if hashed else "no conditions in the journal"
    yield "conditions are written down", hashed is not None, facts


def _bottleneck(metrics: Metrics, diagnosis: Diagnosis) -> Iterable[Box]:
    samples = max((device.distinct_samples or 0 for device in metrics.devices), default=0)
    if metrics.is_cpu_only:
        yield "GPU utilization is checked", None, "no GPU"
    else:
        sampled = f"{counted(samples, 'distinct sample')}, {MIN_SAMPLES} are needed"
        yield "GPU utilization is checked", samples >= MIN_SAMPLES, sampled
    wait, computing = metrics.share("data_wait"), percent(computing_ratio(metrics))
    apart = "no steady step"
    if wait is not None:
        apart = f"wait for batches {percent(wait.median_ratio)}, the model's phases {computing} of the step"
    yield "loading and computing are measured apart", wait is not None, apart
    verdict, valid = diagnosis.verdict, metrics.validity.ok
    known = verdict.kind != "not-enough-data"
    yield "the bottleneck has a category", known, verdict.kind
    rests = verdict.summary if valid else "the measurement is not valid"
    yield "the category is based on measurements", known and valid, rests


def _component(metrics: Metrics, levels: Sequence[Level]) -> Iterable[Box]:
    times = [f"{p} {millis(s.median_ms)}" for p in ("forward", "backward", "optimizer") if (s := metrics.share(p))]
    yield "phases of the step are profiled", bool(times), ", ".join(times) or "no steady step"
    phase, ratio = slowest(metrics)
    yield "the slowest phase is known", phase is not None, f"{words_of(phase)}, {percent(ratio)}" if phase else "none"
    opened = [one.name for one in levels if one.name in ("bottleneck", "component", "operation") and one.unfolded]
    yield "narrowed down level by level", "component" in opened, f"opened: {', '.join(opened) or 'none'}"
    traced = any(window.file for window in metrics.windows)
    yield "table and trace are both there", traced, counted(len(metrics.windows), "window") if traced else _NO_TRACE


def _operation(diagnosis: Diagnosis, levels: Sequence[Level]) -> Iterable[Box]:
    level = next(level for level in levels if level.name == "operation")
    # A folded level was judged: nobody needs to look there.
    state = level.holds if level.unfolded else None
    yield "the component is profiled in detail", state, level.answer if level.holds else level.why
    named = next((f"{one.rule}: {one.subject}" for one in diagnosis.findings if one.subject), "")
    yield "an operation, place or pattern is named", bool(named), named or "no finding names one"
    proven = next((f"{one.rule}: {one.evidence[0].name}" for one in diagnosis.findings if one.evidence), "")
    yield "it is known why it is slow", bool(proven), proven or "no finding"
    valued = next((one for one in diagnosis.findings if one.gain is not None), None)
    target = "no finding with a gain" if valued is None else valued.advice
    yield "there is a target that can be acted on", valued is not None, target


def _verification(metrics: Metrics) -> Iterable[Box]:
    yield "a baseline is saved", True, "the journal of this run, and its report"
    yield "how to measure again is known", True, COMPARE
    half_ratio = metrics.steps.half_interval_ratio
    firm = half_ratio is not None and half_ratio < MAX_INTERVAL_RATIO
    known = "too few steady steps" if half_ratio is None else f"the median step is known to ± {percent(half_ratio)}"
    yield "a change stands out from noise", firm, known
    files = ", ".join(window.file for window in metrics.windows if window.file)
    yield "traces and summaries are kept", bool(files), files or f"journal and report, {_NO_TRACE}"


def slowest(metrics: Metrics, among: Collection[Phase] = ()) -> tuple[Phase | None, float]:
    """The longest phase and its share of the step; among some, or all.

    Args:
        metrics: Metrics of the run.
        among: Phases to choose from; empty: all.

    Returns:
        The share is a median, 0 to 1; None and 0 if no share of them is known.
    """
    shares = {phase: share.median_ratio for phase, share in metrics.shares.items() if not among or phase in among}
    longest = max(shares, key=lambda phase: shares[phase], default=None)
    return longest, 0.0 if longest is None else shares[longest]


def computing_ratio(metrics: Metrics) -> float:
    """Share of the step in the model's own phases."""
    ratios = (share.median_ratio for phase, share in metrics.shares.items() if phase in COMPUTE_PHASES)
    return sum(ratio for ratio in ratios if possible(ratio))
