"""The tables of a comparison; terminal and HTML only draw them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import (
    Change,
    CodeChange,
    Comparison,
    ConditionChange,
    FindingChange,
    Judgement,
    Source,
)
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import PHASE_TERMS, words_of
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import FIGURE, PART_TERMS, Column, Table, name
from lightning_gpuprof.sinks.window_tables.differences import change_table as traced_table

SMALL_RATIO = 0.005
"""Phases and parts below this share of the whole in both runs are not worth a row."""

LARGE_FACTOR = 10
"""A change of so much or more is shown as a factor: percent of it are hard to read."""

MUCH_RATIO = 0.1
"""A change of so much is not left without a word, also where it could not be judged."""

UNJUDGED = "not judged"
NAME_LIMIT = 40
NOT_JUDGED = "not judged: the rule could not be evaluated on the other run"

_SOURCES: Mapping[Source, str] = {
    "journal": "block bootstrap over the steady steps of the journal",
    "interval": "95 % confidence intervals in the report (the run's folder gives better ones)",
    "spread": "spread of the step time in the report, as if steps were independent",
}
_TERMS: Mapping[str, str] = {
    "net wall time": "without what the profiler itself took at start and end",
    **{str(name): words for terms in (PHASE_TERMS, PART_TERMS) for name, words in terms.items()},
}
_SCALED = ("ratio", "bytes", "bytes/s")
"""Units that a value is shown with, so that they stand in no column of their own."""


def change_tables(comparison: Comparison) -> list[Table]:
    """All numbers before and after, by kind; tables without rows are left out."""
    found = [
        total_table(comparison),
        change_table(PHASES, large(comparison.phases)),
        change_table(PARTS, large(comparison.parts)),
        *sample_tables(comparison),
        *window_tables(comparison),
    ]
    return [table for table in found if table.rows]


PHASES, PARTS = "Phases, median per step", "Parts of the wall time"
"""Titles of tables whose rows that are next to nothing in both runs are left out."""


def total_table(comparison: Comparison) -> Table:
    """The totals that are known of one of the runs."""
    return change_table("Totals", [row for row in comparison.changes if row.before or row.after])


def sample_tables(comparison: Comparison) -> list[Table]:
    """What was sampled beside the steps."""
    return [
        change_table("Memory, peaks", comparison.memory),
        change_table("GPUs, medians of their samples", comparison.devices),
        change_table("Host, means of its samples", comparison.host),
    ]


def window_tables(comparison: Comparison) -> list[Table]:
    """What the trace windows hold."""
    windows = comparison.windows
    if windows is None:
        return []
    classes = windows.kernel_classes
    if windows.kernel_total is not None:
        classes = (*classes, windows.kernel_total)
    return [
        traced_table("Classes of kernels per traced step", "class", classes, 0, ""),
        traced_table("Kernels per traced step", "kernel", windows.kernels, windows.left_out, ""),
        traced_table("Operators on the host per traced step", "operator", windows.operators, 0, ""),
    ]


def large(changes: Sequence[Change]) -> list[Change]:
    """The parts of a whole that are worth a row."""
    whole = max(sum(c.before or 0.0 for c in changes), sum(c.after or 0.0 for c in changes))
    return [c for c in changes if max(c.before or 0.0, c.after or 0.0) >= SMALL_RATIO * whole > 0]


def change_table(title: str, changes: Sequence[Change]) -> Table:
    """Numbers before and after, with the interval of the difference and the outcome where they were judged.

    Args:
        title: Of the table.
        changes: Its rows.

    Returns:
        Rows in the order of ``changes``, values as text; intervals, units and results only where a row has them.
    """
    columns: list[Column[Change]] = [
        Column("", lambda row: words_of(row.name), name(NAME_LIMIT), hover=lambda row: _TERMS.get(row.name, "")),
        Column("before", lambda row: _amount(row.before, row.unit), FIGURE),
        Column("after", lambda row: _amount(row.after, row.unit), FIGURE),
        Column("difference", lambda row: _signed(row.difference, row.unit), FIGURE),
        Column("change", _relative, FIGURE),
    ]
    if any(change.lower is not None for change in changes):
        interval = "95 % confidence interval of the difference, widened for the number of phases compared"
        columns.append(Column("interval", _interval, FIGURE, help=interval))
    if any(change.unit not in _SCALED for change in changes):
        columns.append(Column("unit", lambda row: "" if row.unit in _SCALED else row.unit))
    if any(_standing(change) for change in changes):
        columns.append(
            Column(
                "result",
                _standing,
                help="empty: within noise, or not judged",
                hover=lambda row: plain.sentence(row.why) if _standing(row) else "",
            )
        )
    return Table.of(title, changes, *columns, absent="Not measured in either run.")


def unjudged(changes: Sequence[Change]) -> str:
    """Why rows that moved much are not judged, the commonest reason first; empty if there is none."""
    reasons = Counter(change.why for change in changes if _standing(change) == UNJUDGED)
    return "; ".join(plain.sentence(why) for why, _ in reasons.most_common(1))


def _standing(change: Change) -> str:
    """What a row is, in a word. One that moved much and is not judged must not look like noise."""
    if change.outcome in ("improved", "regressed"):
        return str(change.outcome)
    moved = bool(change.before) and abs(change.difference or 0.0) >= MUCH_RATIO * abs(change.before or 0.0)
    return UNJUDGED if change.outcome == "not comparable" and moved else ""


def finding_table(comparison: Comparison) -> Table:
    """What became of each finding, with what it promised beside what its phase or part lost."""
    return Table.of(
        "Findings",
        comparison.findings,
        Column(
            "",
            lambda finding: finding.state,
            help="not judged: the rule could not be evaluated on the other run",
            hover=lambda finding: plain.sentence(finding.summary),
        ),
        Column("rule", lambda finding: finding.rule, name(NAME_LIMIT)),
        Column("about", lambda finding: finding.subject, name(60)),
        Column("promised", promised, help="the speed-up and the time saved per step: as expected, or else at most"),
        Column("achieved", achieved, help="how much shorter its phase or part became, per step"),
        absent="No finding in either run.",
    )


def condition_table(comparison: Comparison, limit: int | None = None) -> Table:
    """Conditions that differ.

    Args:
        comparison: The comparison.
        limit: Most rows; None shows all.

    Returns:
        Rows in the order of the comparison, values as text; none where both runs had the same.
    """
    return Table.of(
        "Conditions that differ",
        comparison.conditions[:limit],
        Column("about", lambda change: change.group),
        Column("condition", lambda change: change.name, name(NAME_LIMIT)),
        Column("before", lambda change: condition_value(change.before)),
        Column("after", lambda change: condition_value(change.after)),
        absent="The same in both runs.",
    )


def code_words(change: CodeChange) -> str:
    """``train.py (2 lines added, 1 removed)``."""
    both = (("added", change.added), ("removed", change.removed))
    first, *second = [(words, lines) for words, lines in both if lines]
    more = "".join(f", {lines} {words}" for words, lines in second)
    begin = "; its first lines" if change.cut else ""
    return f"{plain.name(change.path, 60)} ({numbers.counted(first[1], 'line')} {first[0]}{more}{begin})"


def divided_conditions(
    changes: Sequence[ConditionChange],
) -> tuple[tuple[ConditionChange, ...], tuple[ConditionChange, ...]]:
    """Conditions that differ, and those that are not known of one run, which says nothing of a difference."""
    differing = tuple(change for change in changes if None not in (change.before, change.after))
    return differing, tuple(change for change in changes if change not in differing)


def training_name(judged: Judgement) -> str:
    """``training, samples/s``; ``training`` where no measure of it was compared."""
    return "training" if judged.measure == "training" else f"training, {judged.measure}"


def judgement(judged: Judgement) -> str:
    """The speed-up with its interval and what it is worth."""
    if judged.speedup is None:
        return f"not comparable: {plain.sentence(judged.why)}"
    text = f"{numbers.significant(judged.speedup)}x"
    if judged.lower is not None and judged.upper is not None:
        text += f" (95 % CI: {numbers.significant(judged.lower)}x to {numbers.significant(judged.upper)}x)"
    if judged.noise_ratio is not None:
        text += f", {judged.outcome} (noise: {numbers.exact_percent(judged.noise_ratio)})"
    return f"{text}; {plain.sentence(judged.why)}" if judged.why else text


def predicted(comparison: Comparison) -> str:
    """What the earlier run's findings promised: the best of them, and all together beside what was achieved."""
    if comparison.predicted_speedup_max is None:
        return "no finding of the earlier run predicted a gain"
    best = next(f for f in comparison.findings if f.speedup_max == comparison.predicted_speedup_max)
    text = f"{promised(best)} ({plain.name(best.rule)}: {best.state})"
    sides = (
        ("step", comparison.predicted_step_speedup_max, comparison.training.speedup),
        ("run", comparison.predicted_run_speedup_max, comparison.wall.speedup),
    )
    for what, most, speedup in sides:
        if comparison.expectation is None and most is not None and speedup is not None:
            bound, came = (numbers.significant(times) for times in (most, speedup))
            text += f"; {what}, all findings: up to {bound}x, achieved {came}x"
    return f"{text}; more than promised" if comparison.above_bound else text


