"""The levels of the method and its checklist."""

from collections.abc import Iterable, Mapping, Sequence

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.finding import VerdictKind
from lightning_gpuprof.model.method import Cost, Level, LevelName, Method, Outlook
from lightning_gpuprof.model.numbers import amount, counted, factor, listed
from lightning_gpuprof.model.phases import COMPUTE_PHASES, words_of
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import Metrics, Phase, millis, percent
from lightning_gpuprof.rules.cause import MIN_NAMED_RATIO
from lightning_gpuprof.rules.engine import Diagnosis
from lightning_gpuprof.rules.method_checklist import COMPARE, MAX_INTERVAL_RATIO, checklist, computing_ratio, slowest

MAX_COST_RATIO = 0.01
"""What the profiler may take of a step. The method."""

TOP_FINDINGS = 5
TOP_OPERATIONS = 3

BASELINE = "gpuprof.baseline"
"""Condition: the run is compared with an earlier one at its end."""

_NOT_OF_KERNELS: tuple[VerdictKind, ...] = ("input-bound", "loop-bound", "outside-steps", "not-enough-data")
"""Verdicts that justify no look at single operations and kernels."""


def method(
    metrics: Metrics, diagnosis: Diagnosis, *, outlook: Outlook | None = None, cost: Cost | None = None
) -> Method:
    """Put what is known on the levels of the method.

    A level is unfolded only if the levels above it hold: a component is worth a look only in a valid measurement with a
    verdict, and single operations only if the verdict is about the model's own work and its launches.

    Args:
        metrics: The run.
        diagnosis: What the rules said.
        outlook: On the target, if one was given.
        cost: If it is known.

    Returns:
        All seven levels from the conditions to the verification, folded ones with the reason.
    """
    conditions = _conditions(metrics)
    baseline = _baseline(metrics, outlook, cost)
    bottleneck = _bottleneck(metrics, diagnosis)
    component = _component(metrics, diagnosis, _first_fault(conditions, bottleneck))
    operation = _operation(metrics, diagnosis, _first_fault(conditions, bottleneck) or _not_kernels(metrics, diagnosis))
    levels = (
        conditions,
        baseline,
        bottleneck,
        component,
        operation,
        _actions(diagnosis),
        _verification(metrics, baseline),
    )
    return Method(levels=levels, checklist=tuple(checklist(metrics, diagnosis, levels)))


def _first_fault(*levels: Level) -> str:
    fault = next((level for level in levels if not level.holds), None)
    return "" if fault is None else f"the level {fault.name} does not hold: {fault.why}"


def _conditions(metrics: Metrics) -> Level:
    caveats = metrics.validity.caveats
    lines = [f"{counted(len(metrics.run), 'fact')} about the run, hash {metrics.run.get('conditions.hash', 'unknown')}"]
    present, absent = _signals(metrics)
    lines.append(f"measured: {listed(present)}" if present else "nothing was measured")
    if absent:
        lines.append(f"not measured: {listed(absent)}")
    cost_ratio = metrics.overhead.get("share_of_step_ratio")
    if cost_ratio is not None:
        beyond = f", above the {percent(MAX_COST_RATIO)} of the method" if cost_ratio > MAX_COST_RATIO else ""
        lines.append(f"the profiler takes {percent(cost_ratio)} of a step{beyond}")
    valid = metrics.validity.ok
    why = "" if valid else (caveats[0] if caveats else "the measurement is not valid")
    steps = metrics.steps
    slowed = metrics.validity.conditional or metrics.line_times or steps.is_noisy or steps.drift_ms
    worth = "not valid" if not valid else "less reliable" if slowed else "valid"
    caveat_words = "" if not valid else f" with {counted(len(caveats), 'caveat')}" if caveats else ""
    return Level(
        name="conditions",
        answer=f"The measurement is {worth}{caveat_words}.",
        holds=valid,
        why=why,
        lines=tuple(lines),
    )


def _signals(metrics: Metrics) -> tuple[list[str], list[str]]:
    found: dict[str, bool | None] = {
        "phases of the step": bool(metrics.shares),
        "CPU time": metrics.blocked is not None,
        "trace windows": any(window.events for window in metrics.windows),
        "input pipeline": metrics.input is not None,
        "GPU samples": None if metrics.is_cpu_only else bool(metrics.devices),
        "device spans": None if metrics.is_cpu_only else any(row.device_ms is not None for row in metrics.phases),
    }
    return [name for name, there in found.items() if there], [name for name, there in found.items() if there is False]


