"""A comparison as one HTML page that opens from disk without a network."""

from html import escape

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.sinks import comparison_tables, plain
from lightning_gpuprof.sinks.comparison_answer import run_names
from lightning_gpuprof.sinks.html_page import absent, bdi, folded, glossary, headed, listed, page, section, table_html
from lightning_gpuprof.sinks.views.compared import compared
from lightning_gpuprof.sinks.views.first import diff_html

OPEN_TABLES = 2
"""Totals and phases; the others unfold."""
OPEN_CONDITIONS = 12
"""More of them unfold."""
_TERMS = (
    ("within noise", "the difference is below the threshold, or the speed-up's interval includes 1"),
    ("not comparable", "something besides the change under test differs, or a run is too short or too noisy"),
    ("interval", "95 % confidence interval of the difference, by block bootstrap over the steady steps of both runs"),
    ("in the expected range", "within the interval that the earlier run's finding gave for its change"),
    ("about", "the speed-up that the earlier run's finding expected of its change"),
    ("up to", "the largest speed-up T / (T - R) that it could have, where nothing more is known"),
    ("kept", "found in both runs"),
    ("not judged", "the rule could not be evaluated on the other run"),
)


def render_html(comparison: Comparison) -> str:
    """The page."""
    shown = [(f"table-{number}", table) for number, table in enumerate(comparison_tables.change_tables(comparison))]
    links = [("findings", "Findings"), *((anchor, table.title) for anchor, table in shown)]
    links += [("conditions", "Conditions"), ("judged", "Judgement"), ("notes", "Notes"), ("terms", "Terms")]
    navigation = "".join(f'<a href="#{anchor}">{escape(title)}</a>\n' for anchor, title in links)
    body = [
        f'<main id="main" tabindex="-1">\n{compared(comparison)}',
        f'<nav aria-label="Sections">\n{navigation}</nav>\n',
        section("findings", comparison_tables.finding_table(comparison)),
        *(section(anchor, table) for anchor, table in shown[:OPEN_TABLES]),
        '<details class="group">\n<summary><h2>More numbers</h2></summary>\n',
        *(section(anchor, table) for anchor, table in shown[OPEN_TABLES:]),
        "</details>\n",
        _conditions(comparison),
        _code(comparison),
        _judged(comparison),
        headed("notes", "Notes", listed(map(plain.sentence, comparison.notes)) or absent("Nothing else.")),
        glossary(_TERMS),
        "</main>\n",
    ]
    before, after = run_names(comparison)
    return page(f"gpuprof {before} -> {after}: {comparison.outcome}", body)


def _conditions(comparison: Comparison) -> str:
    """What differs; many conditions are closed at first."""
    table = comparison_tables.condition_table(comparison)
    if len(table.rows) <= OPEN_CONDITIONS:
        return section("conditions", table)
    return folded("conditions", f"{table.title} ({len(table.rows)})", table_html(table))


def _code(comparison: Comparison) -> str:
    """The lines of the user's code that changed, closed at first."""
    files = [
        f"<h3>{bdi(comparison_tables.code_words(change))}</h3>\n{diff_html(change.diff)}"
        for change in comparison.code or ()
    ]
    return folded("code", "Code that differs", "".join(files)) if files else ""


def _judged(comparison: Comparison) -> str:
    """What decides the outcome."""
    judged = ", ".join(plain.name(name, 60) for name in comparison.metrics)
    sources = comparison_tables.sources(comparison)
    limit = numbers.exact_percent(comparison.threshold_ratio)
    training, wall = comparison.training, comparison.wall
    named = comparison_tables.training_name(training).capitalize()
    return headed(
        "judged",
        "How it was judged",
        f"<p>By {bdi(judged)}; a change below {escape(limit)} is noise.</p>\n"
        f"<p>{escape(named)}: {bdi(comparison_tables.judgement(training))}</p>\n"
        f"<p>{escape(wall.measure.capitalize())}: {bdi(comparison_tables.judgement(wall))}</p>\n"
        f"<p>Predicted: {bdi(comparison_tables.predicted(comparison))}</p>\n"
        + (f"<p>Intervals: {bdi(sources)}</p>\n" if sources else ""),
    )
