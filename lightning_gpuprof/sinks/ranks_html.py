"""The ranks of one window as one HTML page that opens from disk without a network."""

import statistics
from collections.abc import Mapping

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.trace.analysis import TraceAnalysis, TraceDiagnosis
from lightning_gpuprof.model.trace.ranks import RanksComparison
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.drawings import heat_html
from lightning_gpuprof.sinks.html_page import bdi, headed, listed, page, section
from lightning_gpuprof.sinks.rank_tables import HeatFigure
from lightning_gpuprof.sinks.trace_findings import QUIET
from lightning_gpuprof.sinks.trace_html import card
from lightning_gpuprof.sinks.trace_summary import sentences
from lightning_gpuprof.sinks.window_tables import ranks


def render_ranks_html(
    comparison: RanksComparison, analyses: Mapping[str, TraceAnalysis], diagnoses: Mapping[str, TraceDiagnosis]
) -> str:
    """The page: who waited for whom, where ranks differ, their collectives, and the summary of each trace.

    Args:
        comparison: Of the ranks.
        analyses: Name of each trace, as people know it → what is in it.
        diagnoses: What the rules say of each.

    Returns:
        A whole HTML document, which needs no other file and no network.
    """
    count = len(comparison.ranks)
    shown = (
        ("ranks", ranks.rank_table(comparison), _heat(comparison)),
        ("kinds", ranks.rank_kind_table(comparison), ""),
        ("late", ranks.late_rank_table(comparison), ""),
        ("collectives", ranks.matched_collective_table(comparison), ""),
        ("unmatched", ranks.unmatched_collective_table(comparison), ""),
    )
    said = ranks.rank_note_table(comparison)
    tables = ((anchor, table.title) for anchor, table, _ in shown)
    links = [("findings", "Findings"), ("summary", "Summary"), *tables, ("traces", "Each trace")]
    navigation = "".join(f'<a href="#{anchor}">{bdi(title)}</a>\n' for anchor, title in links)
    notes = listed(cell.text for row in said.rows for cell in row)
    body = [
        f"<header>\n<h1>{count} ranks of one window</h1>\n</header>\n",
        f'<nav aria-label="Sections">\n{navigation}</nav>\n<main id="main" tabindex="-1">\n',
        _findings(diagnoses),
        headed("summary", "Summary", notes or f'<p class="absent">{bdi(said.absent)}</p>\n'),
        *(section(anchor, table, before) for anchor, table, before in shown),
        headed("traces", "Each trace", "".join(_trace(*named) for named in analyses.items())),
        "</main>\n",
    ]
    return page(f"gpuprof: {count} ranks", body)


def _findings(diagnoses: Mapping[str, TraceDiagnosis]) -> str:
    """Each finding once, of the trace in which it costs most, most valuable first."""
    by_rule: dict[str, list[Finding]] = {}
    for diagnosis in diagnoses.values():
        for finding in diagnosis.findings:
            by_rule.setdefault(finding.rule, []).append(finding)
    worst = [(max(found, key=_saved_ms), len(found)) for found in by_rule.values()]
    cards = "".join(
        f"{card(finding)}<p>In {count} of {len(diagnoses)} traces; this is the one in which it costs most.</p>\n"
        for finding, count in sorted(worst, key=lambda one: -_saved_ms(one[0]))
    )
    return headed("findings", "Findings", cards or f"<p>{QUIET}</p>")


def _saved_ms(finding: Finding) -> float:
    return 0.0 if finding.gain is None else finding.gain.saved_ms_per_step


def _trace(name: str, analysis: TraceAnalysis) -> str:
    return f"<details>\n<summary>{bdi(plain.name(name))}</summary>\n{listed(sentences(analysis))}</details>\n"


def _heat(comparison: RanksComparison) -> str:
    """Ranks by what their time goes to; communication may run beside computation, so a row is no whole."""
    times_us = {
        "computing": [rank.computation_us for rank in comparison.ranks],
        "transfer": [rank.transfer_us for rank in comparison.ranks],
        "waiting": [rank.waiting_us for rank in comparison.ranks],
        "idle": [rank.idle_us for rank in comparison.ranks],
    }
    times_us = {what: each for what, each in times_us.items() if any(us is not None for us in each)}
    usual_us = {what: statistics.median(us for us in each if us is not None) for what, each in times_us.items()}
    rows = range(len(comparison.ranks))
    data = HeatFigure(
        ranks=[f"rank {rank.rank}" for rank in comparison.ranks],
        columns=list(times_us),
        ms=[[_ms(each[row]) for each in times_us.values()] for row in rows],
        apart_ms=[[_ms(each[row], usual_us[what]) for what, each in times_us.items()] for row in rows],
    )
    return heat_html(data) if times_us else ""


def _ms(us: float | None, usual_us: float = 0.0) -> float | None:
    return None if us is None else float(f"{(us - usual_us) / 1e3:.4g}")
