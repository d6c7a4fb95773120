"""The page of a comparison: escaped, without a foreign script or any address, and readable in a real browser."""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import sample_report
from sample_report import slower

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.sinks import comparison_html
from lightning_gpuprof.sinks.comparison_answer import answer
from lightning_gpuprof.sinks.comparison_html import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags, ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [known.get("href") or "" for _ in (1,) if tag == "a"]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def rendered() -> str:
    full = sample_report.full_report()
    return render_html(compare(full, slower(full), before_name="A", after_name="B"))


def test_the_page_has_outcome_tables_and_findings(rendered: str) -> None:
    page = Page(rendered)
    for words in ("Regressed.", "Totals", "Phases, median per step", "single-process-loading", "+47.1 %"):
        assert words in page.text
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


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
    assert all(link.startswith("#") for link in page.links)


@pytest.fixture
def opened(rendered: str, tmp_path: Path) -> Iterator[tuple[object, list[str]]]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no browser is installed")
    target = tmp_path / "compare.html"
    full = sample_report.full_report()
    promised = msgspec.structs.replace(compare(full, slower(full)), predicted_step_speedup_max=1.3)
    comparison_html.write(promised, target)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        page = browser.new_page(viewport={"width": 900, "height": 700})
        page.set_default_timeout(120_000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: asked.append(message.text))
        page.goto(target.as_uri())
        yield page, [one for one in asked if one != target.as_uri()]
        browser.close()


@pytest.mark.slow
def test_a_browser_shows_it_without_a_request_or_a_complaint(opened: tuple[object, list[str]]) -> None:
    page, asked = opened
    assert asked == []
    shown = page.locator("#outcome .outcome")  # type: ignore[attr-defined]
    assert shown.inner_text() == "Regressed."
    for width, height in ((900, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})  # type: ignore[attr-defined]
        assert page.locator(".target b").is_visible()  # type: ignore[attr-defined]
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # type: ignore[attr-defined]
        outcome = page.locator("#outcome").bounding_box()  # type: ignore[attr-defined]
        assert outcome["y"] + outcome["height"] <= height, "the answer is one view"
