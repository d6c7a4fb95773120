"""All numbers of a Comparison on the terminal, as ``gpuprof compare --all`` prints them."""

from collections.abc import Sequence
from typing import IO

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import Change, Comparison, ConditionChange, FindingState, Outcome
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.sinks import comparison_screen, comparison_tables, plain, tables, wording
from lightning_gpuprof.sinks.comparison_tables import SMALL_RATIO
from lightning_gpuprof.sinks.console import MAX_WIDTH, make_console, print_to, terminal_width
from lightning_gpuprof.sinks.terminal_table import draw
from lightning_gpuprof.sinks.terminal_text import diff_lines, grid, indented, sentence_text, title

MAX_CONDITIONS = 20
MAX_UNKNOWN = 3
"""Names of conditions that are known for one run only; the line has their count."""
MAX_WINDOW_ROWS = 6
"""Kernels and operators beyond these are in the page and in the JSON."""

_INDENT = 2
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
        width: Columns that no table passes; sentences take 100 at most.

    Returns:
        Both names, the outcome, then tables from the totals to the windows, findings, conditions, code and notes.
    """
    inner = width - _INDENT
    parts: list[RenderableType] = [
        _facts((("before", plain.visible(comparison.before)), ("after", plain.visible(comparison.after)))),
        Text(f"\n{comparison.outcome}", style=_OUTCOME_STYLES[comparison.outcome]),
        _speedups(comparison),
        *_drawn(comparison_tables.total_table(comparison), inner),
        *_divided(comparison_tables.PHASES, comparison.phases, inner),
        *_divided(comparison_tables.PARTS, comparison.parts, inner),
        *(line for table in comparison_tables.sample_tables(comparison) for line in _drawn(table, inner)),
        *_windows(comparison, inner),
        *_findings(comparison),
        *_conditions(comparison),
        *_code(comparison),
        *_notes(comparison),
    ]
    return Constrain(Group(*parts), width)


def print_comparison(comparison: Comparison, file: IO[str] | None = None, *, everything: bool = False) -> None:
    """Print the comparison: with colour on a terminal, else (or with ``NO_COLOR``) as plain text.

    Args:
        comparison: The comparison.
        file: The stream; None is standard output.
        everything: All numbers instead of the first screen.
    """
    if everything:
        width = terminal_width(file)
        print_to(file, render(comparison, width=width), width)
    else:
        print_to(file, comparison_screen.render(comparison, width=make_console(file).width))


def _facts(rows: Sequence[tuple[str, str]]) -> RenderableType:
    lines = [(Text(label, style="dim"), sentence_text(text)) for label, text in rows]
    return Constrain(indented(grid(lines, gap=2)), MAX_WIDTH)


def _speedups(comparison: Comparison) -> RenderableType:
    rows = [
        (comparison_tables.training_name(comparison.training), comparison_tables.judgement(comparison.training)),
        (comparison.wall.measure, _wall(comparison)),
        ("predicted", comparison_tables.predicted(comparison)),
    ]
    if comparison.expectation is not None:
        rows.insert(2, ("expected", wording.came_of(comparison.expectation)))
    if comparison.cause:
        rows.insert(1, ("where", plain.sentence(comparison.cause)))
    if comparison.way_out:
        rows.append(("next", comparison.way_out))
    if comparison.metrics:
        judged = ", ".join(plain.name(name, 60) for name in comparison.metrics)
        limit = (
            f"; below {numbers.exact_percent(comparison.threshold_ratio)} is noise"
            if comparison.threshold_ratio
            else ""
        )
        rows.append(("judged by", f"{judged}{limit}"))
    if sources := comparison_tables.sources(comparison):
        rows.append(("intervals", sources))
    return _facts(rows)


def _wall(comparison: Comparison) -> str:
    """The judgement of the wall time; a reason that both have is given once."""
    training, wall = comparison.training, comparison.wall
    same = wall.speedup is None and wall.why == training.why
    return "not comparable for the same reason" if same else comparison_tables.judgement(wall)


def _drawn(table: tables.Table, width: int) -> list[RenderableType]:
    if not table.rows:
        return []
    return [title(table.title), indented(draw(table, width))]


def _divided(title: str, changes: tuple[Change, ...], width: int) -> list[RenderableType]:
    """The parts of a whole; those that are next to nothing in both runs are only named."""
    large = comparison_tables.large(changes)
    small = [words_of(c.name) for c in changes if c not in large and (c.before or c.after)]
    lines = _drawn(comparison_tables.change_table(title, large), width)
    if lines and small:
        lines.append(
            indented(Text(f"below {numbers.exact_percent(SMALL_RATIO)} in both runs: {', '.join(small)}", style="dim"))
        )
    if lines and (why := comparison_tables.unjudged(large)):
        lines.append(indented(Text(f"{comparison_tables.UNJUDGED}: {why}", style="dim")))
    return lines


def _windows(comparison: Comparison, width: int) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for table in comparison_tables.window_tables(comparison):
        lines += _drawn(replace(table, rows=table.rows[:MAX_WINDOW_ROWS]), width)
        if len(table.rows) > MAX_WINDOW_ROWS:
            lines.append(Text(f"  and {len(table.rows) - MAX_WINDOW_ROWS} more (see --json, --html)", style="dim"))
    return lines


def _findings(comparison: Comparison) -> list[RenderableType]:
    if not comparison.findings:
        return [title("Findings"), Text("  none in either run")]
    rows = []
    for finding in comparison.findings:
        gain = comparison_tables.promised(finding)
        achieved = comparison_tables.achieved(finding)
        words = [gain, f"achieved {achieved}" if achieved else ""]
        state = Text(finding.state, style=_STATE_STYLES[finding.state])
        texts = (plain.name(finding.rule, 40), plain.name(finding.subject, 60), "; ".join(filter(None, words)))
        rows.append((state, *map(Text, texts)))
    lines: list[RenderableType] = [title("Findings"), indented(grid(rows, gap=2))]
    if any(finding.state == "not judged" for finding in comparison.findings):
        lines.append(indented(Text(comparison_tables.NOT_JUDGED)))
    return lines


def _conditions(comparison: Comparison) -> list[RenderableType]:
    if not comparison.conditions:
        return [title("Conditions"), Text("  the same in both runs")]
    differing, unknown = comparison_tables.divided_conditions(comparison.conditions)
    if not differing:
        return [title("Conditions"), Text("  what is known of both runs is the same"), *_unknown(unknown)]
    lines: list[RenderableType] = [title("Conditions that differ")]
    rows = []
    group = ""
    for change in differing[:MAX_CONDITIONS]:
        head = change.group if change.group != group else ""
        group = change.group
        style = "bold yellow" if change.role == "fixed" else ""
        values = (comparison_tables.condition_value(value) for value in (change.before, change.after))
        rows.append((Text(head, style="dim"), Text(plain.name(change.name, 40), style), Text(" -> ".join(values))))
    lines.append(indented(grid(rows, gap=2)))
    left_out = len(differing) - MAX_CONDITIONS
    if left_out > 0:
        lines.append(Text(f"  and {left_out} more (see --json)"))
    return [*lines, *_unknown(unknown)]


def _unknown(changes: Sequence[ConditionChange]) -> list[RenderableType]:
    """One line about what is known for one run only, so that it does not hide what differs."""
    if not changes:
        return []
    named = ", ".join(plain.name(change.name, 40) for change in changes[:MAX_UNKNOWN])
    more = ", ..." if len(changes) > MAX_UNKNOWN else ""
    return [indented(Text(f"known for one run only: {len(changes)} ({named}{more}; see --json)"))]


def _code(comparison: Comparison) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for change in comparison.code or ():
        lines += [title(comparison_tables.code_words(change)), *diff_lines(change.diff)]
    return lines


def _notes(comparison: Comparison) -> list[RenderableType]:
    if not comparison.notes:
        return []
    return [title("Notes"), _facts(tuple(("-", plain.sentence(note)) for note in comparison.notes))]
