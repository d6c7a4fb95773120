"""The answer at the end of a run in at most 25 lines; the verdict, the change and the gain last, where they are seen.

All numbers are under ``gpuprof report DIR --all`` (:mod:`~lightning_gpuprof.sinks.terminal`).
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.finding import Severity
from lightning_gpuprof.model.phases import COMPUTE_PHASES, STEP_PARTS
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import first_screen, memory_tables, plain
from lightning_gpuprof.sinks.console import MAX_WIDTH, Bar, make_console, print_to
from lightning_gpuprof.sinks.first_screen import FirstScreen, Opportunity, Reliability
from lightning_gpuprof.sinks.step_bars import OTHER, StepBar
from lightning_gpuprof.sinks.terminal_text import command, diff_lines, grid, indented, labelled, sentence_text

MAX_LINES = 25
_UNRELIABLE = {"conditional": "LESS RELIABLE", "not reliable": "NOT RELIABLE"}
"""What stands in the place of OK."""
_LEFT_OUT = ("bridge", "second", "others", "outside", "tab", "why conditional", "lines", "page")
"""In this order, where there is no room."""
_PLACES = {"HTML": "page", "TensorBoard": "tab"}
"""What else there is, and what stands before it."""
MAX_SEGMENTS = 4
MAX_OTHERS = 2
MAX_CODE = 6
"""Lines of a diff."""
LONGEST_LINES = 2
"""Of a sentence; all of it is under ``--all``."""
LABEL_WIDTH = 11
"""Columns before a sentence."""
RAGGED = 5
"""Columns that an indented line leaves empty, on average: words are not cut."""
TABLE_WIDTH = 40
"""Columns of the labels and numbers beside a bar."""

_HEADS: dict[Severity | None, str] = {
    "critical": "bold white on red",
    "warning": "bold black on yellow",
    "info": "bold black on cyan",
    None: "bold white on green",
}
_RULE = re.compile(r"[a-z][a-z0-9-]{0,60}")
"""A rule's id as a command takes it; a plugin may call itself anything."""
_ASIDE = re.compile(r" \([^()]*\)")
_COMPUTE = frozenset((*COMPUTE_PHASES, *STEP_PARTS.values()))


def print_screen(
    report: Report, folder: Path, file: IO[str] | None = None, *, where: Mapping[str, str] | None = None
) -> None:
    """Print the first screen: with colour on a terminal, else (or with ``NO_COLOR``) as plain text.

    Args:
        report: The report.
        folder: Of the run.
        file: The stream; None is standard output.
        where: What else there is and how to get there.
    """
    print_to(file, render(report, folder, width=make_console(file).width, where=where))


def render(
    report: Report, folder: Path, *, width: int = MAX_WIDTH, where: Mapping[str, str] | None = None
) -> RenderableType:
    """The first screen as something that rich prints.

    Args:
        report: The report.
        folder: Of the run, for the commands.
        width: Columns that no line passes.
        where: What else there is and how to get there, e.g. ``{"HTML": path}``.

    Returns:
        Made for the width of the console that prints it, at most 25 lines where that is possible.
    """
    return Constrain(_Screen(report, folder, where or {}), width)


class _Screen:
    """The first screen without what makes it longer than 25 lines: least of all is missed what is under ``--all``."""

    def __init__(self, report: Report, folder: Path, where: Mapping[str, str]) -> None:
        self.report, self.folder, self.where = report, folder, where
        self.screen = first_screen.first_screen(report, folder)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for left_out in range(len(_LEFT_OUT) + 1):
            parts = Group(*self._parts(options.max_width, frozenset(_LEFT_OUT[:left_out])))
            if len(console.render_lines(parts, options, pad=False)) <= MAX_LINES:
                break
        yield parts

    def _parts(self, width: int, left_out: frozenset[str]) -> list[RenderableType]:
        screen, report = self.screen, self.report
        parts = [*_head(screen, width), *_notes(screen, report, width, why="why conditional" not in left_out)]
        parts += _lines(screen.timed if "lines" not in left_out else "")
        if screen.severity is not None:
            parts += [Text(""), *_bars(screen), *_lines(screen.outside if "outside" not in left_out else "")]
            parts += _other_opportunities(
                screen, 0 if "others" in left_out else 1 if "second" in left_out else MAX_OTHERS
            )
        elif screen.today is not None:
            parts.append(_line(_one_line(screen, screen.today, width)))
        if screen.severity is None:
            hints = _hints(screen, 0 if "others" in left_out else MAX_OTHERS)
            parts += [*([] if screen.opportunities else [Text("")]), *_answer(screen, width, bridge=False), *hints]
        else:
            parts += [Text(""), *_answer(screen, width, bridge="bridge" not in left_out)]
        explained = screen.severity is not None or _says_its_hint(screen)
        places = {_PLACES[name]: place for name, place in self.where.items() if name in _PLACES}
        places = {name: place for name, place in places.items() if name not in left_out}
        return [*parts, *_places(report, self.folder, places, explained=explained)]


