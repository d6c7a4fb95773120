"""All of a Report for the terminal, in the order of the method: sentences of at most 100 columns, wider tables."""

from collections.abc import Mapping, Sequence
from typing import IO

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.phases import PARTS, STEP_PARTS, Stage, words_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import (
    compile_tables,
    device_tables,
    host_tables,
    input_tables,
    memory_tables,
    method_tables,
    plain,
    tables,
    time_tables,
    trace_summary,
    wording,
)
from lightning_gpuprof.sinks.console import MAX_WIDTH, Bar, print_to, terminal_width
from lightning_gpuprof.sinks.first_screen import reliability
from lightning_gpuprof.sinks.line_tables import timed_note, timed_tables
from lightning_gpuprof.sinks.terminal_screen import reliability_line
from lightning_gpuprof.sinks.terminal_table import BAR_CELLS, draw
from lightning_gpuprof.sinks.terminal_text import (
    SEVERITY_STYLES,
    bullet,
    command,
    grid,
    indented,
    labelled,
    sentence_text,
    title,
)
from lightning_gpuprof.sinks.window_tables.ranks import all_tables

TOP_ROWS = 8
MIN_ROW_RATIO = 0.01
"""Rows of the ledger below this share of the wall time stand together."""
WHOLE_FINDINGS = 5
"""Findings with evidence and advice; of the others, and of those that explain the same time again, a line each."""
SMALL_PART_RATIO = 0.005
"""Parts of the wall time below this share stand together."""


def render(report: Report, *, width: int = MAX_WIDTH, where: Mapping[str, str] | None = None) -> RenderableType:
    """The whole summary as something that rich prints.

    Args:
        report: The report.
        width: Columns that no table passes; sentences take 100 at most, commands are never folded.
        where: What else there is and how to get there, e.g. ``{"HTML": path, "TensorBoard": command}``.

    Returns:
        The header, the verdict, what was measured, findings, and the next step last.
    """
    parts: list[RenderableType] = [
        *_header(report),
        *_verdict(report),
        *_wall(report),
        *_phases(report),
        *_compile(report),
        *_input(report),
        *_devices(report),
        *_windows(report),
        *_findings(report),
        *_method(report),
        *_rest(report),
        *_next_step(report, where or {}),
    ]
    return Group(*(Constrain(part, width if isinstance(part, _Wide) else min(width, MAX_WIDTH)) for part in parts))


def print_report(report: Report, file: IO[str] | None = None, *, where: Mapping[str, str] | None = None) -> None:
    """Print the summary: with colour on a terminal, else (or with ``NO_COLOR``) as plain text.

    Args:
        report: The report.
        file: The stream; None is standard output.
        where: What else there is and how to get there.
    """
    width = terminal_width(file)
    print_to(file, render(report, width=width, where=where), width)


class _Wide(Padding):
    """What takes the whole width of the terminal."""


def _table(table: tables.Table) -> RenderableType:
    return _Wide(draw(table), (0, 0, 0, 2))


def _header(report: Report) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"gpuprof: {wording.title(report)}", style="bold")]
    headline = wording.headline(report)
    lines += [
        indented(sentence_text(text)) for text in (headline, wording.steps(report), wording.steadiness(report)) if text
    ]
    known = reliability(report)
    return [*lines, reliability_line(known), *(labelled("-", caveat, "yellow") for caveat in known.details)]


def _verdict(report: Report) -> list[RenderableType]:
    head = Text.assemble(("\nVerdict: ", "bold"), (report.verdict.kind, "bold magenta"))
    lines: list[RenderableType] = [head, indented(sentence_text(plain.sentence(report.verdict.summary)))]
    if report.verdict.runner_up:
        lines.append(labelled("next largest cause:", plain.sentence(report.verdict.runner_up)))
    return lines


