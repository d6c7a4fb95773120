"""The sentences about verdict, findings and summary numbers that all sinks share."""

from collections.abc import Iterable, Mapping

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import Expectation
from lightning_gpuprof.model.finding import Evidence, Expected, Finding, Gain, NotEvaluated
from lightning_gpuprof.model.phases import STAGES, Phase, Stage, words_of
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, STEP_LABELS, Report, StepLabel
from lightning_gpuprof.sinks import plain

HEADLINE_CONDITIONS: dict[str, str] = {
    "run_id": "run",
    "started": "started",
    "script": "script",
    "model.class": "model",
    "device.name": "GPU",
    "device.type": "device",
    "world_size": "ranks",
    "trainer.precision": "precision",
    "loader.batch_size": "batch size",
    "loader.num_workers": "workers",
    "version.torch": "torch",
    "version.lightning": "lightning",
}
"""Conditions that the first lines of a report show, where they are known, and what people call them."""

_TITLES: dict[Stage, str] = {
    "fit": "where the training time went",
    "validate": "where the validation time went",
    "test": "where the test time went",
    "predict": "where the prediction time went",
}

_HIDDEN_IF_MANUAL: dict[Phase, str] = {"zero_grad": "zero_grad", "clip": "clipping"}
"""What the user's own ``training_step`` does in manual optimization, and what people call it."""

RUN_OF_GAINS = "the run without setup and teardown"
"""Of which the bounds of all changes together and of what lies between steps are."""

MAX_NAMED = 3
"""Rules that could not judge for one reason; of more, their number."""
_QUIET_FINDING = "No rule found anything to change."


def evidence(item: Evidence) -> str:
    """``name value unit (limit x unit)``."""
    text = f"{plain.name(item.name)} {evidence_value(item)}"
    return text if item.limit is None else f"{text} (limit {evidence_limit(item)})"


def evidence_value(item: Evidence) -> str:
    """The measured value with its unit; a name such as ``usable CPUs`` has said it already."""
    if item.unit and item.name.endswith(f" {item.unit}") and not isinstance(item.value, str):
        return numbers.with_unit(item.value, "")
    if isinstance(item.value, str):
        return plain.name(f"{item.value} {plain.name(item.unit, 24)}".rstrip(), 200)
    return numbers.with_unit(item.value, plain.name(item.unit, 24))


def evidence_limit(item: Evidence) -> str:
    """The limit with the value's unit; "-" if it has none."""
    return numbers.with_unit(item.limit, plain.name(item.unit, 24))


def gain(finding: Finding, item: Gain) -> str:
    """``about 1.7x (1.6 to 1.8), at most 1.9x (saves 12 ms/step)``; of what lies between steps with the run it is of.

    Args:
        finding: With what its change is expected to gain.
        item: What that gains at best.

    Returns:
        ``up to 1.9x (saves 12 ms/step)`` if nothing is expected; without the bound where that lies in the range.
    """
    saved_ms, expected = item.saved_ms_per_step, finding.expected
    saved = f"{numbers.significant(saved_ms)} ms" if saved_ms < 1e3 else numbers.seconds(saved_ms / 1e3)
    most = f"{numbers.significant(item.speedup_max)}x (saves {saved}/step)"
    of = f" for {RUN_OF_GAINS}" if finding.claim.resource == "outside steps" else ""
    if expected is None:
        return f"up to {most}{of}"
    beyond = item.speedup_max <= expected.speedup_range[1]  # the rest of the step gets faster, too
    return f"{about(expected)}{of}" if beyond else f"{about(expected)}, at most {most}{of}"


def about(expected: Expected) -> str:
    """``about 1.7x (1.6 to 1.8)``."""
    ends = (numbers.significant(end) for end in expected.speedup_range)
    return f"about {numbers.significant(expected.speedup)}x ({' to '.join(ends)})"


def came_of(expectation: Expectation) -> str:
    """``about 1.7x (1.6 to 1.8), got 1.72x: in the expected range``."""
    of = "" if expectation.of == "step" else " of the run"
    got = numbers.significant(expectation.speedup)
    return f"{about(expectation.expected)}{of}, got {got}x: {expectation.standing}"


def headline(report: Report) -> str:
    """The run in one line: the conditions that identify it."""
    known = (
        f"{word} {plain.name(str(report.run[key]), 60)}"
        for key, word in HEADLINE_CONDITIONS.items()
        if report.run.get(key) not in (None, "")
    )
    return " · ".join(known)


def stage(report: Report) -> Stage:
    """What of the trainer the report is about."""
    return next((known for known in STAGES if known == report.run.get("stage")), "fit")


def title(report: Report) -> str:
    """What a report of this stage answers."""
    return _TITLES[stage(report)]


