"""A Comparison flows in, a summary of at most 100 columns flows out to the terminal."""

from __future__ import annotations

from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lightning_gpuprof.model.comparison import Change, Comparison, FindingState, Judgement, Outcome
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.console import MAX_WIDTH, print_to

MAX_CONDITIONS = 20
SMALL_RATIO = 0.005
"""Phases and parts below this share of the whole in both runs are not worth a row."""

_OUTCOME_STYLES: dict[Outcome, str] = {
    "improved": "bold green",
    "regressed": "bold red",
    "within noise": "bold",
    "not comparable": "bold yellow",
}
_STATE_STYLES: dict[FindingState, str] = {"gone": "green", "new": "red", "kept": "", "not judged": "yellow"}


def render(comparison: Comparison, *, width: int = MAX_WIDTH) -> RenderableType:
    """The whole comparison as something that rich prints.

    Args:
        comparison: The comparison.
        width: Columns that no line passes.
    """
    parts: list[RenderableType] = [
        _facts((("before", plain.visible(comparison.before)), ("after", plain.visible(comparison.after)))),
        Text(f"\n{comparison.outcome}", style=_OUTCOME_STYLES[comparison.outcome]),
        _speedups(comparison),
        *_changes("Totals", tuple(c for c in comparison.changes if c.before or c.after)),
        *_divided("Phases, median per step", comparison.phases),
        *_divided("Parts of the wall time", comparison.parts),
        *_findings(comparison),
        *_conditions(comparison),
        *_notes(comparison),
    ]
    return Constrain(Group(*parts), width)


def print_comparison(comparison: Comparison, file: IO[str] | None = None) -> None:
    """Print the comparison: with colour on a terminal, else (or with ``NO_COLOR``) as plain text.

    Args:
        comparison: The comparison.
        file: The stream; None is standard output.
    """
    print_to(file, render(comparison))


def _title(text: str) -> RenderableType:
    return Text(f"\n{text}", style="bold")


def _facts(rows: tuple[tuple[str, str], ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(Text(label, style="dim"), Text(text))
    return Padding(grid, (0, 0, 0, 2))


def _speedups(comparison: Comparison) -> RenderableType:
    predicted = "no finding of the earlier run predicted a gain"
    if comparison.predicted_speedup_max is not None:
        best = next(f for f in comparison.findings if f.speedup_max == comparison.predicted_speedup_max)
        predicted = f"at most {numbers.significant(best.speedup_max)}x ({plain.name(best.rule)}: {best.state})"
    return _facts(
        (
            (f"training, {comparison.training.measure}", _judgement(comparison.training)),
            (comparison.wall.measure, _judgement(comparison.wall)),
            ("predicted", predicted),
        )
    )


def _judgement(judgement: Judgement) -> str:
    if judgement.speedup is None:
        return f"not comparable: {plain.sentence(judgement.why)}"
    text = f"{numbers.significant(judgement.speedup)}x"
    if judgement.lower is not None and judgement.upper is not None:
        text += f" (95 %: {numbers.significant(judgement.lower)}x to {numbers.significant(judgement.upper)}x)"
    if judgement.noise_ratio is not None:
        text += f", {judgement.outcome} (noise: {numbers.percent(judgement.noise_ratio)})"
    return f"{text}; {plain.sentence(judgement.why)}" if judgement.why else text


def _divided(title: str, changes: tuple[Change, ...]) -> list[RenderableType]:
    """The parts of a whole; those that are next to nothing in both runs are only named."""
    whole = max(sum(c.before or 0.0 for c in changes), sum(c.after or 0.0 for c in changes))
    large = tuple(c for c in changes if max(c.before or 0.0, c.after or 0.0) >= SMALL_RATIO * whole > 0)
    small = [c.name for c in changes if c not in large and (c.before or c.after)]
    lines = _changes(title, large)
    if lines and small:
        lines.append(Text(f"  below {numbers.percent(SMALL_RATIO)} in both runs: {', '.join(small)}", style="dim"))
    return lines


def _changes(title: str, changes: tuple[Change, ...]) -> list[RenderableType]:
    if not changes:
        return []
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for heading in ("before", "after", "difference", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit")
    for change in changes:
        relative = numbers.ABSENT
        if change.before and change.difference is not None:
            relative = f"{change.difference / change.before * 100:+,.1f} %"
        difference = numbers.significant(change.difference)
        table.add_row(
            Text(plain.name(change.name)),
            numbers.significant(change.before),
            numbers.significant(change.after),
            f"+{difference}" if change.difference is not None and change.difference > 0 else difference,
            relative,
            change.unit,
        )
    return [_title(title), Padding(table, (0, 0, 0, 2))]


def _findings(comparison: Comparison) -> list[RenderableType]:
    if not comparison.findings:
        return [_title("Findings"), Text("  none in either run")]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for finding in comparison.findings:
        bound = f"up to {numbers.significant(finding.speedup_max)}x" if finding.speedup_max is not None else ""
        table.add_row(
            Text(finding.state, style=_STATE_STYLES[finding.state]),
            Text(plain.name(finding.rule, 40)),
            Text(plain.name(finding.subject, 60)),
            Text(bound),
        )
    lines: list[RenderableType] = [_title("Findings"), Padding(table, (0, 0, 0, 2))]
    if any(finding.state == "not judged" for finding in comparison.findings):
        lines.append(Text("  not judged: the rule could not judge the other run, so that its silence means nothing"))
    return lines


def _conditions(comparison: Comparison) -> list[RenderableType]:
    if not comparison.conditions:
        return [_title("Conditions"), Text("  the same in both runs")]
    rows = tuple(
        (plain.name(change.name, 40), f"{_value(change.before)} -> {_value(change.after)}")
        for change in comparison.conditions[:MAX_CONDITIONS]
    )
    lines: list[RenderableType] = [_title("Conditions that differ"), _facts(rows)]
    left_out = len(comparison.conditions) - MAX_CONDITIONS
    if left_out > 0:
        lines.append(Text(f"  and {left_out} more (see --json)"))
    return lines


def _value(value: Value) -> str:
    if value is None:
        return "not known"
    return plain.name(str(value), 80)


def _notes(comparison: Comparison) -> list[RenderableType]:
    if not comparison.notes:
        return []
    return [_title("Keep in mind"), _facts(tuple(("-", plain.sentence(note)) for note in comparison.notes))]