class _WallLine(msgspec.Struct, frozen=True):
    """The parts of the wall time, largest first, each with its bar and percent; a part is never broken in two."""

    shares: Sequence[tuple[str, float, float]]
    stage: Stage

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(no_wrap=True)
        for part, seconds, share in self.shares:
            piece = Text.assemble(
                f"{words_of(part)} ",
                (
                    Bar(share, BAR_CELLS, "").text(options.ascii_only),
                    "blue" if part == STEP_PARTS[self.stage] else "yellow",
                ),
                f" {numbers.exact_percent(share)} ({numbers.seconds(seconds)})",
            )
            if line and line.cell_len + 2 + piece.cell_len > options.max_width:
                yield line
                line = Text(no_wrap=True)
            line = Text.assemble(line, "  ", piece, no_wrap=True) if line else piece
        yield line


def _wall(report: Report) -> list[RenderableType]:
    total = report.wall.total_s
    head = title(f"Where every second went: wall time {numbers.seconds(total)}")
    shares: list[tuple[str, float, float]] = [
        (part, report.wall.parts[part], report.wall.parts[part] / total)
        for part in PARTS
        if total > 0 and report.wall.parts.get(part)
    ]
    if not shares:
        return [head, indented(Text("not measured"))]
    shares.sort(key=lambda entry: -entry[2])
    small = [entry for entry in shares if entry[2] < SMALL_PART_RATIO]
    if len(small) > 1:
        shares = [entry for entry in shares if entry[2] >= SMALL_PART_RATIO]
        shares.append(("other", sum(entry[1] for entry in small), sum(entry[2] for entry in small)))
    lines = [head, indented(_WallLine(shares, wording.stage(report)))]
    if report.ledger:
        ledger = time_tables.ledger_table(report, TOP_ROWS, MIN_ROW_RATIO)
        lines += [Text(""), _table(ledger.without("").without("times"))]
    return lines


def _phases(report: Report) -> list[RenderableType]:
    other_share = tables.OF_STEP if report.steps.period_ms is None else tables.OF_ALL_STEPS
    seen = msgspec.structs.replace(report, phases=tuple(row for row in report.phases if row.total_s > 0))
    lines = [
        title("Phases of the median step, on the host"),
        _table(tables.phase_table(seen).without("total").without(other_share)),
    ]
    if seen.phases:
        lines += [indented(Text(line, style="dim")) for line in wording.empty_phases(report)]
    if report.lines:
        lines += [title("Your lines of code"), _table(tables.line_table(report, TOP_ROWS))]
    for table in timed_tables(report.line_times, report.lines):
        lines += [title(table.title), _table(table)]
    if report.line_times and (said := timed_note(report)):
        lines.append(indented(Text(said, style="dim")))
    return lines


def _compile(report: Report) -> list[RenderableType]:
    summary = compile_tables.summary(report)
    return [Text(""), labelled("torch.compile:", plain.sentence(summary))] if summary else []


def _input(report: Report) -> list[RenderableType]:
    lines = input_tables.lines(report)
    return [title(input_tables.TITLE), *(indented(sentence_text(line)) for line in lines)] if lines else []


def _devices(report: Report) -> list[RenderableType]:
    lines: list[RenderableType] = [title("GPU and host")]
    if report.devices:
        lines += [
            labelled(f"GPU {index}:", device_tables.device_line(device)) for index, device in enumerate(report.devices)
        ]
    else:
        lines.append(indented(Text(tables.device_table(report).absent, style="dim")))
    lines += [labelled("host:", line) for line in host_tables.lines(report)]
    if report.host == HostUse():
        lines.append(indented(Text("host: not measured", style="dim")))
    lines += [labelled(label, text) for label, text in memory_tables.memory_lines(report.memory)]
    return lines


def _overhead(values: Mapping[str, float | None]) -> RenderableType:
    label = "cost of the profiler"
    known = [
        f"{plain.name(numbers.label(field))} {numbers.quantity(field, value)}"
        for field, value in values.items()
        if value is not None
    ]
    missing = [plain.name(numbers.label(field)) for field, value in values.items() if value is None]
    if not known:
        return indented(Text(f"{label}: not measured", style="dim"))
    if missing:
        known.append(f"not measured: {', '.join(missing)}")
    return labelled(f"{label}:", " · ".join(known))


