"""A comparison as one HTML page that opens from disk without a network."""

from __future__ import annotations

from html import escape
from pathlib import Path

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import Comparison, Judgement, Outcome
from lightning_gpuprof.sinks import comparison_tables, plain, wording
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.html_page import bdi, page, section, term

_CLASSES: dict[Outcome, str] = {
    "improved": "ok",
    "regressed": "bad",
    "within noise": "",
    "not comparable": "bad",
}
_TERMS = (
    ("within noise", "the difference is below the threshold, or the speed-up's interval includes 1"),
    ("not comparable", "something besides the change under test differs, or a run is too short or too noisy"),
    ("interval", "95 % interval of the difference, by block bootstrap over the steady steps of both runs"),
    ("as expected", "within the interval that the earlier run's finding gave for its change"),
    ("at most", "largest speed-up T / (T - R) that the earlier run's finding promised"),
    ("kept", "found in both runs"),
    ("not judged", "the rule could not be evaluated on the other run"),
)


def write(comparison: Comparison, target: Path) -> None:
    """Write the page whole or not at all.

    Args:
        comparison: The comparison.
        target: The file.

    Raises:
        ReportError: The file cannot be written.
    """
    write_whole(target, render_html(comparison).encode())


def render_html(comparison: Comparison) -> str:
    """The page; it has no script.

    Args:
        comparison: The comparison.
    """
    shown = [(f"table-{number}", table) for number, table in enumerate(comparison_tables.change_tables(comparison))]
    links = [("findings", "Findings"), *((anchor, table.title) for anchor, table in shown)]
    links += [("conditions", "Conditions"), ("notes", "Notes"), ("terms", "Terms")]
    navigation = "".join(f'<a href="#{anchor}">{escape(title)}</a>\n' for anchor, title in links)
    body = [
        "<header>\n<h1>Two runs side by side</h1>\n",
        f"<p>before {bdi(plain.visible(comparison.before))}</p>\n",
        f"<p>after {bdi(plain.visible(comparison.after))}</p>\n</header>\n",
        f'<nav aria-label="Sections">\n{navigation}</nav>\n<main id="main" tabindex="-1">\n',
        _verdict(comparison),
        _tiles(comparison),
        section("findings", comparison_tables.finding_table(comparison)),
        *(section(anchor, table) for anchor, table in shown),
        section("conditions", comparison_tables.condition_table(comparison)),
        _notes(comparison),
        _terms(),
        "</main>\n",
    ]
    return page(f"gpuprof: {comparison.outcome}", body)


def _verdict(comparison: Comparison) -> str:
    judged = ", ".join(plain.name(name, 60) for name in comparison.metrics)
    sources = comparison_tables.sources(comparison)
    limit, found = numbers.exact_percent(comparison.threshold_ratio), comparison.expectation
    return (
        '<section id="outcome" class="verdict">\n'
        f"<h2>Outcome: <strong>{escape(comparison.outcome)}</strong></h2>\n"
        f'<p class="lead">{bdi(plain.sentence(comparison.summary))}</p>\n'
        + ("" if found is None else f"<p>Expected: {bdi(wording.came_of(found))}</p>\n")
        + f"<p>Predicted: {bdi(comparison_tables.predicted(comparison))}</p>\n"
        f"<p>Judged by {bdi(judged)}; a change below {escape(limit)} is noise</p>\n"
        + (f"<p>Intervals: {bdi(sources)}</p>\n" if sources else "")
        + "</section>\n"
    )


def _tiles(comparison: Comparison) -> str:
    cells = "".join(
        _tile(f"{name}, {judgement.measure}" if name != judgement.measure else name, judgement)
        for name, judgement in (("training", comparison.training), ("wall time of fit", comparison.wall))
    )
    return f'<dl class="tiles">\n{cells}</dl>\n'


def _tile(name: str, judgement: Judgement) -> str:
    speedup = numbers.ABSENT if judgement.speedup is None else f"{numbers.significant(judgement.speedup)}x"
    ends = (judgement.lower, judgement.upper)
    interval = ""
    if ends[0] is not None and ends[1] is not None:
        interval = f'<dd class="note">95 %: {escape(numbers.interval((ends[0], ends[1])))}</dd>'
    kind = _CLASSES[judgement.outcome]
    return (
        f'<div class="tile"><dt>{term(name, "earlier over later: above 1 the later run is faster")}</dt>'
        f"<dd>{escape(speedup)}</dd>{interval}"
        f'<dd class="note"><span class="validity {kind}">{escape(judgement.outcome)}</span></dd></div>\n'
    )


def _notes(comparison: Comparison) -> str:
    said = "".join(f"<li>{bdi(plain.sentence(note))}</li>\n" for note in comparison.notes)
    shown = f"<ul>\n{said}</ul>\n" if said else '<p class="absent">Nothing else.</p>\n'
    return f'<section id="notes">\n<h2>Keep in mind</h2>\n{shown}</section>\n'


def _terms() -> str:
    items = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>\n" for word, meaning in _TERMS)
    return (
        '<section id="terms">\n<details>\n<summary><h2>What the words mean</h2></summary>\n'
        f"<dl>\n{items}</dl>\n</details>\n</section>\n"
    )
