"""A Report flows in, one HTML page that opens from disk without any network flows out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import msgspec

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, PHASES
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, plain, tables, time_tables, wording
from lightning_gpuprof.sinks.figures import StepFigure, step_figure
from lightning_gpuprof.sinks.files import write_whole

FILE_NAME = "report.html"
CALLBACK_ROWS = 50
LEDGER_ROWS = 12

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The browser itself refuses every request of the page to any host."""

_GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "step",
        "one batch of the loop that was measured, from the start of its fetch to the start of the next fetch",
    ),
    ("optimizer step", "one update of the weights; the axis of loggers and of windows="),
    ("period", "time from step start to next step start: throughput; the phases sum to it"),
    ("steady", "after warm-up: from here on the period is at its level and quiet"),
    ("regime", "a stretch of steps that keeps one level; the next one differs by more than a fifth"),
    ("95 % interval", "where the value would lie in 95 of 100 such runs; from a block bootstrap of the steady steps"),
    ("window", "optimizer steps that were traced with torch.profiler; their times are inflated by profiling"),
    ("busy", "union of the device's work, kernels and copies, over all streams; idle is the rest"),
    ("utilization", "NVML's share of time in which a kernel was running; says nothing about efficiency"),
    ("gain", "upper bound of the speed-up T / (T - R) if all recoverable time R of the period T went away"),
    ("evidence", "a measured number and the limit that it is held against"),
    ("not evaluated", "the rule lacked a signal; this is never the same as nothing found"),
)


SECTIONS: tuple[tuple[str, str], ...] = (
    ("verdict", "Verdict"),
    ("findings", "Findings"),
    ("wall", "Wall time"),
    ("ledger", "Every second"),
    ("steps", "Step time"),
    ("phases", "Phases"),
    ("callbacks", "Callbacks"),
    ("gpus", "GPUs"),
    ("host", "Host"),
    ("windows", "Windows"),
    ("not-evaluated", "Not evaluated"),
    ("overhead", "Cost"),
    ("conditions", "Conditions"),
    ("terms", "Terms"),
)


def write(report: Report, target: Path) -> None:
    """Write ``report.html`` whole or not at all.

    Args:
        report: The report.
        target: The file.

    Raises:
        ReportError: The file cannot be written.
    """
    write_whole(target, render_html(report).encode())


def render_html(report: Report) -> str:
    """The page: all tables as HTML, the figure drawn by Plotly's script from the installed package.

    Args:
        report: The report.
    """
    figure = step_figure(report)
    body = [
        _header(report),
        _navigation(),
        "<main>\n",
        _verdict(report),
        _tiles(report),
        _findings(report),
        _wall(report),
        _ledger(report),
        _figure(figure),
        _phases(report),
        _section("callbacks", tables.callback_table(report, CALLBACK_ROWS)),
        _section("gpus", tables.device_table(report)),
        _section("host", tables.host_table(report)),
        _section("memory", tables.memory_table(report)),
        _windows(report),
        _section("not-evaluated", tables.not_evaluated_table(report)),
        _section("overhead", tables.overhead_table(report)),
        _folded("conditions", tables.condition_table(report)),
        _terms(),
    ]
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>gpuprof: {escape(report.verdict.kind)}</title>\n",
            f"<style>\n{_own('report.css')}</style>\n</head>\n<body>\n",
            *body,
            _scripts(figure),
            "</body>\n</html>\n",
        )
    )


def _own(name: str) -> str:
    """A file of this package that belongs to the page."""
    return files("lightning_gpuprof.sinks").joinpath(name).read_text(encoding="utf-8")


def _scripts(figure: StepFigure | None) -> str:
    if figure is None:
        return ""
    from plotly.offline import get_plotlyjs  # a second to import, and only pages with a figure need it

    return "".join(
        (
            f'<script type="application/json" id="step-data">{script_json(figure)}</script>\n',
            # HTML ends a script at the first "</script", wherever it stands.
            "<script>",
            str(get_plotlyjs()).replace("</script", "<\\/script"),
            "</script>\n",
            f"<script>\n{_own('report.js')}</script>\n",
        )
    )


