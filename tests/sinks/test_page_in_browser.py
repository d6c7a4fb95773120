"""The page in a real browser: what is drawn, one axis for all figures over the run, the keyboard, printing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_report

from lightning_gpuprof.model.curves import MARK_TERMS
from lightning_gpuprof.sinks.html import render_html

pytestmark = pytest.mark.slow

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The full report as drawn; its errors and requests are kept in ``page.noticed``."""
    file: Path = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_html(sample_report.full_report()))
    opened = browser.new_page(viewport={"width": 1180, "height": 900}, color_scheme="light")
    opened.set_default_timeout(PATIENCE_MS)
    noticed: list[str] = []
    opened.on("pageerror", lambda error: noticed.append(str(error)))
    opened.on("console", lambda said: noticed.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("request", lambda asked: None if asked.url.startswith("file:") else noticed.append(asked.url))
    opened.noticed = noticed
    opened.goto(file.as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached")
    yield opened
    opened.close()


def ranges(page) -> list[list[float]]:
    """The x axes of the figures over the run."""
    return page.evaluate(
        "['#steps', '#curves'].map((id) => document.querySelector(id + ' .js-plotly-plot'))"
        ".map((plot) => plot.layout.xaxis.range.map(Number))"
    )


def test_every_figure_is_drawn_without_an_error_or_a_request(page) -> None:
    drawn = page.evaluate(
        "[...document.querySelectorAll('[data-figure]')].filter((f) => f.querySelector('.main-svg')).length"
    )
    assert drawn == page.locator("[data-figure]").count() == 5
    assert page.locator("text=The figure needs JavaScript").count() == 0
    assert page.noticed == []


def test_what_happened_to_the_steps_is_marked_in_the_figure(page) -> None:
    traces = page.evaluate(
        "document.querySelector('#steps .js-plotly-plot').data.map((t) => [t.name, t.x.filter((x) => x !== null)])"
    )
    shown = {name: x for name, x in traces if name in MARK_TERMS}
    assert set(shown) == set(MARK_TERMS)
    for row in sample_report.full_report().marks:
        edge = 0.5 if row.kind == "window" else 0  # steps are drawn around their numbers
        assert shown[row.kind][: len(row.marks)] == [mark.from_batch - edge for mark in row.marks]


def test_a_zoom_and_the_unit_of_one_figure_are_those_of_the_other_and_a_redraw_keeps_them(page) -> None:
    whole = ranges(page)
    assert whole[0] == [0, 400]
    page.evaluate("Plotly.relayout(document.querySelector('#curves .js-plotly-plot'), {'xaxis.range': [100, 200]})")
    assert ranges(page) == [[100, 200], [100, 200]]
    page.get_by_role("button", name="Show the longest steps in full").click()
    page.emulate_media(color_scheme="dark")
    assert ranges(page) == [[100, 200], [100, 200]]
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Show over time").first.click()
    steps, curves = ranges(page)
    assert steps == pytest.approx(curves, rel=0.2)
    assert steps[1] < 20  # seconds
    page.get_by_role("button", name="Show over batches").last.click()
    page.get_by_role("button", name="Cut the longest steps").click()
    assert ranges(page) == whole


def test_the_first_stop_of_the_keyboard_skips_to_the_content_and_tables_can_be_scrolled_by_it(page) -> None:
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    scrolling = "[...document.querySelectorAll('.scroll')]"
    assert page.evaluate(f"{scrolling}.every((area) => area.tabIndex === 0 && area.getAttribute('aria-label'))")


def test_nothing_is_wider_than_a_small_screen_but_what_scrolls(page) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
    finally:
        page.set_viewport_size({"width": 1180, "height": 900})


def test_printing_opens_what_is_closed_and_fits_figures_on_the_sheet(page) -> None:
    page.evaluate(
        "addEventListener('beforeprint', () => { globalThis.seen = [...document.querySelectorAll('.js-plotly-plot')]"
        ".map((plot) => plot._fullLayout.width).concat(document.querySelectorAll('details:not([open])').length) })"
    )
    sheets = page.pdf(format="A4")
    assert sheets.startswith(b"%PDF")
    *widths, closed = page.evaluate("globalThis.seen")
    assert closed == 0
    assert widths
    assert max(widths) <= 690
    assert page.evaluate("document.querySelector('#steps .js-plotly-plot')._fullLayout.width") > 690