def _head(screen: FirstScreen, width: int) -> list[RenderableType]:
    """The run, the goal, and whether the numbers can be relied on; where there is no room, the model goes first."""
    meta = list(screen.meta)
    while len(meta) > 1 and sum(cell_len(part) + 3 for part in meta) + len("gpuprof  ") > width:
        meta.pop(1)
    return [
        Text.assemble(("gpuprof", "bold"), "  ", " · ".join(meta), no_wrap=True, overflow="ellipsis"),
        *_lines(screen.goal),
        reliability_line(screen.reliability),
    ]


class _Marked(msgspec.Struct, frozen=True):
    """Words after a mark; in a stream without the mark's character after an ASCII one."""

    mark: str
    words: str
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = {"✓": "ok:", "…": "...", "✗": "x"}.get(self.mark, self.mark) if options.ascii_only else self.mark
        yield sentence_text(f"{mark} {self.words}", self.style)


def reliability_line(known: Reliability) -> RenderableType:
    """Whether the numbers can be relied on, after its mark."""
    style = {"ok": "", "not reliable": "bold red"}.get(known.kind, "yellow")
    return indented(_Marked(known.mark, known.words, style))


def _notes(screen: FirstScreen, report: Report, width: int, *, why: bool) -> list[RenderableType]:
    """Where memory ran out, how the run ended early, and why numbers are conditional where no headline says it."""
    end = report.memory.out_of_memory
    lines: list[RenderableType] = [] if end is None else [_line(f"out of memory: {memory_tables.end_line(end)}")]
    lines += [indented(sentence_text(f"! {_short(text, width)}", "bold red")) for text in screen.ended]
    if (
        not why
        or screen.reliability.kind not in _UNRELIABLE
        or screen.ended
        or (report.validity.ok and not report.findings)
    ):
        return lines
    return [
        *lines,
        *(indented(sentence_text(_short(text, width, before=RAGGED))) for text in screen.reliability.details[:1]),
    ]


def _bars(screen: FirstScreen) -> list[RenderableType]:
    if screen.today is None:
        return []
    return [
        Text.assemble("  ", (screen.shown(screen.today.ms), "bold"), f"  {screen.bar_name}"),
        _Segments(screen.today, screen.shown),
        *_cause(screen),
    ]


def _cause(screen: FirstScreen) -> list[RenderableType]:
    """What the fix saves, where it is a part of several segments."""
    if not screen.cause or screen.today is None or screen.saved_ms is None:
        return []
    share = numbers.percent(screen.saved_ms / screen.today.ms)
    return [_line(f"saved by the fix: {screen.cause} {screen.shown(screen.saved_ms)}, {share}")]