def script_json(value: object) -> str:
    """JSON of anything that msgspec encodes; it can stand inside a script element whatever its strings hold."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _text(data: str) -> str:
    """Data inside running text: escaped, and without influence on the direction of what follows."""
    return f"<bdi>{escape(data)}</bdi>"


def _term(text: str, term: str) -> str:
    """A word that is explained on hover; all of them are also in the list of terms, which needs no pointer."""
    shown = _text(text)
    return f'<abbr title="{escape(term)}">{shown}</abbr>' if term else shown


def _header(report: Report) -> str:
    state = "ok" if report.validity.ok else "bad"
    lines = [
        f"<header>\n<h1>{wording.title(report).capitalize()}</h1>\n",
        f"<p>{_text(wording.headline(report))}</p>\n" if wording.headline(report) else "",
        f"<p>{_text(wording.steadiness(report))}</p>\n",
        f'<p class="validity {state}">{escape(wording.validity(report))}</p>\n',
    ]
    if report.validity.caveats:
        items = "".join(f"<li>{_text(plain.sentence(caveat))}</li>\n" for caveat in report.validity.caveats)
        lines.append(f'<ul class="caveats">\n{items}</ul>\n')
    return "".join((*lines, "</header>\n"))


def _navigation() -> str:
    links = "".join(f'<a href="#{anchor}">{name}</a>\n' for anchor, name in SECTIONS)
    return f'<nav aria-label="Sections">\n{links}</nav>\n'


def _verdict(report: Report) -> str:
    runner_up = ""
    if report.verdict.runner_up:
        runner_up = f"<p>Runner-up: {_text(plain.sentence(report.verdict.runner_up))}</p>\n"
    return (
        '<section id="verdict" class="verdict">\n'
        f"<h2>Verdict: <strong>{escape(report.verdict.kind)}</strong></h2>\n"
        f'<p class="lead">{_text(plain.sentence(report.verdict.summary))}</p>\n{runner_up}'
        f'<p class="next"><span>Next step</span> {_text(wording.next_step(report))}</p>\n</section>\n'
    )


def _tiles(report: Report) -> str:
    steps, period = report.steps, report.steps.period_ms
    gains = [finding.gain.speedup_max for finding in report.findings if finding.gain is not None]
    tiles: list[tuple[str, str, str, str]] = [
        (
            "steps",
            numbers.count(steps.count),
            f"{numbers.count(steps.steady_count)} steady",
            "batches that were measured",
        ),
        (
            "wall time",
            numbers.seconds(report.wall.total_s),
            "",
            f"of {wording.stage(report)}, from its call to its end",
        ),
        (
            "median period",
            numbers.quantity("period_ms", period.median if period else None),
            _sure(steps.period_median_interval_ms),
            "time from step start to next step start; half of the steady steps are below; below it the 95 % interval",
        ),
        (
            "throughput",
            numbers.with_unit(steps.samples_per_s, "samples/s"),
            _sure(steps.samples_per_s_interval),
            "samples of a batch, of all ranks, over the mean period of steady steps; below it the 95 % interval",
        ),
        (
            "largest gain",
            f"≤ {numbers.significant(max(gains))}x" if gains else numbers.ABSENT,
            "",
            "upper bound of the speed-up that one finding's cure can bring",
        ),
    ]
    cells = "".join(
        f'<div class="tile"><dt>{_term(name, term)}</dt><dd>{_amount(value)}</dd>'
        + (f'<dd class="note">{escape(note)}</dd>' if note else "")
        + "</div>\n"
        for name, value, note, term in tiles
    )
    return f'<dl class="tiles">\n{cells}</dl>\n'


def _sure(ends: tuple[float, float] | None) -> str:
    shown = numbers.interval(ends)
    return f"95 %: {shown}" if shown else ""


def _amount(shown: str) -> str:
    """A number with its unit in smaller letters."""
    number, _, unit = shown.rpartition(" ")
    return f"{escape(number)} <small>{escape(unit)}</small>" if number[-1:].isdigit() else escape(shown)


def _findings(report: Report) -> str:
    if not report.findings:
        return (
            f'<section id="findings">\n<h2>Findings</h2>\n<p>{escape(wording.nothing_found(report))}</p>\n</section>\n'
        )
    cards = "".join(_finding(finding) for finding in report.findings)
    return f'<section id="findings">\n<h2>Findings, most valuable first</h2>\n{cards}</section>\n'


def _finding(finding: Finding) -> str:
    subject = f' <span class="subject">{_text(plain.name(finding.subject))}</span>' if finding.subject else ""
    gain = wording.gain(finding.gain) if finding.gain is not None else "no bound known"
    gain_term = _term("Gain", "upper bound T / (T - R), from intervals that do not overlap")
    rows = "".join(
        "<tr>"
        f"<td>{_text(plain.name(item.name))}</td>"
        f'<td class="{"" if isinstance(item.value, str) else "n"}">{_text(wording.evidence_value(item))}</td>'
        f'<td class="n">{_text(wording.evidence_limit(item))}</td><td>{_text(plain.sentence(item.source))}</td>'
        "</tr>\n"
        for item in finding.evidence
    )
    evidence = ""
    if rows:
        evidence = (
            '<div class="scroll"><table>\n<thead><tr><th scope="col">evidence</th><th scope="col" class="n">value</th>'
            '<th scope="col" class="n">limit</th><th scope="col">source of the limit</th></tr></thead>\n'
            f"<tbody>\n{rows}</tbody>\n</table></div>\n"
        )
    return (
        f'<article class="finding {finding.severity}">\n'
        f'<h3><span class="severity">{finding.severity}</span> {_text(plain.name(finding.rule))}{subject}</h3>\n'
        f"<p>{_text(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Do</span> {_text(plain.sentence(finding.advice))}</p>\n'
        f'<p class="gain">{gain_term}: {escape(gain)}'
        f" · {_term('confidence', 'how sure the rule is, 0 to 100 %')} {finding.confidence * 100:.0f} %</p>\n"
        f"{evidence}</article>\n"
    )


def _wall(report: Report) -> str:
    total = report.wall.total_s
    shares = [(part, report.wall.parts.get(part, 0.0) / total) for part in PARTS] if total > 0 else []
    return _section("wall", tables.wall_table(report), _stack("Wall time by part", shares))


def _ledger(report: Report) -> str:
    shown = time_tables.ledger_table(report, LEDGER_ROWS)
    whole = time_tables.ledger_table(report, len(report.ledger))
    more = ""
    if len(whole.rows) > len(shown.rows):
        more = f"<details>\n<summary>All {len(report.ledger)} rows</summary>\n{_table(whole)}</details>\n"
    return _section("ledger", shown, "", more)


def _phases(report: Report) -> str:
    stack = _stack("Time of all steps by phase", [(row.phase, row.share) for row in report.phases])
    period = f"<h3>Period of a step</h3>\n{_table(tables.period_table(report))}"
    for table in (time_tables.regime_table(report), time_tables.label_table(report)):
        if table.rows:
            period += f"<h3>{escape(table.title)}</h3>\n{_table(table)}"
    return _section("phases", tables.phase_table(report), stack, period)


def _stack(what: str, shares: Sequence[tuple[str, float]]) -> str:
    """One bar that shows how a whole is divided."""
    shown = [(key, share) for key, share in shares if share > 0]
    if not shown:
        return ""
    words = ", ".join(f"{key} {numbers.percent(share)}" for key, share in shown)
    pieces = "".join(
        f'<span class="c-{key}" style="width:{share * 100:.3f}%" title="{key} {numbers.percent(share)}"></span>'
        for key, share in shown
    )
    return f'<div class="stack" role="img" aria-label="{escape(f"{what}: {words}")}">{pieces}</div>\n'


def _figure(figure: StepFigure | None) -> str:
    if figure is None:
        return (
            '<section id="steps">\n<h2>Step time over steps</h2>\n'
            '<p class="absent">The report holds no curves of the steps.</p>\n</section>\n'
        )
    stretch = (figure.batch[-1] - figure.batch[0] + 1) / len(figure.batch)
    thinned = ""
    if stretch >= 2:
        thinned = f"<p>Each point is the longest of about {numbers.significant(stretch)} steps.</p>\n"
    return (
        f'<section id="steps">\n<h2>Step time over steps, stacked by phase <small>ms</small></h2>\n{thinned}'
        '<p class="hint" id="step-hint">The figure needs JavaScript; all its numbers are in the tables.</p>\n'
        '<button type="button" id="step-scale" hidden></button>\n<div id="step-figure"></div>\n</section>\n'
    )


def _windows(report: Report) -> str:
    details = "".join(
        f"<details>\n<summary>{escape(table.title)}</summary>\n{_table(table)}</details>\n"
        for window in report.windows
        for table in (tables.operator_table(window), tables.kernel_table(window))
        if table.rows
    )
    return _section("windows", tables.window_table(report), "", details)


def _section(anchor: str, table: tables.Table, before: str = "", after: str = "") -> str:
    return f'<section id="{anchor}">\n<h2>{escape(table.title)}</h2>\n{before}{_table(table)}{after}</section>\n'


def _folded(anchor: str, table: tables.Table) -> str:
    return (
        f'<section id="{anchor}">\n<details>\n<summary><h2>{escape(table.title)}</h2></summary>\n'
        f"{_table(table)}</details>\n</section>\n"
    )


def _terms() -> str:
    phases = ((f"{phase} (phase)", PHASE_TERMS[phase]) for phase in PHASES)
    parts = ((f"{part} (part of the wall time)", tables.PART_TERMS[part]) for part in PARTS)
    entries = (*_GLOSSARY, *phases, *parts)
    items = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>\n" for word, meaning in entries)
    return (
        '<section id="terms">\n<details>\n<summary><h2>What the words mean</h2></summary>\n'
        f"<dl>\n{items}</dl>\n</details>\n</section>\n</main>\n"
    )


def _table(table: tables.Table) -> str:
    if not table.rows:
        return f'<p class="absent">{escape(table.absent)}</p>\n'
    head = "".join(_heading(column) for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(column, cell) for column, cell in zip(table.columns, row, strict=True))}</tr>\n"
        for row in table.rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n'


def _heading(column: tables.Column) -> str:
    if column.bar:
        return '<th scope="col" class="b"><span class="hidden">as a bar</span></th>'
    unit = f" <small>{escape(column.unit)}</small>" if column.unit else ""
    kind = ' class="n"' if column.numeric else ""
    return f'<th scope="col"{kind}>{_term(column.title, column.term)}{unit}</th>'


def _cell(column: tables.Column, cell: tables.Cell) -> str:
    if column.bar:
        if not cell.ratio:
            return '<td class="b"></td>'
        width = min(max(cell.ratio, 0.0), 1.0) * 100
        return f'<td class="b"><span class="bar c-{escape(cell.key)}" style="width:{width:.3f}%"></span></td>'
    kind = ' class="n"' if column.numeric else ""
    return f"<td{kind}>{_term(cell.text, cell.term)}</td>"
