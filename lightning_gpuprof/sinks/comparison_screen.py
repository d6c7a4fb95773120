"""The answer of a comparison in at most 25 lines: did it work, as promised, what changed, what next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import THIS_RUN, Comparison, Judgement, Outcome
from lightning_gpuprof.sinks import comparison_tables, first_screen, plain, wording
from lightning_gpuprof.sinks.console import MAX_WIDTH, Bar
from lightning_gpuprof.sinks.terminal_text import command, labelled, sentence_text

MEAN, MEDIAN = "mean step time", "median step time"
MIN_PHASE_RATIO = 0.03
"""Phases with less of the longer step in both runs are one row."""
MAX_PHASES = 4
MAX_NOTES = 1
LONGEST_NOTE = 160
"""Characters of a reason or a note; all of it is under ``--all``."""
CONDITIONS_CELLS = 110

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
    """
    times = _step_times(comparison)
    before, after = (plain.shorten(plain.visible(name), (width - 20) // 2) for name in _runs(comparison))
    parts: list[RenderableType] = [
        Text.assemble(("gpuprof", "bold"), f"  {before} -> {after}"),
        Text(""),
        _headline(comparison, times),
    ]
    if times is not None:
        parts += [Text(""), _StepBars(times, *_told_before(comparison, times))]
    if times is not None and (rows := _phase_rows(comparison)):
        parts += [Text(""), _PhaseBars("mean" if comparison.mean_phases else "median", rows)]
    parts += [Text(""), *_facts(comparison, times), *_notes(comparison)]
    return Constrain(Group(*parts), width)


def _runs(comparison: Comparison) -> tuple[str, str]:
    return comparison.before, comparison.after


def _word(path: str) -> str:
    """A path as it is typed into a shell."""
    shown = plain.visible(path)
    return f"'{shown}'" if " " in shown else shown


def _step_times(comparison: Comparison) -> tuple[str, float, float] | None:
    """Name and values of the statistic that the judgement rests on: the mean, or the median without samples/s."""
    rows = {row.name: row for row in comparison.changes}
    row = rows.get(MEDIAN if comparison.training.measure == MEDIAN else MEAN)
    return None if row is None or not row.before or not row.after else (row.name, row.before, row.after)


def _promised_ms(comparison: Comparison, times: tuple[str, float, float]) -> float | None:
    most = comparison.predicted_step_speedup_max
    return times[1] / most if most is not None and most > 1 else None


def _told_before(comparison: Comparison, times: tuple[str, float, float]) -> tuple[float | None, str]:
    """The step that the earlier run's report expected, else the one that it promised at best, and its words."""
    found = comparison.expectation
    if found is not None and found.of == "step":
        likely_ms = times[1] / found.expected.speedup
        ends = (_amount(times[1] / end) for end in reversed(found.expected.speedup_range))
        return likely_ms, f"expected: about {_amount(likely_ms)} ms ({' to '.join(ends)})"
    promised_ms = _promised_ms(comparison, times)
    return promised_ms, "" if promised_ms is None else f"promised: at best {_amount(promised_ms)} ms"


def _headline(comparison: Comparison, times: tuple[str, float, float] | None) -> RenderableType:
    line = Text.assemble((f" {comparison.outcome.upper()} ", _STYLES[comparison.outcome]), "  ")
    return line.append_text(sentence_text(_verdict(comparison, times), "bold"))


def _verdict(comparison: Comparison, times: tuple[str, float, float] | None) -> str:
    training, wall = comparison.training, comparison.wall
    if comparison.outcome == "not comparable" and training.speedup is None:
        return _short(_sentence(training.why))
    step = (
        "Step"
        if times is None
        else f"{times[0].split()[0].capitalize()} step {_amount(times[1])} -> {_amount(times[2])} ms"
    )
    decided = _asked(comparison) or (comparison.outcome != training.outcome and wall.outcome == comparison.outcome)
    if _asked(comparison):
        return f"By {', '.join(plain.name(one, 40) for one in comparison.metrics)}. {step}{_times(training)}."
    if decided:
        beside = " The steps did not change." if training.outcome == "within noise" else ""
        return f"{_wall_words(comparison)}{_times(wall)}.{beside}"
    return f"{step}{_times(training)}{_promise(comparison)}."


def _asked(comparison: Comparison) -> bool:
    return comparison.metrics not in ((), ("throughput", "wall"))


def _times(judged: Judgement) -> str:
    """``: 1.9x faster (95 %: 1.8x to 2x)``."""
    if judged.speedup is None:
        return ""
    if judged.outcome not in ("improved", "regressed"):
        limit = "" if judged.noise_ratio is None else f" of {numbers.exact_percent(judged.noise_ratio)}"
        return f": no change beyond the noise{limit}"
    fast = judged.speedup > 1
    ends = [end if fast else 1 / end for end in (judged.lower, judged.upper) if end]
    sure = ""
    if len(ends) == 2:
        low, high = (_rounded_down(end) for end in sorted(ends))
        sure = f" (at least {low}x)" if judged.from_levels else f" (95 %: {low}x to {high}x)"
    return f": {_factor(judged.speedup)}{sure}"


def _factor(speedup: float) -> str:
    return f"{numbers.significant(max(speedup, 1 / speedup))}x {'faster' if speedup >= 1 else 'slower'}"


def _rounded_down(value: float) -> str:
    """A bound never reads as more than it is."""
    return f"{int(value * 100) / 100:g}"


def _promise(comparison: Comparison) -> str:
    most, found = comparison.predicted_step_speedup_max, comparison.expectation
    if comparison.outcome != "improved":
        return ""
    if found is not None and found.of == "step":
        return f", {found.standing}"
    if most is None:
        return ""
    return f", promised at most {numbers.significant(most)}x"


class _StepBars:
    """The step before and after on one scale, and below them the step that was expected or promised.

    Args:
        times: Statistic, before and after, ms.
        told_ms: That step; None if the earlier run's findings promised nothing.
        words: What it is.
    """

    def __init__(self, times: tuple[str, float, float], told_ms: float | None, words: str) -> None:
        self.times = times
        self.told_ms = told_ms
        self.words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name, *both = self.times
        labels = [f"  {side:<7} {_amount(ms):>6} ms " for side, ms in zip(("before", "after"), both, strict=True)]
        room = options.max_width - max(map(len, labels))
        whole = max(both)
        for label, ms in zip(labels, both, strict=True):
            bar = Bar(ms / whole, room, "").text(options.ascii_only)
            yield Text.assemble(label, (bar, "blue"), no_wrap=True)
        if self.told_ms is None:
            yield Text(f"  ({name} of steady steps)", style="dim")
            return
        at = len(labels[0]) + max(0, min(room - 1, round(room * self.told_ms / whole) - 1))
        mark = "^" if options.ascii_only else "▲"
        line = f"{mark} {self.words}" if at + cell_len(self.words) + 2 <= options.max_width else ""
        shown = " " * at + line if line else f"{self.words} {mark}".rjust(at + 1)
        yield Text(shown, style="green", no_wrap=True)


def _phase_rows(comparison: Comparison) -> list[tuple[str, float, float]]:
    """Phases in the order of their change, the small ones as one."""
    known = [(row.name, row.before or 0.0, row.after or 0.0) for row in comparison.mean_phases or comparison.phases]
    whole = max((sum(row[1] for row in known), sum(row[2] for row in known)), default=0.0)
    large = [row for row in known if max(row[1:]) >= MIN_PHASE_RATIO * whole > 0][:MAX_PHASES]
    small = [row for row in known if row not in large]
    if not large:
        return []
    rest = ("other", sum(row[1] for row in small), sum(row[2] for row in small))
    return [*large, rest] if any(rest[1:]) else large


class _PhaseBars:
    """Each phase before and after in one bar, all on one scale.

    Args:
        statistic: What the numbers are of the steps.
        rows: Name, before and after, ms.
    """

    def __init__(self, statistic: str, rows: Sequence[tuple[str, float, float]]) -> None:
        self.statistic = statistic
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept, gone, added = "#.+" if options.ascii_only else "█░▒"
        yield Text(
            f"  {self.statistic} ms per step ({kept} both, {gone} gone, {added} added)", style="dim", no_wrap=True
        )
        whole = max(max(row[1:]) for row in self.rows)
        names = max(cell_len(row[0]) for row in self.rows)
        heads = [
            f"  {name:<{names}} {_amount(before):>6} -> {_amount(after):>6} {_signed(after - before):>7} "
            for name, before, after in self.rows
        ]
        room = max(4, options.max_width - max(map(len, heads)))
        for head, (_, before, after) in zip(heads, self.rows, strict=True):
            both = round(room * min(before, after) / whole)
            more = round(room * max(before, after) / whole) - both
            other = (gone * more, "green") if after < before else (added * more, "red")
            yield Text.assemble(head, (kept * both, "blue"), other, no_wrap=True)


def _facts(comparison: Comparison, times: tuple[str, float, float] | None) -> list[RenderableType]:
    rows: list[tuple[str, str]] = []
    if _asked(comparison):
        judged = [row for row in comparison.judged if row.measure in comparison.metrics]
        rows += [(f"{row.outcome}:", comparison_tables.change_words(row)) for row in judged[:3]]
    if comparison.expectation is not None:
        rows.append(("expected:", wording.came_of(comparison.expectation)))
    elif promise := _achieved_of_predicted(comparison, times):
        rows.append(("achieved:", promise))
    if comparison.wall.speedup is not None and (whole := _wall_words(comparison)):
        rows.append(("whole fit:", f"{whole.removeprefix('Whole fit ')}{_times(comparison.wall)}"))
    rows.append(("changed:", _conditions(comparison)))
    rows.append(("next:", _next(comparison)))
    lines = [labelled(label, _short(text)) for label, text in rows]
    if comparison.after != THIS_RUN and (comparison.next_finding is not None or comparison.outcome == "regressed"):
        lines.append(command("see:", f"gpuprof report {_word(comparison.after)}"))
    return lines


def _achieved_of_predicted(comparison: Comparison, times: tuple[str, float, float] | None) -> str:
    """What was saved of what was promised."""
    promised_ms = None if times is None else _promised_ms(comparison, times)
    if times is None or promised_ms is None or comparison.training.speedup is None:
        return ""
    saved, most = times[1] - times[2], times[1] - promised_ms
    if comparison.above_bound:
        return f"{_amount(saved)} ms a step, more than the promised {_amount(most)} ms: something else changed as well"
    if saved <= 0 or comparison.training.outcome != "improved":
        return f"nothing of the promised {_amount(most)} ms a step"
    return f"{_amount(saved)} of the promised {_amount(most)} ms a step ({round(100 * saved / most)} %)"


def _wall_words(comparison: Comparison) -> str:
    rows = {row.name: row for row in comparison.changes}
    row = rows.get("net wall time") or rows.get("wall time")
    if row is None or row.before is None or row.after is None:
        return ""
    return f"Whole fit {numbers.seconds(row.before)} -> {numbers.seconds(row.after)}"


def _conditions(comparison: Comparison) -> str:
    differing, _ = comparison_tables.divided_conditions(comparison.conditions)
    if not differing:
        return "none of the known conditions; code is not compared"
    shown: list[str] = []
    for change in differing:
        values = (
            plain.shorten(comparison_tables.condition_value(value), 30) for value in (change.before, change.after)
        )
        text = f"{plain.name(change.name, 40)} {' -> '.join(values)}"
        if shown and sum(map(len, shown)) + len(text) > CONDITIONS_CELLS:
            break
        shown.append(text)
    more = len(differing) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _next(comparison: Comparison) -> str:
    found = comparison.next_finding
    if comparison.outcome == "regressed":
        grown = [row for row in _phase_rows(comparison) if row[2] > row[1] and row[0] != "other"]
        longest = max(grown, key=lambda row: row[2] - row[1], default=None)
        words = "" if longest is None else f"; {longest[0]} grew most ({_signed(longest[2] - longest[1])} ms)"
        return f"undo the change{words}"
    if found is None:
        return "nothing: the later run has no finding"
    gain = "" if found.gain is None else f", {first_screen.faster(found.gain.speedup_max)} at most"
    return f"{first_screen.title_of(found)}{gain}"


def _notes(comparison: Comparison) -> list[RenderableType]:
    notes = [_short(_sentence(note)) for note in comparison.notes]
    training = comparison.training
    if training.why and training.outcome != "not comparable":
        notes.insert(0, _short(_sentence(training.why)))
    elif comparison.wall.why and training.why != comparison.wall.why and comparison.wall.outcome == "not comparable":
        notes.insert(0, _short(_sentence(f"{comparison.wall.measure}: {comparison.wall.why}")))
    shown = [labelled("note:", note) for note in notes[:MAX_NOTES]]
    left = len(notes) - MAX_NOTES
    if left > 0:
        shown.append(labelled("note:", f"and {left} more under --all"))
    if comparison.after == THIS_RUN:
        return shown
    return [*shown, command("all:", f"gpuprof compare {_word(comparison.before)} {_word(comparison.after)} --all")]


def _sentence(text: str) -> str:
    text = plain.sentence(text)
    return text[:1].upper() + text[1:]


def _short(text: str) -> str:
    """A text of at most so many characters that ends between words."""
    if len(text) <= LONGEST_NOTE:
        return text
    return f"{text[:LONGEST_NOTE].rsplit(' ', 1)[0].rstrip(',;:')} ..."


def _amount(value: float) -> str:
    return numbers.significant(value)


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{numbers.significant(value)}"
