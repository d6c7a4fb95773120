"""The page in a real browser: the first screen, what is drawn, the keyboard, printing."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import sample_report
import window_samples
from chromium import PATIENCE_MS
from recorded_traces import recorded_analysis, recorded_trace

from lightning_gpuprof.cli import trace_outputs
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.rules.discovery import installed
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.trace_html import render_trace_html

pytestmark = pytest.mark.slow

REPORT = sample_report.full_report()
DIGITS = Path(__file__).resolve().parents[2] / "docs/tools/digits-report.json"
BROKEN_WORDS = """() => {
  const found = [], walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const place = node.parentElement;
    if (!place.checkVisibility() || place.closest('script, .scroll, svg, pre, .figure, .hidden')) continue;
    for (const word of node.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = [...range.getClientRects()].filter((one) => one.width > 0);
      const tops = new Set(lines.map((one) => Math.round(one.top)));
      if (tops.size > 1 && /^[\\w.,:]+$/.test(word[0])) found.push('broken ' + word[0]);
      if (lines.some((one) => one.right > innerWidth + 1)) found.push('clipped ' + word[0]);
    }
  }
  return found;
}"""
"""Words in two lines, or beyond the edge."""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The full report as drawn; its errors and requests are kept in ``page.noticed``."""
    file: Path = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_html(REPORT))
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


def test_everything_is_drawn_without_an_error_or_a_request(page) -> None:
    assert page.locator("svg.drawn").count() >= 3
    assert page.locator("text=The figure needs JavaScript").count() == 0
    assert page.noticed == []


@pytest.fixture(params=[(1280, 720), (390, 844)], ids=["laptop", "telephone"])
def sized(page, request: pytest.FixtureRequest) -> Iterator[object]:
    page.set_viewport_size({"width": request.param[0], "height": request.param[1]})
    page.evaluate("scrollTo(0, 0)")
    yield page
    page.set_viewport_size({"width": 1180, "height": 900})


def test_the_first_screen_is_one_view(sized) -> None:
    height = sized.viewport_size["height"]
    assert sized.locator(".first").bounding_box()["height"] + sized.locator(".first").bounding_box()["y"] <= height
    screen = first_screen(REPORT)
    shown = sized.locator(".first").inner_text().replace("\xa0", " ")
    for words in (screen.headline, screen.reliability.words, screen.proof, screen.checks.words):
        assert words in shown
    assert screen.fix is not None
    assert sized.locator(".first [data-copy]").count() >= 1


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)], ids=["laptop", "telephone"])
def test_the_first_screen_is_one_view_with_the_longest_titles_and_a_deep_folder(
    browser, tmp_path: Path, width: int, height: int
) -> None:
    titles = sorted((rule.title for rule in installed().rules), key=len)
    findings = tuple(msgspec.structs.replace(f, title=titles.pop()) for f in REPORT.findings)
    folder = Path("/scratch/someone/experiments/imagenet-resnet50-bf16/lightning_logs/version_12/gpuprof")
    (tmp_path / "report.html").write_text(render_html(msgspec.structs.replace(REPORT, findings=findings), folder))
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.goto((tmp_path / "report.html").as_uri())
    box = opened.locator(".first").bounding_box()
    assert findings[0].title in opened.locator(".first h1").inner_text().replace("\n", " ")
    assert box["y"] + box["height"] <= height
    if width == 1280:
        lines = "(h1) => h1.getBoundingClientRect().height / parseFloat(getComputedStyle(h1).lineHeight)"
        assert opened.locator(".first h1").evaluate(lines) == pytest.approx(1, abs=0.1)
    opened.close()


def test_the_page_is_short(sized) -> None:
    assert sized.evaluate("document.documentElement.scrollHeight") <= 5 * sized.viewport_size["height"]
    assert sized.evaluate("document.body.innerText.split(/\\s+/).length") <= 1500


@pytest.mark.parametrize("name", ["h100_owlv2", "a100_8rank_rank3_callstack"])
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)], ids=["laptop", "telephone"])
def test_the_page_of_a_trace_is_short(browser, tmp_path: Path, name: str, width: int, height: int) -> None:
    linked = recorded_trace(f"{name}.json.gz")
    analysis = recorded_analysis(f"{name}.json.gz")
    text = render_trace_html(analysis, name=name, diagnosis=trace_outputs.diagnosis(linked, analysis))
    (tmp_path / "trace.html").write_text(text)
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.goto((tmp_path / "trace.html").as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached")
    assert len(text.encode()) <= 400_000
    assert opened.evaluate("document.documentElement.scrollHeight") <= 5 * height
    assert opened.evaluate("document.body.innerText.split(/\\s+/).length") <= 1500
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate(BROKEN_WORDS) == []
    opened.close()


def test_nothing_clips_or_breaks_inside_of_words(sized) -> None:
    width = sized.viewport_size["width"]
    assert sized.evaluate("document.documentElement.scrollWidth") <= width
    wrong = sized.evaluate(BROKEN_WORDS)
    assert wrong == []


@pytest.mark.parametrize("others", [0, 6])
def test_no_line_of_the_first_screen_ends_in_dots(browser, tmp_path: Path, others: int) -> None:
    report = json_report.read(DIGITS)
    first = report.findings[0]
    title = "A blocking call stalls the step"
    more = [msgspec.structs.replace(first, rule=f"other-{n}", title=title, explains=None) for n in range(others)]
    report = msgspec.structs.replace(report, findings=(first, *more))
    (tmp_path / "report.html").write_text(render_html(report, Path("lightning_logs/version_0")))
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    opened.goto((tmp_path / "report.html").as_uri())
    cut = opened.evaluate(
        "[...document.querySelectorAll('.first :is(pre, summary, p, h1, h2, li, a)')]"
        ".filter((one) => one.checkVisibility() && getComputedStyle(one).overflowX === 'hidden')"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)"
        ".map((one) => one.innerText)"
    )
    assert cut == []
    box = opened.locator(".first").bounding_box()
    assert box["y"] + box["height"] <= 844
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_scrolled_sideways_on_a_telephone(browser, tmp_path: Path, scheme: str) -> None:
    """All parts unfolded: tables become labelled values, drawings keep their letters, both within the width."""
    (tmp_path / "report.html").write_text(render_html(REPORT))
    opened = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    opened.goto((tmp_path / "report.html").as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.wait_for_selector(".folded", state="attached")
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wide = opened.evaluate(
        "[...document.querySelectorAll('main :is(.scroll, .figure, pre, code, p, table)')]"
        ".filter((one) => one.checkVisibility() && getComputedStyle(one).display !== 'inline')"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => one.className + ' ' + one.innerText.slice(0, 60))"
    )
    assert wide == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    shown = opened.locator(".folded td[data-label='CPU ms']").first
    assert "CPU ms" in shown.evaluate("(cell) => getComputedStyle(cell, '::before').content")
    assert opened.locator(".drawn text").first.evaluate("(text) => text.getBoundingClientRect().height") >= 10
    opened.close()


