"""The page of a comparison: escaped, without a foreign script or any address, and readable in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample_report
from chromium import PATIENCE_MS
from parsed_page import Page
from sample_report import slower

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.comparison_answer import answer
from lightning_gpuprof.sinks.comparison_html import render_html

DIGITS = Path(__file__).resolve().parents[2] / "docs/tools/digits-report.json"


@pytest.fixture(scope="module")
def rendered() -> str:
    full = sample_report.full_report()
    return render_html(compare(full, slower(full), before_name="A", after_name="B"))


def test_the_page_has_outcome_tables_and_findings(rendered: str) -> None:
    page = Page(rendered)
    for words in ("Regressed.", "Totals", "Phases, median per step", "single-process-loading", "+47.1 %"):
        assert words in page.text
    ids, links = page.values("id"), page.values("href")
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_the_noise_of_the_headline_has_two_digits_and_keeps_its_percent_sign() -> None:
    digits = json_report.read(DIGITS)
    (headline,) = re.findall("<h1>.*</h1>", render_html(compare(digits, digits, before_name="A", after_name="B")))
    assert re.search(r"beyond the noise of (\d\d|\d\.\d)\xa0%", headline)


def test_many_conditions_that_differ_are_folded() -> None:
    full = sample_report.full_report()
    few, many = (
        msgspec.structs.replace(full, run=full.run | {f"env.N{n}": n for n in range(most)}) for most in (3, 30)
    )
    assert "<details>\n<summary><h2>Conditions that differ (3" in render_html(compare(full, many))
    assert '<section id="conditions">\n<h2>' in render_html(compare(full, few))


def test_the_bars_of_both_steps_and_the_mark_of_the_promise_are_on_one_scale() -> None:
    full = sample_report.full_report()
    compared = compare(slower(full), full, before_name="A", after_name="B")
    comparison = msgspec.structs.replace(compared, predicted_step_speedup_max=1.6)
    found = answer(comparison)
    html = render_html(comparison)
    drawn = [(float(width), float(ms)) for width, ms in re.findall(r'width:([\d.]+)%" data-ms="([\d.]+)"', html)]
    whole_ms = max(found.times.before_ms, found.times.after_ms)
    assert len(drawn) > 4
    assert all(abs(width - 100 * ms / whole_ms) < 0.01 for width, ms in drawn)
    assert sum(width for width, _ in drawn) == pytest.approx(
        200, abs=0.1
    )  # the free part of the shorter bar is hatched
    assert found.target is not None
    ((side, offset, ms),) = re.findall(r'style="(left|right):([\d.]+)%" data-ms="([\d.]+)"', html)
    share = 100 * float(ms) / whole_ms
    assert float(offset) == pytest.approx(share if side == "left" else 100 - share, abs=0.01)


@pytest.mark.parametrize(
    "make", [sample_report.full_report, sample_report.minimal_report, sample_report.hostile_report]
)
def test_no_name_leaves_its_place_and_adds_a_script(make: object) -> None:
    report = make() if callable(make) else sample_report.full_report()
    name = sample_report.HOSTILE
    page = Page(render_html(compare(report, sample_report.full_report(), before_name=name, after_name=name)))
    assert page.tags.count("script") <= 1  # ours, which sorts tables
    assert "<script>alert(1)</script>" in page.text
    assert not set("\x1b\x07\u202e\u2028") & set(page.text)
    assert all(link.startswith("#") for link in page.values("href"))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, list[str]]]:
    target = tmp_path / "compare.html"
    full = sample_report.full_report()
    promised = msgspec.structs.replace(compare(full, slower(full)), predicted_step_speedup_max=1.3)
    target.write_text(render_html(promised), encoding="utf-8")
    page = browser.new_page(viewport={"width": 900, "height": 700})
    page.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.goto(target.as_uri())
    yield page, [one for one in asked if one != target.as_uri()]
    page.close()


@pytest.mark.slow
def test_a_browser_shows_it_without_a_request_or_a_complaint(opened: tuple[Any, list[str]]) -> None:
    page, asked = opened
    assert asked == []
    shown = page.locator("#outcome .outcome")
    assert shown.inner_text() == "Regressed."
    for width, height in ((900, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.locator(".target b").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outcome = page.locator("#outcome").bounding_box()
        assert outcome["y"] + outcome["height"] <= height, "the answer is one view"