class _Segments(msgspec.Struct, frozen=True):
    """The parts of a step, largest first, each with its time, its share and a bar."""

    bar: StepBar
    shown: Callable[[float], str]
    """A time of it in words."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _rows(self.bar)
        names = max(cell_len(label) for _, label, _ in rows)
        for key, label, ms in rows:
            ratio = ms / self.bar.ms if self.bar.ms > 0 else 0.0
            head = f"  {label:<{names}} {self.shown(ms):>10} {numbers.percent(ratio):>6}  "
            bar = Bar(ratio, max(4, options.max_width - max(TABLE_WIDTH, len(head))), "").text(options.ascii_only)
            yield Text.assemble(head, (bar, "blue" if key in _COMPUTE else "yellow"), no_wrap=True)


def _rows(bar: StepBar) -> list[tuple[str, str, float]]:
    """Key, label and time of the largest segments, and of all others together."""
    large = sorted((s for s in bar.segments if s.key != OTHER), key=lambda s: -s.ms)[:MAX_SEGMENTS]
    rest = bar.ms - sum(segment.ms for segment in large)
    rows = [(segment.key, segment.label, segment.ms) for segment in large]
    return [*rows, (OTHER, "other", rest)] if rest > 0.005 * bar.ms else rows


def _one_line(screen: FirstScreen, bar: StepBar, width: int) -> str:
    """The step and as many of its parts as there is room for."""
    line = f"{screen.bar_name} {screen.shown(bar.ms)}"
    rows = _rows(bar) if bar.ms > 0 else []
    for mark, (_, label, ms) in zip((":", *"," * MAX_SEGMENTS), rows, strict=False):
        part = f"{mark} {label} {numbers.percent(ms / bar.ms)}"
        if cell_len(line + part) > width - 2:
            break
        line += part
    return line


def _other_opportunities(screen: FirstScreen, most: int) -> list[RenderableType]:
    others = screen.others
    shown: Sequence[tuple[int, Opportunity]] = others[:most]
    lines: list[RenderableType] = [Text("")] if len(screen.opportunities) > 1 else []
    same_time = screen.same_time
    if same_time and most:
        lines.append(indented(sentence_text(same_time)))
        same_time = ""
    for number, one in shown:
        gain = f": {one.faster}" if one.faster else ""
        if one.rest_of is not None:
            gain = f": no more than the rest that {one.rest_of} leaves"
        same = f" (the same time as {one.same_as})" if one.same_as not in (None, number) else ""
        line = Text.assemble(f"  {number}. ", (one.severity, "dim"), f" {one.title}{gain}{same}")
        line.no_wrap, line.overflow = True, "ellipsis"
        lines.append(line)
    left = len(others) - len(shown)
    words = (same_time, f"and {numbers.counted(left, 'more finding')}" if left else "", screen.checks.words)
    return [*lines, _line("; ".join(word for word in words if word))]


def _says_its_hint(screen: FirstScreen) -> bool:
    """Whether the headline of a run with nothing to gain is its one hint."""
    titles = [one.title for one in screen.opportunities]
    return screen.severity is None and len(titles) == 1 and titles[0] in screen.headline


def _hints(screen: FirstScreen, most: int) -> list[RenderableType]:
    """What can be changed on a run with nothing to gain, unless the headline says it."""
    if _says_its_hint(screen):
        return []
    lines = [labelled("hint:", f"{one.title} (explain {one.rule})") for one in screen.opportunities[:most]]
    left = len(screen.opportunities) - len(lines)
    return [*lines, *([_line(f"and {numbers.counted(left, 'more hint')}")] if left else [])]


def _answer(screen: FirstScreen, width: int, *, bridge: bool) -> list[RenderableType]:
    head = "OK" if screen.severity is None else screen.severity.upper()
    if screen.reliability.is_too_little and screen.severity is None:
        head = "WARMING UP" if screen.reliability.kind == "warming up" else "TOO SHORT"
    elif screen.severity is None:
        head = _UNRELIABLE.get(screen.reliability.kind, head)
    style = _HEADS["warning" if head in _UNRELIABLE.values() else screen.severity]
    lines: list[RenderableType] = [grid([(Text(f" {head} ", style), sentence_text(screen.headline, "bold"))], gap=2)]
    if screen.severity is None:
        few = screen.reliability.is_too_little
        sentence = screen.sentence
        if cell_len(sentence) > width - 2:
            sentence = _short(f"{_ASIDE.sub('', sentence).split('; ')[0].rstrip('.')}.", width, 1)
        return [*lines, *(_line(text) for text in (sentence, "" if few else screen.checks.words) if text)]
    if screen.sentence:
        lines.append(indented(sentence_text(_short(screen.sentence, width))))
    fix = screen.fix
    if fix is not None:
        lines.append(
            labelled("change:", fix.where or fix.place) if fix.diff else labelled("do:", _short(fix.advice, width))
        )
        if fix.diff:
            lines += diff_lines([f"{mark} {line}" for mark, line in fix.diff[:MAX_CODE]])
        elif fix.code:
            lines += [Text(f"    {fix.where}", "dim", no_wrap=True, overflow="ellipsis"), *diff_lines([fix.code])]
        if fix.effect:
            lines.append(labelled("note:", _short(numbers.capital(fix.effect.removeprefix("Trade-off: ")), width)))
    if screen.gain:
        whole = f", the whole run {screen.whole_run}" if screen.scale == "step" and screen.whole_run else ""
        whole += f" ({screen.bridge})" if screen.bridge and bridge else ""
        what = "per step " if screen.scale == "step" else "the whole run "
        lines.append(labelled("gain:", f"{what}{screen.gain}{whole}", "bold"))
    if screen.tried:
        lines.append(labelled("tried:", screen.tried))
    if screen.proof:
        lines.append(command("verify:", _relative_paths(screen.proof)))
    return lines


def _places(report: Report, folder: Path, where: Mapping[str, str], *, explained: bool) -> list[RenderableType]:
    run = _relative_paths(plain.visible(str(folder.parent if folder.name == "gpuprof" else folder)))
    rank = report.run.get("rank")
    lines = [command("all:", f"gpuprof report {run} --all{f' --rank {rank}' if rank else ''}")]
    if explained and report.findings and _RULE.fullmatch(rule := report.findings[0].rule):
        lines.append(command("why:", f"gpuprof explain {rule}"))
    return lines + [command(f"{name}:", _relative_paths(plain.visible(place))) for name, place in where.items()]


def _relative_paths(text: str) -> str:
    """Paths as the reader would type them here."""
    here = str(Path.cwd())
    return " ".join("." if word == here else word.removeprefix(f"{here}{os.sep}") for word in text.split(" "))


def _lines(text: str) -> list[RenderableType]:
    return [_line(text)] if text else []


def _line(text: str) -> RenderableType:
    """A line of its own, cut at its end where it has no room."""
    return indented(Text(text, no_wrap=True, overflow="ellipsis"))


def _short(text: str, width: int, lines: int = LONGEST_LINES, *, before: int = LABEL_WIDTH) -> str:
    """A text of at most so many lines that ends between sentences, else between clauses, else between words."""
    return plain.cut(text, lines * (width - before))