def _baseline(metrics: Metrics, outlook: Outlook | None, cost: Cost | None) -> Level:
    steps, period = metrics.steps, metrics.steps.period_ms
    if period is None:
        return Level(
            name="baseline",
            answer="There is no steady step to measure.",
            holds=False,
            why="the run never became steady",
        )
    half_ratio = metrics.steps.half_interval_ratio
    sure = "" if half_ratio is None else f" ± {percent(half_ratio)}"
    rate = "" if steps.samples_per_s is None else f", or {amount(steps.samples_per_s)} samples/s"
    lines = [
        f"step time: mean {millis(period.mean)}, standard deviation {millis(period.std)}, p95 {millis(period.p95)}, "
        f"p99 {millis(period.p99)}, from {millis(period.min)} to {millis(period.max)}",
        f"{counted(steps.steady_count, 'steady step')} of {counted(steps.count, 'step')}",
    ]
    if outlook is not None:
        lines.append(outlook.summary)
    lines += _cost_lines(cost)
    why = ""
    if half_ratio is None:
        why = "too few steps for an interval"
    elif half_ratio >= MAX_INTERVAL_RATIO:
        why = f"the median step is only known to ± {percent(half_ratio)}"
    elif len(steps.speed_levels) > 1:
        why = f"the run has {len(steps.speed_levels)} speed levels"
    return Level(
        name="baseline",
        answer=f"Median step {millis(period.median)}{sure}; mean step {millis(period.mean)}{rate}.",
        holds=not why,
        why=why,
        lines=tuple(lines),
    )


def _cost_lines(cost: Cost | None) -> Iterable[str]:
    if cost is None:
        return
    per_million = cost.gpu_hours_per_million_samples
    if cost.gpu_hours is not None:
        each = f", {amount(per_million)} per million samples" if per_million is not None else ""
        yield f"{amount(cost.gpu_hours)} GPU-hours{each}"
    if cost.price_per_million_samples is not None:
        yield f"a million samples cost {amount(cost.price_per_million_samples)}, at the price that was given"
    if cost.joules_per_sample is not None:
        yield f"{amount(cost.joules_per_sample)} J per sample"


def _bottleneck(metrics: Metrics, diagnosis: Diagnosis) -> Level:
    verdict = diagnosis.verdict
    lines = [f"next: {verdict.runner_up}"] if verdict.runner_up else []
    shares = sorted(metrics.shares.items(), key=lambda item: -item[1].median_ratio)
    if shares:
        lines.append(
            "of the step: "
            + ", ".join(f"{words_of(phase)} {percent(s.median_ratio)}" for phase, s in shares if s.median_ms > 0)
        )
    known = verdict.kind != "not-enough-data"
    return Level(
        name="bottleneck",
        answer=verdict.summary,
        holds=known,
        why="" if known else "too little was measured for a verdict",
        lines=tuple(lines),
    )


_PHASES_OF: Mapping[VerdictKind, tuple[Phase, ...]] = {
    "input-bound": ("data_wait",),
    "transfer-bound": ("h2d",),
    "sync-bound": ("sync",),
    "loop-bound": ("callbacks", "logging", "loop"),
    "compute-bound": tuple(COMPUTE_PHASES),
    "memory-bound": tuple(COMPUTE_PHASES),
}
"""The phases in which what bounds the run takes place: the component is one of them, and not the longest of all."""


def _component(metrics: Metrics, diagnosis: Diagnosis, folded: str) -> Level:
    if folded:
        return _folded("component", folded)
    of_verdict = _PHASES_OF.get(diagnosis.verdict.kind, ())
    phase, ratio = slowest(metrics, of_verdict)
    if ratio < MIN_NAMED_RATIO:  # a device that waits for its host: the bound is in other phases of the host
        phase, ratio = slowest(metrics)
    subject = next((finding for finding in diagnosis.findings if finding.subject), None)
    which = " around the model" if diagnosis.verdict.kind == "loop-bound" else ""
    answer = f"Most time{which}: {words_of(phase)}, {percent(ratio)} of the step" if phase else "No phase was measured"
    if subject is not None:
        answer += f". Most to gain: {subject.subject}"
    lines = []
    costly = next(iter(metrics.callback_shares), None)
    if costly is not None:
        lines.append(
            f"costliest callback: {costly.name}.{costly.hook}, {percent(costly.share.median_ratio)} of the step"
        )
    lines += _modules(metrics.windows)
    return Level(name="component", answer=f"{answer}.", holds=bool(phase), lines=tuple(lines))