def sources(comparison: Comparison) -> str:
    """Where the intervals of the step times are from; empty if there are none."""
    if comparison.sources is None:
        return ""
    before, after = comparison.sources
    if before == after:
        return f"both runs: {_SOURCES[before]}"
    return f"before: {_SOURCES[before]}; after: {_SOURCES[after]}"


def promised(finding: FindingChange) -> str:
    """``about 1.7x, 12 ms/step``, or ``up to 1.9x, 14 ms/step`` where only a bound is known."""
    if finding.speedup_max is None:
        return ""
    sure, times, saved = "up to", finding.speedup_max, finding.saved_ms_per_step
    if (expected := finding.expected) is not None:
        sure, times, saved = "about", expected.speedup, expected.whole_ms - expected.step_ms
    text = f"{sure} {numbers.significant(times)}x"
    return text if saved is None else f"{text}, {numbers.significant(saved)} ms/step"


def achieved(finding: FindingChange) -> str:
    """What its fix brought, as far as it is known."""
    if finding.achieved_ms_per_step is None:
        return ""
    text = f"{numbers.significant(finding.achieved_ms_per_step)} ms/step in {plain.name(words_of(finding.achieved_in))}"
    return f"{text}, more than promised" if finding.above_bound else text


def change_words(change: Change) -> str:
    """One row as a sentence: ``forward: 12.3 -> 42.1 ms (+242.3 %)``."""
    unit = "" if change.unit in _SCALED else f" {change.unit}"
    before, after = (_amount(value, change.unit) for value in (change.before, change.after))
    text = f"{plain.name(words_of(change.name))}: {before} -> {after}"
    text += f"{unit} ({_relative(change)}"
    interval = _interval(change)
    return f"{text}; difference {interval}{unit})" if interval else f"{text})"


def condition_value(value: Value) -> str:
    """A condition as people are shown it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return numbers.count(value)
    return "not known" if value is None else plain.name(str(value), 80)


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return numbers.ABSENT
    if unit == "ratio":
        return numbers.exact_percent(value)
    if unit in ("bytes", "bytes/s"):
        return numbers.size(value) + unit.removeprefix("bytes")
    return numbers.significant(value)


def _signed(value: float | None, unit: str) -> str:
    return numbers.signed(value, lambda size: _amount(size, unit))


def _relative(change: Change) -> str:
    """The change as percent of the earlier value, from tenfold on as a factor: ``x12``."""
    if not change.before or change.difference is None or change.after is None:
        return numbers.ABSENT
    if change.after / change.before >= LARGE_FACTOR:
        return f"x{numbers.significant(change.after / change.before)}"
    return numbers.signed_percent(change.difference / change.before)


def _interval(change: Change) -> str:
    if change.lower is None or change.upper is None:
        return ""
    return f"{_signed(change.lower, change.unit)} to {_signed(change.upper, change.unit)}"
