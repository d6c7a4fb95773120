"""What is wrong and what to do, and how the method went."""

from html import escape

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.report import LineRow, Report
from lightning_gpuprof.sinks import method_tables, plain, trial_tables, wording
from lightning_gpuprof.sinks.column_terms import COLUMN_TERMS
from lightning_gpuprof.sinks.first_screen import title_of
from lightning_gpuprof.sinks.fix import line_of, named
from lightning_gpuprof.sinks.gains import likely_saved_ms, saved_words, scale_of
from lightning_gpuprof.sinks.html_page import bdi, headed, prose, scrolling, section, term, unfolded_on_click
from lightning_gpuprof.sinks.views.first import MINUS
from lightning_gpuprof.sinks.window_figures.timeline import moments


def findings(report: Report) -> str:
    """Each finding in a line that unfolds into its evidence, advice and gain, most valuable first."""
    if not report.findings:
        return headed("findings", "Findings", f"<p>{escape(wording.nothing_found(report))}</p>\n")
    drawn = {n: one.name for window in report.windows for one in moments(report, window) for n in one.numbers}
    cards = "".join(
        _finding(n, finding, report.steps.count, line_of(finding, report.lines), drawn.get(n, ""))
        for n, finding in enumerate(report.findings, 1)
    )
    return headed("findings", "Findings, most valuable first", cards)


def _finding(number: int, finding: Finding, steps: int, line: LineRow | None, moment: str) -> str:
    subject = f' <span class="subject">{bdi(plain.name(finding.subject))}</span>' if finding.subject else ""
    link = f' · <a href="#timeline" data-moment="{moment}">see it in the timeline</a>' if moment else ""
    gain = ""
    if finding.gain is not None:
        gain_term = term("Gain", "what the change is expected to bring, and its upper bound T / (T - R)")
        gain = f"{gain_term}: {escape(wording.gain(finding, finding.gain))} · "
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
            f"{scrolling('Evidence')}<table>\n<thead><tr>{_heading('evidence')}{_heading('value', 'n')}"
            f"{_heading('limit', 'n')}{_heading('source of the limit')}</tr></thead>\n"
            f"<tbody>\n{rows}</tbody>\n</table></div>\n"
        )
    return (
        f'<details class="finding {finding.severity}" id="finding-{number}">\n'
        f'<summary>{number} <span class="severity">{finding.severity}</span> <b>{prose(title_of(finding))}</b>{subject}'
        f"{_saved(finding, steps)}</summary>\n"
        f"<p>{prose(plain.sentence(finding.summary))}</p>\n{_line(line)}"
        f'<p class="next"><span>Do</span> {prose(plain.sentence(finding.advice))}</p>\n'
        f'<p class="gain">{gain}rule <code>{escape(plain.name(finding.rule))}</code> · '
        f"{term('confidence', 'how sure the rule is, 0 to 100 %')} {finding.confidence * 100:.0f} %"
        f"{link}</p>\n{evidence}</details>\n"
    )


def _line(row: LineRow | None) -> str:
    """The user's own line, below its place."""
    if row is None:
        return ""
    return (
        f"<p><code>{escape(named(row))}</code></p>\n"
        f'<div class="code"><pre>{escape(plain.sentence(row.code))}</pre></div>\n'
    )


def _saved(finding: Finding, steps: int) -> str:
    saved = likely_saved_ms(finding)
    words = "" if saved is None else saved_words(saved, steps, scale_of(finding.explains))
    return words and f' <span class="gain">{MINUS}{words}</span>'


def _heading(title: str, kind: str = "") -> str:
    return f'<th scope="col" class="{kind}">{term(title, COLUMN_TERMS[title])}</th>'


def tried(report: Report) -> str:
    """What ``gpuprof try`` measured of the advice; empty where nobody tried."""
    trial = report.trial
    if trial is None:
        return ""
    notes = [f"{label.capitalize()}: {text}." for label, text in trial_tables.notes(trial)]
    said = (trial_tables.headline(trial), trial_tables.ceilings(trial), *notes)
    lead = "".join(f"<p>{bdi(text)}</p>\n" for text in said if text)
    return section("tried", trial_tables.tried_table(trial), lead, unfolded_on_click((trial_tables.left_table(trial),)))


def method(report: Report) -> str:
    """The levels of the method, what each rests on, and its checklist."""
    shown = [*method_tables.detail_tables(report), method_tables.check_table(report)]
    shown_above = (method_tables.ALL_CHANGES, "target", "cost")
    said = [f"{label}: {text}" for label, text in method_tables.lines(report) if label in shown_above]
    lead = "".join(f"<p>{bdi(numbers.capital(text))}</p>\n" for text in said)
    return section("method", method_tables.level_table(report), lead, unfolded_on_click(shown))
