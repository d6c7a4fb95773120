"""What is wrong and what to do, and how the method went."""

from __future__ import annotations

from html import escape

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import method_tables, plain, wording
from lightning_gpuprof.sinks.column_terms import COLUMN_TERMS
from lightning_gpuprof.sinks.html_page import bdi, scrolling, section, term, unfolding


def findings(report: Report) -> str:
    """Each finding with its evidence, advice and gain, most valuable first."""
    if not report.findings:
        return (
            f'<section id="findings">\n<h2>Findings</h2>\n<p>{escape(wording.nothing_found(report))}</p>\n</section>\n'
        )
    cards = "".join(_finding(finding) for finding in report.findings)
    return f'<section id="findings">\n<h2>Findings, most valuable first</h2>\n{cards}</section>\n'


def _finding(finding: Finding) -> str:
    subject = f' <span class="subject">{bdi(plain.name(finding.subject))}</span>' if finding.subject else ""
    gain = ""
    if finding.gain is not None:
        gain_term = term("Gain", "upper bound T / (T - R), from intervals that do not overlap")
        gain = f"{gain_term}: {escape(wording.gain(finding.gain))} · "
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
        f'<article class="finding {finding.severity}">\n'
        f'<h3><span class="severity">{finding.severity}</span> {bdi(plain.name(finding.rule))}{subject}</h3>\n'
        f"<p>{bdi(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Do</span> {bdi(plain.sentence(finding.advice))}</p>\n'
        f'<p class="gain">{gain}'
        f"{term('confidence', 'how sure the rule is, 0 to 100 %')} {finding.confidence * 100:.0f} %</p>\n"
        f"{evidence}</article>\n"
    )


def _heading(title: str, kind: str = "") -> str:
    return f'<th scope="col" class="{kind}">{term(title, COLUMN_TERMS[title])}</th>'


def method(report: Report) -> str:
    """The levels of the method, what each rests on, and its checklist."""
    shown = [*method_tables.detail_tables(report), method_tables.check_table(report)]
    said = [text for label, text in method_tables.lines(report) if label in ("all findings", "target", "cost")]
    lead = "".join(f"<p>{bdi(text)}</p>\n" for text in said)
    return section("method", method_tables.level_table(report), lead, unfolding(shown))