def test_labels_before_a_drawing_are_within_the_page(browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_html(REPORT))
    opened = browser.new_page(viewport={"width": 1000, "height": 800})
    opened.goto((tmp_path / "report.html").as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    beyond = opened.evaluate(
        "[...document.querySelectorAll('.drawn')].flatMap((drawn) => [...drawn.querySelectorAll('text')]"
        ".filter((text) => text.checkVisibility() && text.getAttribute('text-anchor') === 'end')"
        ".filter((text) => text.getBoundingClientRect().left < drawn.closest('.figure').getBoundingClientRect().left)"
        ".map((text) => text.textContent))"
    )
    assert beyond == []
    assert opened.locator(".drawn text", has_text="waiting for data").count() == 1
    opened.close()


def test_bars_are_as_wide_as_what_they_stand_for(sized) -> None:
    for rows in (".row2 .stack", ".all .saving"):
        per_ms = sized.evaluate(
            "(rows) => [...document.querySelectorAll(rows + ' [data-ms]')].filter((one) => one.dataset.ms > 0)"
            ".map((one) => [one.getBoundingClientRect().width, Number(one.dataset.ms)])",
            rows,
        )
        assert per_ms
        scale = max(width for width, _ in per_ms) / max(ms for _, ms in per_ms)
        assert all(abs(width - ms * scale) <= 1.5 for width, ms in per_ms)


def test_code_is_copied_where_the_browser_gives_no_clipboard(page) -> None:
    page.evaluate(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('no'));"
        "document.execCommand = (name) => { globalThis.copied = [name, document.activeElement.value]; return true; }"
    )
    button = page.locator("[data-copy]").last
    button.click()
    page.wait_for_function("globalThis.copied")
    assert page.evaluate("globalThis.copied") == ["copy", button.get_attribute("data-copy")]


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


def test_a_print_has_few_sheets_with_the_heads_of_the_columns(page) -> None:
    page.emulate_media(media="print")
    try:
        heads = page.evaluate(
            "[...document.querySelectorAll('th')]"
            ".filter((one) => one.checkVisibility() && !one.querySelector('.hidden'))"
            ".map((one) => one.innerText.trim())"
        )
        assert "phase" in heads
        assert all(heads)
        assert page.locator("[data-copy]").first.is_hidden()
        sheets = page.pdf(format="A4")
    finally:
        page.emulate_media(media="screen")
    assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", sheets)) <= 8


def test_a_link_from_a_finding_shows_its_moment_in_the_timeline(browser, tmp_path: Path) -> None:
    found = window_samples.window(window_samples.analysis(on_device=True))
    wait = Claim(resource="batches", name="data_wait", phase="data_wait")
    finding = msgspec.structs.replace(REPORT.findings[0], explains=wait)
    report = msgspec.structs.replace(REPORT, windows=(found,), findings=(finding,))
    file = tmp_path / "report.html"
    file.write_text(render_html(report))
    opened = browser.new_page(viewport={"width": 1280, "height": 720})
    opened.goto(file.as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached")
    opened.locator(".first .all a").first.click()
    assert opened.locator("#finding-1 .next").is_visible()
    opened.locator("#finding-1 [data-moment]").click()
    opened.wait_for_function("document.querySelector('.timeline .said').textContent.startsWith('finding 1: ')")
    assert opened.locator(".lanes text", has_text="finding 1").count() == 1
    assert opened.locator("#timeline").bounding_box()["y"] < 720
    opened.close()


def test_findings_that_explain_the_same_time_link_to_the_same_moment(browser, tmp_path: Path) -> None:
    found = window_samples.window(window_samples.analysis(on_device=True))
    wait = Claim(resource="batches", name="data_wait", phase="data_wait")
    findings = tuple(msgspec.structs.replace(one, explains=wait, gain=None) for one in REPORT.findings[:2])
    (tmp_path / "report.html").write_text(
        render_html(msgspec.structs.replace(REPORT, windows=(found,), findings=findings))
    )
    opened = browser.new_page(viewport={"width": 1280, "height": 720})
    opened.goto((tmp_path / "report.html").as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached")
    links = opened.locator(".finding [data-moment]")
    assert links.count() == 2
    for number in range(2):
        opened.locator(".finding summary").nth(number).click()
        links.nth(number).click()
        opened.wait_for_function("document.querySelector('.timeline .said')?.textContent.startsWith('findings 1, 2: ')")
        opened.evaluate("document.querySelector('.timeline .said').textContent = ''")
    opened.close()
