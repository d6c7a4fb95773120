"""A report in the output of a notebook's cell, in a real browser."""

import re
import sys
from html import unescape
from typing import Any

import msgspec
import pytest
import sample_report

import lightning_gpuprof.pipeline  # noqa: F401  draws reports as HTML
from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.callback import GpuProfiler as Callback
from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.notebook import MAX_FINDINGS, WholePage

NOTEBOOK = """<!DOCTYPE html><html><head><style>
* { font-size: 3px !important; color: rgb(255, 0, 0) !important; } table { display: none } p { color: red }
</style></head><body style="background: rgb(1, 2, 3)"><p id="cell">a cell</p>%s</body></html>"""
"""A page with styles that would make a report unreadable."""


def html_of(report: Report) -> str:
    drawn = report._repr_html_()
    assert drawn is not None
    return drawn


def shown(browser: Any, html: str) -> tuple[Any, Any, list[str]]:
    """The cell's page, the report's frame in it, and what the browser complained about."""
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.set_content(NOTEBOOK % html)
    frame = page.frame_locator("iframe")
    frame.locator("#verdict").wait_for(timeout=120_000)
    return page, frame, said


def test_a_report_is_drawn_small_and_without_figures() -> None:
    drawn = html_of(sample_report.full_report())
    assert len(drawn.encode()) < 64_000
    assert unescape(drawn).count("<script") == 1, "that of the buttons"
    assert drawn.startswith("<iframe ")
    assert drawn.endswith("></iframe>")


def test_drawing_is_no_part_of_the_data() -> None:
    report = sample_report.full_report()
    assert msgspec.json.decode(json_report.encode(report), type=Report) == report
    assert "drawn_by" not in msgspec.to_builtins(report)
    assert not any(field.name == "drawn_by" for field in msgspec.structs.fields(Report))


@pytest.mark.parametrize("name", ["full", "minimal", "hostile"])
def test_nothing_of_the_run_ends_the_frame_or_becomes_markup(name: str) -> None:
    drawn = html_of(getattr(sample_report, f"{name}_report")())
    outside = re.sub(r'srcdoc="[^"]*"', "", drawn)
    assert outside.count("<") == outside.count(">") == 2
    assert unescape(drawn).count("<script") == 1


def test_many_findings_are_counted() -> None:
    report = sample_report.full_report()
    many = msgspec.structs.replace(report, findings=report.findings[:1] * (MAX_FINDINGS + 7))
    assert "7 further findings" in html_of(many)


def test_the_frame_keeps_the_styles_of_both_apart(browser: Any) -> None:
    report = sample_report.full_report()
    page, frame, said = shown(browser, html_of(report))
    assert frame.locator("#verdict h1").inner_text() == first_screen(report).headline
    assert frame.locator("#phases table").is_visible()
    assert frame.locator("details.finding").count() == min(len(report.findings), MAX_FINDINGS)
    size = frame.locator("#verdict h1").evaluate("element => getComputedStyle(element).fontSize")
    assert float(size.removesuffix("px")) >= 12
    assert page.locator("#cell").evaluate("element => getComputedStyle(element).color") == "rgb(255, 0, 0)"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert said == []
    page.close()


def test_the_cell_shows_the_whole_first_screen_and_its_buttons_copy(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.set_content(f'{html_of(sample_report.full_report())}<textarea id="paste"></textarea>')
    frame = page.frame_locator("iframe")
    for text in (frame.locator(".first .code pre").first, frame.locator(".checks summary")):
        text.wait_for(timeout=120_000)
        assert inside(text.bounding_box(), page.locator("iframe").bounding_box())
    assert inside(page.locator("iframe").bounding_box(), {"x": 0, "y": 0, "width": 1280, "height": 720})
    button = frame.locator(".first [data-copy]").first
    button.click()
    frame.locator("text=Copied").wait_for(timeout=120_000)
    page.locator("#paste").focus()
    page.keyboard.press("Control+V")
    assert page.locator("#paste").input_value() == button.get_attribute("data-copy")
    page.close()


def inside(box: dict[str, float], around: dict[str, float]) -> bool:
    right, bottom = box["x"] + box["width"], box["y"] + box["height"]
    ends = around["x"] + around["width"], around["y"] + around["height"]
    return box["x"] >= around["x"] and box["y"] >= around["y"] and right <= ends[0] and bottom <= ends[1]


def test_the_whole_page_has_its_figure(browser: Any) -> None:
    page, frame, said = shown(browser, WholePage(sample_report.full_report())._repr_html_())
    frame.locator(".figure .drawn").first.wait_for(state="attached", timeout=60_000)
    assert [text for text in said if text.startswith("http")] == []
    page.close()


def finished() -> Callback:
    profiler = GpuProfiler()
    profiler.report = sample_report.full_report()
    return profiler


def test_phases_are_plain_data() -> None:
    profiler = finished()
    rows = profiler.phases()
    assert [row["phase"] for row in rows] == [row.phase for row in profiler.report.phases]
    assert type(rows) is list
    assert {type(row) for row in rows} == {dict}
    numbers = {"median_ms", "mean_ms", "ordinary_ms", "p05_ms", "p95_ms", "total_s", "share", "device_ms", "cpu_ms"}
    assert set(rows[0]) == {"phase", *numbers}


def test_a_summary_has_the_step_s_parts_and_none_for_what_was_not_measured() -> None:
    profiler = finished()
    median = {row.phase: row.median_ms for row in profiler.report.phases}
    found = profiler.summary()
    assert found["baseline_ms"] == profiler.report.steps.period_ms.median
    assert found["data_loading_ms"] == median["data_wait"]
    assert found["computation_ms"] == median["forward"] + median["backward"] + median["optimizer"]
    assert (found["gpu_utilization"], found["peak_gb"], found["fragmentation_ratio"]) == (0.41, 3 * 2**30 / 1e9, 0.0244)
    profiler.report.run["model.parameter_bytes"] = 250_000_000
    assert profiler.summary()["parameters_gb"] == 0.25
    profiler.report = sample_report.minimal_report()
    assert {name for name, value in profiler.summary().items() if value is not None} == {"verdict"}


def test_phases_are_a_frame_where_it_is_asked_for() -> None:
    pandas = pytest.importorskip("pandas")
    profiler = finished()
    frame = profiler.phases(as_frame=True)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(profiler.phases()[0])
    assert frame.share.sum() == pytest.approx(sum(row.share for row in sample_report.full_report().phases))


def test_a_frame_without_pandas_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArgumentError, match="Install pandas"):
        finished().phases(as_frame=True)


def test_before_the_first_fit_there_is_nothing_to_show() -> None:
    profiler = GpuProfiler()
    assert profiler.report is None
    for look in (profiler.phases, profiler.modules, profiler.summary, profiler.page):
        with pytest.raises(ReportError, match="no report yet"):
            look()
    profiler.report = sample_report.full_report()
    assert profiler.page()._repr_html_().startswith("<iframe")
