"""The answer of a comparison on the terminal, in at most 25 lines."""

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.text import Text

from lightning_gpuprof.model.comparison import THIS_RUN, Comparison, Outcome
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.comparison_answer import (
    LONGEST_REASON,
    Answer,
    PhaseChange,
    StepTimes,
    Target,
    amount,
    answer,
    run_names,
    signed,
)
from lightning_gpuprof.sinks.console import MAX_WIDTH, Bar
from lightning_gpuprof.sinks.terminal_text import command, diff_lines, grid, labelled, sentence_text

MAX_NOTES = 1

_STYLES: dict[Outcome, str] = {
    "improved": "bold white on green",
    "regressed": "bold white on red",
    "within noise": "bold",
    "not comparable": "bold black on yellow",
}


def render(comparison: Comparison, *, width: int = MAX_WIDTH) -> RenderableType:
    """The first screen of a comparison as something that rich prints.

    Args:
        comparison: The comparison.
        width: Columns that no line passes.

    Returns:
        The verdict, bars of the step times and phases that were measured, facts, commands and notes.
    """
    found = answer(comparison)
    before, after = (plain.shorten(name, (width - 20) // 2) for name in run_names(comparison))
    head = Text(f" {comparison.outcome.upper()} ", _STYLES[comparison.outcome])
    parts: list[RenderableType] = [
        Text.assemble(("gpuprof", "bold"), f"  {before} -> {after}"),
        Text(""),
        grid([(head, sentence_text(found.verdict, "bold"))], gap=2),
    ]
    if found.times is not None:
        parts += [Text(""), _StepBars(found.times, found.target)]
        if found.phases:
            parts += [Text(""), _PhaseBars(found.statistic, found.phases)]
    parts.append(Text(""))
    for label, text in found.facts:
        parts.append(labelled(f"{label}:", text))
        if label == "changed":
            parts += diff_lines(found.diff)
    return Constrain(Group(*parts, *_commands_and_notes(comparison, found)), width)


def _commands_and_notes(comparison: Comparison, found: Answer) -> list[RenderableType]:
    notes = [labelled("note:", plain.cut(note, LONGEST_REASON)) for note in found.notes[:MAX_NOTES]]
    if (left := len(found.notes) - MAX_NOTES) > 0 and not found.diff:  # which has its lines
        notes.append(labelled("note:", f"and {left} more under --all"))
    if comparison.after == THIS_RUN:
        return notes
    before, after = _word(comparison.before), _word(comparison.after)
    worth_a_look = comparison.next_finding is not None or comparison.outcome == "regressed"
    see = [command("see:", f"gpuprof report {after}")] if worth_a_look else []
    return [*see, *notes, command("all:", f"gpuprof compare {before} {after} --all")]


def _word(path: str) -> str:
    """A path as it is typed into a shell."""
    shown = plain.visible(path)
    return f"'{shown}'" if " " in shown else shown


class _StepBars(msgspec.Struct, frozen=True):
    """The step before and after on one scale, and below them the step that was expected or promised."""

    times: StepTimes
    target: Target | None
    """None if the earlier run's findings promised nothing."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        both = (self.times.before_ms, self.times.after_ms)
        labels = [f"  {side:<7} {amount(ms):>6} ms " for side, ms in zip(("before", "after"), both, strict=True)]
        room = options.max_width - max(map(len, labels))
        whole = max(both)
        for label, ms in zip(labels, both, strict=True):
            bar = Bar(ms / whole, room, "").text(options.ascii_only)
            yield Text.assemble(label, (bar, "blue"), no_wrap=True)
        if self.target is None:
            yield Text(f"  ({self.times.name} of steady steps)", style="dim")
            return
        words = self.target.words
        at = len(labels[0]) + max(0, min(room - 1, round(room * self.target.ms / whole) - 1))
        mark = "^" if options.ascii_only else "▲"
        line = f"{mark} {words}" if at + cell_len(words) + 2 <= options.max_width else ""
        shown = " " * at + line if line else f"{words} {mark}".rjust(at + 1)
        yield Text(shown, style="green", no_wrap=True)


class _PhaseBars(msgspec.Struct, frozen=True):
    """Each phase before and after in one bar, all on one scale."""

    statistic: str
    """What the numbers are of the steps."""
    rows: Sequence[PhaseChange]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept, gone, added = "#.+" if options.ascii_only else "█░▒"
        yield Text(
            f"  {self.statistic} ms per step ({kept} both, {gone} gone, {added} added)", style="dim", no_wrap=True
        )
        whole = max(max(row.before_ms, row.after_ms) for row in self.rows)
        names = max(cell_len(words_of(row.name)) for row in self.rows)
        heads = [
            f"  {words_of(row.name):<{names}} {amount(row.before_ms):>6} -> {amount(row.after_ms):>6} "
            f"{signed(row.after_ms - row.before_ms):>7} "
            for row in self.rows
        ]
        room = max(4, options.max_width - max(map(len, heads)))
        for head, row in zip(heads, self.rows, strict=True):
            both = round(room * min(row.before_ms, row.after_ms) / whole)
            more = round(room * max(row.before_ms, row.after_ms) / whole) - both
            other = (gone * more, "green") if row.after_ms < row.before_ms else (added * more, "red")
            yield Text.assemble(head, (kept * both, "blue"), other, no_wrap=True)