def steps(report: Report) -> str:
    """How many steps, how fast, in one line."""
    facts = report.steps
    trained = f" ({numbers.count(facts.optimizer_steps)} optimizer steps)" if stage(report) == "fit" else ""
    parts = [f"{numbers.counted(facts.count, 'step')}{trained}"]
    parts.append(f"wall time {numbers.seconds(report.wall.total_s)}")
    if facts.period_ms is not None:
        interval = numbers.interval(facts.period_median_interval_ms)
        sure = f"95 % confidence interval {interval}, " if interval else ""
        median, tail = numbers.significant(facts.period_ms.median), numbers.significant(facts.period_ms.p95)
        parts.append(f"median step {median} ms ({sure}p95 {tail} ms)")
    if facts.samples_per_s is not None:
        interval = numbers.interval(facts.samples_per_s_interval)
        parts.append(
            f"{numbers.significant(facts.samples_per_s)} samples/s"
            + (f" at the mean step of {numbers.significant(facts.period_ms.mean)} ms" if facts.period_ms else "")
            + (f" (95 % confidence interval {interval})" if interval else "")
        )
    return " · ".join(parts)


def empty_phases(report: Report) -> list[str]:
    """Which phases took no time, and which cannot be told apart from another."""
    empty = [row.phase for row in report.phases if row.total_s <= 0]
    lines = []
    if report.run.get("model.automatic_optimization") is False and stage(report) == "fit":
        hidden = [_HIDDEN_IF_MANUAL[phase] for phase in empty if phase in _HIDDEN_IF_MANUAL]
        empty = [phase for phase in empty if phase not in _HIDDEN_IF_MANUAL]
        if hidden:
            verb = "are" if len(hidden) > 1 else "is"
            lines.append(f"in manual optimization {' and '.join(hidden)} {verb} part of forward")
    return [f"no time in: {', '.join(map(words_of, empty))}", *lines] if empty else lines


_LEFT_OUT: Mapping[StepLabel, str] = {
    "profiled": "traced",
    "disturbed": "during trace analysis",
    "first-of-epoch": "first of an epoch",
    "validation-adjacent": "next to validation",
}


def steadiness(report: Report) -> str:
    """From where on the run is steady, how many steps the statistics rest on, and why the others are left out."""
    if report.steps.steady_from is None:
        return "The run never became steady."
    left_out = ", ".join(
        f"{numbers.count(number)} {_LEFT_OUT.get(label, label)}"
        for label in STEP_LABELS
        if label != "steady" and (number := report.steps.labels.get(label, 0))
    )
    return (
        f"Based on {numbers.count(report.steps.steady_count)} of {numbers.count(report.steps.count)} steps, from batch "
        f"{numbers.count(report.steps.steady_from)} on." + (f" Left out: {left_out}." if left_out else "")
    )


def by_reason(rules: Iterable[NotEvaluated]) -> list[tuple[str, list[str]]]:
    """Why rules could not judge, each with the rules; mistakes of rules come first."""
    found: dict[str, list[str]] = {}
    for item in rules:
        found.setdefault(plain.sentence(item.why), []).append(plain.name(item.rule))
    return sorted(found.items(), key=lambda group: not group[0].startswith("failed: "))


def not_evaluated(rules: Iterable[NotEvaluated]) -> str:
    """All rules that could not judge in one line, grouped by the reason."""
    groups = by_reason(rules)
    total = sum(len(names) for _, names in groups)
    if total == 0:
        return "Every rule was evaluated."
    reasons = "; ".join(
        f"{why} ({', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} rules'})" for why, names in groups
    )
    return f"{numbers.counted(total, 'rule')}: {reasons}"


def nothing_found(report: Report) -> str:
    """What stands where there is no finding; never reads as "all is well" if something could not be judged."""
    if not report.validity.ok:
        return "No finding: the measurement is not valid."
    if not report.not_evaluated:
        return _QUIET_FINDING
    return f"{_QUIET_FINDING} {len(report.not_evaluated)} could not be evaluated (see below)."


def leading(report: Report) -> Finding | None:
    """The finding that a report leads with; a hint only where its gain is known and no other program ran. Else None."""
    first = next(iter(report.findings), None)
    if first is None or first.severity != "info":
        return first
    return None if first.gain is None or report.validity.conditional else first


def next_step(report: Report) -> str:
    """What to do first."""
    if report.validity.conditional and leading(report) is None:
        return "Re-run on a quiet machine: other programs ran."
    if report.findings:
        return plain.sentence(report.findings[0].advice)
    if not report.validity.ok:
        if report.steps.steady_count >= MIN_STEADY_STEPS:
            return "Measure again: see the caveats at the top."
        few = f"Too short to judge ({numbers.counted(report.steps.count, 'step')})."
        return f"{few} Run at least {MIN_STEADY_STEPS + 10} and leave `windows` at its default."
    if report.verdict.kind == "not-enough-data":
        return f"Run at least {MIN_STEADY_STEPS + 10} steps: there are too few to judge."
    return "Nothing to change was found."
