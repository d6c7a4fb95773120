"""A Report's verdict, findings and summary numbers flow in, the sentences that all sinks share flow out."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_gpuprof.model.finding import Evidence, Gain, NotEvaluated
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, plain

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


def gain(item: Gain) -> str:
    """``up to 1.8x (saves 12 ms/step)``."""
    return (
        f"up to {numbers.significant(item.speedup_max)}x (saves {numbers.significant(item.saved_ms_per_step)} ms/step)"
    )


def validity(report: Report) -> str:
    """Whether the numbers can be relied on, in one line."""
    caveats = len(report.validity.caveats)
    if not report.validity.ok:
        return "Measurement not valid"
    if caveats == 0:
        return "Measurement valid"
    return f"Measurement valid with {caveats} caveat{'s' if caveats > 1 else ''}"


def headline(report: Report) -> str:
    """The run in one line: the conditions that identify it."""
    known = (
        f"{word} {plain.name(str(report.run[key]), 60)}"
        for key, word in HEADLINE_CONDITIONS.items()
        if report.run.get(key) not in (None, "")
    )
    return " · ".join(known)


def steps(report: Report) -> str:
    """How many steps, how fast, in one line."""
    facts = report.steps
    parts = [f"{numbers.count(facts.count)} steps ({numbers.count(facts.optimizer_steps)} optimizer steps)"]
    parts.append(f"wall time {numbers.seconds(report.wall.total_s)}")
    if facts.period_ms is not None:
        tail = numbers.significant(facts.period_ms.p95)
        parts.append(f"median period {numbers.significant(facts.period_ms.median)} ms (p95 {tail} ms)")
    if facts.samples_per_s is not None:
        parts.append(f"{numbers.significant(facts.samples_per_s)} samples/s")
    return " · ".join(parts)


def steadiness(report: Report) -> str:
    """From where on the run is steady and how many steps the statistics rest on."""
    if report.steps.steady_from is None:
        return "The run never became steady."
    return (
        f"Steady from batch {numbers.count(report.steps.steady_from)} on; the statistics rest on "
        f"{numbers.count(report.steps.steady_count)} unprofiled steps."
    )


def not_evaluated(rules: Iterable[NotEvaluated]) -> str:
    """All rules that could not judge in one line, grouped by the reason."""
    by_reason: dict[str, list[str]] = {}
    for item in rules:
        by_reason.setdefault(plain.sentence(item.why), []).append(plain.name(item.rule))
    total = sum(len(names) for names in by_reason.values())
    if total == 0:
        return "Every rule could judge."
    reasons = "; ".join(f"{why} ({', '.join(names)})" for why, names in by_reason.items())
    return f"{total} rule{'s' if total > 1 else ''}: {reasons}"


def nothing_found(report: Report) -> str:
    """What stands where there is no finding; never reads as "all is well" if something could not be judged."""
    if not report.validity.ok:
        return "No finding, because the measurement is not valid."
    if not report.not_evaluated:
        return _QUIET_FINDING
    return f"{_QUIET_FINDING} {len(report.not_evaluated)} could not judge (see below)."


def next_step(report: Report) -> str:
    """What to do first."""
    if report.findings:
        return plain.sentence(report.findings[0].advice)
    if not report.validity.ok:
        return (
            f"Measure again: train for more steps or trace fewer of them ({report.steps.steady_count} were steady and "
            "untraced), and see the caveats at the top."
        )
    if report.verdict.kind == "not-enough-data":
        return "Train for more steps: there are too few to judge."
    return "Nothing to change was found."
