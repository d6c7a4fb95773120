"""A Report flows in, one HTML page that opens from disk without any network flows out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, PHASES
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import numbers, plain, tables, time_tables, wording
from lightning_gpuprof.sinks.figures import StepFigure, step_figure
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.html_page import (
    bdi,
    folded,
    own,
    page,
    plotly_script,
    script_json,
    section,
    table_html,
    term,
)
from lightning_gpuprof.sinks.trace_summary import of_devices
from lightning_gpuprof.sinks.trace_tables import CATALOGUE

FILE_NAME = "report.html"
CALLBACK_ROWS = 50
LEDGER_ROWS = 12

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
        section("callbacks", tables.callback_table(report, CALLBACK_ROWS)),
        section("gpus", tables.device_table(report)),
        section("host", tables.host_table(report)),
        section("memory", tables.memory_table(report)),
        _windows(report),
        section("not-evaluated", tables.not_evaluated_table(report)),
        section("overhead", tables.overhead_table(report)),
        folded("conditions", tables.condition_table(report)),
        _terms(),
    ]
    return page(f"gpuprof: {report.verdict.kind}", (*body, _scripts(figure)))


def _scripts(figure: StepFigure | None) -> str:
    if figure is None:
        return ""
    return "".join(
        (
            f'<script type="application/json" id="step-data">{script_json(figure)}</script>\n',
            plotly_script(),
            f"<script>\n{own('report.js')}</script>\n",
        )
    )


def _header(report: Report) -> str:
    state = "ok" if report.validity.ok else "bad"
    lines = [
        f"<header>\n<h1>{wording.title(report).capitalize()}</h1>\n",
        f"<p>{bdi(wording.headline(report))}</p>\n" if wording.headline(report) else "",
        f"<p>{bdi(wording.steadiness(report))}</p>\n",
        f'<p class="validity {state}">{escape(wording.validity(report))}</p>\n',
    ]
    if report.validity.caveats:
        items = "".join(f"<li>{bdi(plain.sentence(caveat))}</li>\n" for caveat in report.validity.caveats)
        lines.append(f'<ul class="caveats">\n{items}</ul>\n')
    return "".join((*lines, "</header>\n"))


def _navigation() -> str:
    links = "".join(f'<a href="#{anchor}">{name}</a>\n' for anchor, name in SECTIONS)
    return f'<nav aria-label="Sections">\n{links}</nav>\n'


def _verdict(report: Report) -> str:
    runner_up = ""
    if report.verdict.runner_up:
        runner_up = f"<p>Runner-up: {bdi(plain.sentence(report.verdict.runner_up))}</p>\n"
    return (
        '<section id="verdict" class="verdict">\n'
        f"<h2>Verdict: <strong>{escape(report.verdict.kind)}</strong></h2>\n"
        f'<p class="lead">{bdi(plain.sentence(report.verdict.summary))}</p>\n{runner_up}'
        f'<p class="next"><span>Next step</span> {bdi(wording.next_step(report))}</p>\n</section>\n'
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
        f'<div class="tile"><dt>{term(name, meaning)}</dt><dd>{_amount(value)}</dd>'
        + (f'<dd class="note">{escape(note)}</dd>' if note else "")
        + "</div>\n"
        for name, value, note, meaning in tiles
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
    subject = f' <span class="subject">{bdi(plain.name(finding.subject))}</span>' if finding.subject else ""
    gain = wording.gain(finding.gain) if finding.gain is not None else "no bound known"
    gain_term = term("Gain", "upper bound T / (T - R), from intervals that do not overlap")
    rows = "".join(
        "<tr>"
        f"<td>{bdi(plain.name(item.name))}</td>"
        f'<td class="{"" if isinstance(item.value, str) else "n"}">{bdi(wording.evidence_value(item))}</td>'
        f'<td class="n">{bdi(wording.evidence_limit(item))}</td><td>{bdi(plain.sentence(item.source))}</td>'
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
        f'<h3><span class="severity">{finding.severity}</span> {bdi(plain.name(finding.rule))}{subject}</h3>\n'
        f"<p>{bdi(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Do</span> {bdi(plain.sentence(finding.advice))}</p>\n'
        f'<p class="gain">{gain_term}: {escape(gain)}'
        f" · {term('confidence', 'how sure the rule is, 0 to 100 %')} {finding.confidence * 100:.0f} %</p>\n"
        f"{evidence}</article>\n"
    )


def _wall(report: Report) -> str:
    total = report.wall.total_s
    shares = [(part, report.wall.parts.get(part, 0.0) / total) for part in PARTS] if total > 0 else []
    return section("wall", tables.wall_table(report), _stack("Wall time by part", shares))


def _ledger(report: Report) -> str:
    shown = time_tables.ledger_table(report, LEDGER_ROWS)
    whole = time_tables.ledger_table(report, len(report.ledger))
    more = ""
    if len(whole.rows) > len(shown.rows):
        more = f"<details>\n<summary>All {len(report.ledger)} rows</summary>\n{table_html(whole)}</details>\n"
    return section("ledger", shown, "", more)


def _phases(report: Report) -> str:
    stack = _stack("Time of all steps by phase", [(row.phase, row.share) for row in report.phases])
    period = f"<h3>Period of a step</h3>\n{table_html(tables.period_table(report))}"
    for table in (time_tables.regime_table(report), time_tables.label_table(report)):
        if table.rows:
            period += f"<h3>{escape(table.title)}</h3>\n{table_html(table)}"
    return section("phases", tables.phase_table(report), stack, period)


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
    return section("windows", tables.window_table(report), "", "".join(map(_window, report.windows)))


def _window(window: WindowFacts) -> str:
    found = window.analysis
    if found is None:
        shown = [tables.operator_table(window), tables.kernel_table(window)]
        lines = []
    else:
        shown = [table for entry in CATALOGUE if entry.shown for table in entry.tables(found)]
        lines = of_devices(found)
    said = "".join(f"<li>{bdi(line)}</li>\n" for line in lines)
    summary = f"<h3>Steps {escape(tables.window_steps(window))}</h3>\n<ul>\n{said}</ul>\n" if said else ""
    return summary + "".join(
        f"<details>\n<summary>{escape(table.title)}</summary>\n{table_html(table)}</details>\n"
        for table in shown
        if table.rows
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
