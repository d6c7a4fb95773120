"""The levels of the method and its checklist as tables and lines."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.finding import CombinedGain
from lightning_gpuprof.model.method import LEVEL_QUESTIONS, Check, Level
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.tables import SENTENCE, Column, Table

TITLE = "How the findings were made"
ALL_CHANGES = "all changes together"
"""Label of their gain, which is not that of the change on the first screen."""

_PRICE = "gpuprof.price_per_gpu_hour"
_SHOWN_ABOVE = frozenset({"conditions", "baseline", "bottleneck", "actions"})
"""Levels whose answer a summary has in its first lines, its verdict and its findings."""

_ABSENT = "This report has no levels of the method."


def state(level: Level) -> str:
    """``holds``, ``does not hold`` or ``folded``."""
    if not level.unfolded:
        return "folded"
    return "holds" if level.holds else "does not hold"


def answer(level: Level) -> str:
    """What a level says, with why it does not hold or is folded."""
    if not level.unfolded:
        return f"not analysed: {plain.sentence(level.why)}"
    said = plain.sentence(level.answer)
    return said if level.holds or not level.why else f"{said} ({plain.sentence(level.why)})"


def level_table(report: Report) -> Table:
    """The levels in order, each with its question and answer."""
    levels = report.method.levels if report.method is not None else ()
    return Table.of(
        TITLE,
        levels,
        Column("level", lambda level: level.name, help="each builds on the ones above"),
        Column("question", lambda level: LEVEL_QUESTIONS[level.name]),
        Column("answer", answer),
        Column(
            "state", state, help="whether the levels below can build on it; folded: not needed after the ones above"
        ),
        absent=_ABSENT,
    )


def detail_tables(report: Report) -> tuple[Table, ...]:
    """One table of lines for each unfolded level that has some."""
    levels = report.method.levels if report.method is not None else ()
    return tuple(
        Table.of(
            f"{level.name}: {LEVEL_QUESTIONS[level.name]}",
            level.lines,
            Column("what is known", lambda line: line, SENTENCE),
            absent="",
        )
        for level in levels
        if level.lines
    )


def check_table(report: Report) -> Table:
    """The checklist: every box with what ticks it, or what is missing."""
    return Table.of(
        f"Checklist: {_ticked(report)}" if report.method is not None else "Checklist",
        _checks(report),
        Column("level", lambda check: check.group),
        Column("box", lambda check: check.text),
        Column("ticked", lambda check: check.state, help="not applicable to this run"),
        Column("evidence", lambda check: check.evidence, SENTENCE),
        absent=_ABSENT,
    )


_NAMED_BESIDE = 0.01
"""Share of what is saved that lies beside the ordinary step, from which the words tell the two apart. Heuristic."""


def lines(report: Report) -> list[tuple[str, str]]:
    """What a short summary adds to verdict and findings: label and sentence."""
    if report.method is None:
        return []
    found: list[tuple[str, str]] = [
        (level.name, answer(level)) for level in report.method.levels if level.name not in _SHOWN_ABOVE
    ]
    if report.combined is not None and sum(finding.gain is not None for finding in report.findings) > 1:
        found.append((ALL_CHANGES, combined(report.combined)))
    if report.target is not None:
        found.append(("target", plain.sentence(report.target.summary)))
    if cost := _cost(report):
        found.append(("cost", cost))
    open_boxes = [check.text for check in _checks(report) if check.state == "no"]
    missing = f"; open: {', '.join(open_boxes)}" if open_boxes else ""
    found.append(("checklist", f"{_ticked(report)}{missing}"))
    return found


def combined(gain: CombinedGain) -> str:
    """``step 27 -> 15 ms at best (up to 1.8x), the run without setup and teardown up to 1.7x``.

    That is where the ordinary step has it all. Else the run comes first, as no finding can then be above the number
    that is read first: ``the run without setup and teardown up to 1.7x (saves 12 of 29 ms per step); the ordinary step
    19 -> 17 ms at best (up to 1.1x)``.
    """
    run = f"{wording.RUN_OF_GAINS} up to {numbers.significant(gain.run_speedup_max)}x"
    ends = [numbers.significant(ms) for ms in (gain.period_ms, gain.period_ms - gain.saved_ms_per_step)]
    step = f"step {ends[0]} -> {ends[1]} ms at best (up to {numbers.significant(gain.step_speedup_max)}x)"
    beside_ms = gain.saved_run_ms_per_step - gain.saved_ms_per_step
    if beside_ms <= _NAMED_BESIDE * gain.saved_run_ms_per_step:
        return f"{step}, {run}"
    of_run = f"{numbers.significant(gain.saved_run_ms_per_step)} of {numbers.significant(gain.run_ms_per_step)} ms"
    inside = f"; the ordinary {step}" if gain.saved_ms_per_step > 0 else ""
    return f"{run} (saves {of_run} per step){inside}"


def _cost(report: Report) -> str:
    cost = report.cost
    if cost is None:
        return "price_per_gpu_hour has no effect: no GPU was used" if report.run.get(_PRICE) is not None else ""
    said = (
        ("{} GPU-hours", cost.gpu_hours),
        ("{} GPU-hours per epoch", cost.gpu_hours_per_epoch),
        ("{} GPU-hours per million samples", cost.gpu_hours_per_million_samples),
        ("price of a million samples {}", cost.price_per_million_samples),
        ("{} J per sample", cost.joules_per_sample),
    )
    return " · ".join(words.format(numbers.significant(value)) for words, value in said if value is not None)


def _checks(report: Report) -> tuple[Check, ...]:
    return report.method.checklist if report.method is not None else ()


def _ticked(report: Report) -> str:
    asked = [check for check in _checks(report) if check.state != "not applicable"]
    return f"{sum(check.state == 'yes' for check in asked)} of {len(asked)} checks passed"
