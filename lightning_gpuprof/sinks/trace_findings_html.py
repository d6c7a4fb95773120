"""What the rules say of a trace by itself: its verdict, findings and fixes, on its page."""

from html import escape

from lightning_gpuprof.model.finding import Finding, NotEvaluated
from lightning_gpuprof.model.trace.diagnosis import TraceDiagnosis
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.html_page import bdi, prose
from lightning_gpuprof.sinks.trace_findings import QUIET, diff, unjudged


def section(found: TraceDiagnosis) -> str:
    """Verdict, caveats and findings as a section of the page; the rules that need a run unfold."""
    caveats = "".join(f"<p>{bdi(plain.sentence(caveat))}</p>\n" for caveat in found.caveats)
    cards = "".join(map(card, found.findings)) or f"<p>{escape(QUIET)}</p>\n"
    rest = "".join(_folded(*one) for one in unjudged(found))
    return (
        f'<section id="findings">\n<h2>{bdi(plain.sentence(found.verdict.summary))}</h2>\n{caveats}{cards}'
        f"{rest}</section>\n"
    )


def card(finding: Finding) -> str:
    """A finding with its fix."""
    lines = "\n".join(diff(finding))
    code = f"<pre>{escape(lines)}</pre>\n" if lines else ""
    gain = (
        f'<p class="gain">Gain: {escape(wording.gain(finding.gain, finding.expected))}</p>\n'
        if finding.gain is not None
        else ""
    )
    title = plain.name(finding.title or finding.rule)
    return (
        f'<article class="finding {finding.severity}">\n'
        f'<h3><span class="severity">{finding.severity}</span> {prose(title)}</h3>\n'
        f"<p>{prose(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Fix</span> {prose(plain.sentence(finding.advice))}</p>\n{code}{gain}</article>\n'
    )


def _folded(words: str, how: str, rules: list[NotEvaluated]) -> str:
    rows = "".join(f"<li>{bdi(why)}: {bdi(', '.join(ids))}</li>\n" for why, ids in wording.by_reason(rules))
    head = f"<summary>{escape(words)}</summary>\n<p><code>{escape(how)}</code></p>\n"
    return f"<details>\n{head}<ul>\n{rows}</ul>\n</details>\n"