def _modules(windows: Sequence[WindowFacts]) -> Iterable[str]:
    for window in windows:
        found = window.results.attribution
        rows = [] if found is None else sorted(found.modules, key=lambda row: -row.own_us)[:TOP_OPERATIONS]
        named = [f"{'.'.join(row.path)} {millis(row.own_us / 1e3)}" for row in rows if row.own_us > 0]
        if named:
            yield f"own device time of modules in the window: {', '.join(named)}"
            return


def _not_kernels(metrics: Metrics, diagnosis: Diagnosis) -> str:
    """Why single operations are not worth a look; empty if they are."""
    kind = diagnosis.verdict.kind
    if kind not in _NOT_OF_KERNELS:
        return ""
    if kind == "outside-steps":
        return "most of the time is outside the steps"
    own = min(0.99, computing_ratio(metrics))
    return (
        f"even a model that took no time would make the step at most {factor(1 / (1 - own))} faster; the run is {kind}"
    )


def _operation(metrics: Metrics, diagnosis: Diagnosis, folded: str) -> Level:
    if folded:
        return _folded("operation", folded)
    window = next((w for w in reversed(metrics.windows) if w.top_operators or w.top_kernels), None)
    if window is None:
        return Level(
            name="operation",
            answer="No operation was traced.",
            holds=False,
            why="there is no trace window: GpuProfiler(windows=100)",
        )
    rows = window.top_kernels or window.top_operators
    what = "kernel" if window.top_kernels else "operator"
    lines = [f"{row.name}: {counted(row.count, 'call')}, {millis(row.total_us / 1e3)}" for row in rows[:TOP_OPERATIONS]]
    lines += _syncs(window)
    return Level(
        name="operation",
        answer=f"The {what} with most time in the window is {rows[0].name}, {millis(rows[0].total_us / 1e3)}.",
        holds=True,
        lines=tuple(lines),
    )


def _syncs(window: WindowFacts) -> Iterable[str]:
    found = window.results.sync_points
    site = None if found is None or not found.sites else found.sites[0]
    if site is not None and site.cost_us > 0:
        by = f" called by {in_words(site.line.frame)}" if site.line is not None else ""
        yield f"costliest wait for the device: {site.operation}{by}, {millis(site.cost_us / 1e3)} in the window"


def _actions(diagnosis: Diagnosis) -> Level:
    valued = [finding for finding in diagnosis.findings if finding.gain is not None]
    first = next(iter(diagnosis.findings), None)
    lines = [
        f"{finding.rule}: up to {factor(most)}"
        for finding in valued[:TOP_FINDINGS]
        if (most := finding.most_speedup) is not None
    ]
    combined = diagnosis.combined
    if combined is not None and len(valued) > 1:
        lines.append(
            f"all changes together: the run without setup and teardown up to {factor(combined.run_speedup_max)}, its "
            f"ordinary step up to {factor(combined.step_speedup_max)} "
            f"({millis(combined.saved_ms_per_step)} of {millis(combined.period_ms)})"
        )
    if diagnosis.not_evaluated:
        lines.append(f"{counted(len(diagnosis.not_evaluated), 'rule')} could not be evaluated")
    return Level(
        name="actions",
        answer="No rule found anything to change." if first is None else first.advice,
        holds=True,
        lines=tuple(lines),
    )


def _verification(metrics: Metrics, baseline: Level) -> Level:
    """How to see a change. Whether the numbers are reliable the first screen says: here it is which changes show."""
    compared = metrics.condition(BASELINE) is True
    half_ratio = metrics.steps.half_interval_ratio
    lines = [f"again after each change: {COMPARE}"]
    if half_ratio is not None:
        lines.append(f"a change of the median step above about {percent(2 * half_ratio)} shows")
    answer = "This run can serve as the baseline."
    if half_ratio is None:
        answer = "Only a longer run can serve as the baseline."
    elif not baseline.holds:
        answer = f"This run can serve as the baseline of changes above {percent(2 * half_ratio)}."
    why = "too few steps to distinguish a change from noise" if half_ratio is None else "" if compared else baseline.why
    return Level(
        name="verification",
        answer="The run is compared with its baseline when it ends." if compared else answer,
        holds=not why,
        why=why,
        lines=tuple(lines),
    )


def _folded(name: LevelName, why: str) -> Level:
    return Level(name=name, answer="Not analysed.", holds=False, unfolded=False, why=why)