def _windows(report: Report) -> list[RenderableType]:
    lines: list[RenderableType] = [title("Trace windows")]
    if not report.windows:
        lines.append(indented(Text(tables.window_table(report).absent, style="dim")))
    lines += [indented(bullet(plain.sentence(text))) for text in report.rank_windows]
    if report.window_ranks is not None:
        lines += [_table(table) for table in all_tables(report.window_ranks) if table.rows]
    for window in report.windows:
        facts = []
        if window.reason:
            facts.append(plain.sentence(window.reason))
        if window.file:
            facts.append(plain.name(window.file, 70))
        if window.events:
            facts.append(f"{numbers.count(window.events)} events")
            facts.append(f"{numbers.count(window.kernels)} kernels" if window.kernels else "no device activity")
        for device in window.devices:
            if device.window_us > 0:
                facts.append(
                    f"{plain.device(device.device)} busy {numbers.exact_percent(device.busy_us / device.window_us)}, "
                    f"idle {numbers.exact_percent(device.idle_us / device.window_us)}"
                )
        if inflation := tables.window_inflation(window):
            facts.append(f"traced steps took {inflation} as long as normal ones")
        if window.problem:
            facts.append(plain.sentence(window.problem))
        steps = tables.window_steps(window)
        lines.append(labelled(f"steps {steps}:", " · ".join(facts) or "no facts", "yellow" if window.problem else ""))
        if window.analysis is not None:
            lines += [indented(bullet(line)) for line in trace_summary.device_sentences(window.analysis)]
    return lines


def _findings(report: Report) -> list[RenderableType]:
    if not report.findings:
        return [title("Findings"), indented(Text(wording.nothing_found(report)))]
    lines: list[RenderableType] = [title("Findings, most valuable first")]
    whole = 0
    explained: dict[Claim, int] = {}
    for number, finding in enumerate(report.findings, 1):
        same = explained.get(finding.explains) if finding.explains is not None and finding.gain is None else None
        brief = same is not None or whole >= WHOLE_FINDINGS
        lines.append(_brief(number, finding, same) if brief else _finding(number, finding))
        whole += not brief
        if finding.explains is not None:
            explained.setdefault(finding.explains, number)
    return lines


def _head(number: int, finding: Finding) -> Text:
    head = Text.assemble(
        f"{number}. ", (finding.severity, SEVERITY_STYLES[finding.severity]), " ", (plain.name(finding.rule), "bold")
    )
    if finding.subject:
        head.append(f" · {plain.name(finding.subject)}")
    return head


def _brief(number: int, finding: Finding, same: int | None) -> RenderableType:
    """One line, cut at its end: another look at the time of a finding above, or one of many."""
    words = f" (the same time as {same})" if same is not None else ""
    line = _head(number, finding).append(f"{words}: {plain.sentence(finding.summary)}")
    line.no_wrap, line.overflow = True, "ellipsis"
    return indented(line)


def _finding(number: int, finding: Finding) -> RenderableType:
    rows = [
        ("what", plain.sentence(finding.summary)),
        ("evidence", "; ".join(wording.evidence(item) for item in finding.evidence)),
        ("do", plain.sentence(finding.advice)),
        ("gain", wording.gain(finding, finding.gain) if finding.gain else ""),
    ]
    lines = [
        (Text(label, style="dim"), sentence_text(text, "bold" if label == "do" else "")) for label, text in rows if text
    ]
    return indented(Group(_head(number, finding), Padding(grid(lines), (0, 0, 0, 3))))


def _method(report: Report) -> list[RenderableType]:
    lines = method_tables.lines(report)
    return [title(method_tables.TITLE), *(labelled(f"{label}:", text) for label, text in lines)] if lines else []


def _rest(report: Report) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("")]
    if report.not_evaluated:
        lines.append(labelled("not evaluated:", wording.not_evaluated(report.not_evaluated)))
    lines.append(_overhead(report.overhead))
    return lines


def _next_step(report: Report, where: Mapping[str, str]) -> list[RenderableType]:
    lines: list[RenderableType] = [title("Next step"), indented(sentence_text(wording.next_step(report), "bold green"))]
    lines += [command(f"{label}:", plain.visible(place)) for label, place in where.items()]
    return lines
