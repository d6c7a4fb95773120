"""Trace windows in a real browser: the timeline is drawn and looked at closer, large tables sort and filter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample_report
import window_samples
from chromium import PATIENCE_MS

from lightning_gpuprof.model.trace.by_step import ByStep, StepTimes
from lightning_gpuprof.sinks import html_page, plain
from lightning_gpuprof.sinks.tables import FIGURE, Column, Table
from lightning_gpuprof.sinks.views import windows
from lightning_gpuprof.sinks.window_tables.by_step import kernel_step_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    found = [
        window_samples.window(
            msgspec.structs.replace(window_samples.analysis(suffix), roofline=None), file=f"t{suffix}"
        )
        for suffix in ("", sample_report.HOSTILE)
    ]
    report = window_samples.report(*found)
    # without a figure of Plotly's, whose script takes seconds to load
    parts = [view(report) for view in (windows.windows, windows.timeline, windows.operators)]
    path.write_text(html_page.page("windows", parts))
    return path


@pytest.fixture(scope="module")
def page(browser: Any, file: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    one = context.new_page()
    told: list[str] = []
    one.on("console", lambda message: told.append(message.text))
    one.on("pageerror", lambda error: told.append(str(error)))
    one.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
    one.on("request", lambda request: told.append(request.url) if request.url != file.as_uri() else None)
    one.goto(file.as_uri())
    yield one
    assert told == []
    context.close()


def test_the_timeline_is_drawn_told_on_pointing_and_looked_at_closer(page: Any) -> None:
    figure = page.locator("#timeline .figure").first
    lanes = figure.locator("text.lane").all_text_contents()
    assert lanes == ["phases", "operators", "calls", "GPU 0 stream 7", "GPU 0 stream 8", "GPU 0 idle"]
    whole = figure.locator("rect[data-part]").count()
    assert whole > 60
    figure.locator("rect[data-part]").first.hover()
    assert figure.locator(".said").text_content() == "phases: waiting for data, 200 µs, from 0 µs on"
    assert figure.locator(".tools span").text_content() == "1 ms, on the host"
    figure.get_by_role("button", name="Zoom in").press("Enter")
    assert figure.locator(".tools span").text_content() == "250 µs to 750 µs of 1 ms"
    assert figure.locator("rect[data-part]").count() < whole
    box = figure.locator("svg").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 30)
    page.mouse.up()
    assert figure.locator(".tools span").text_content() != "250 µs to 750 µs of 1 ms"
    figure.get_by_role("button", name="Whole step").click()
    assert figure.locator("rect[data-part]").count() == whole


def test_colours_of_all_parts_are_known_in_light_and_dark(page: Any) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fills = page.eval_on_selector_all(
            "#timeline rect[data-part]", "all => all.map((r) => getComputedStyle(r).fill)"
        )
        assert "rgb(0, 0, 0)" not in fills
        swatches = page.eval_on_selector_all(".colours i", "all => all.map((i) => getComputedStyle(i).backgroundColor)")
        assert "rgba(0, 0, 0, 0)" not in swatches


def test_names_from_outside_are_text_in_the_drawing(page: Any) -> None:
    figure = page.locator("#timeline .figure:has(.said)").nth(1)
    names = [figure.locator(".said").text_content()]
    for place in range(figure.locator("rect[data-part]").count()):
        part = figure.locator("rect[data-part]").nth(place)
        part.dispatch_event("pointermove")
        names.append(figure.locator(".said").text_content())
        if plain.visible(sample_report.HOSTILE)[:20] in (names[-1] or ""):
            break
    assert plain.visible(sample_report.HOSTILE)[:20] in (names[-1] or "")


def open_table(page: Any, title: str) -> Any:
    details = page.locator("#operators > details", has=page.locator("summary", has_text=title)).first
    details.locator("summary").first.click()
    return details


def column(details: Any, number: int) -> list[str]:
    return details.locator(f"tbody tr:visible td:nth-child({number})").all_text_contents()


def test_a_large_table_sorts_by_keyboard_as_numbers_and_goes_back(page: Any) -> None:
    details = open_table(page, "Operators by device time")
    before = column(details, 1)
    heading = details.locator("th", has_text="total")
    button = heading.locator("button")
    button.focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    times = [float(text) for text in column(details, 5)]
    assert times == sorted(times, reverse=True)
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in column(details, 5)] == sorted(times)
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") is None
    assert column(details, 1) == before


def test_a_large_table_shows_the_rows_that_are_looked_for(page: Any) -> None:
    details = open_table(page, "Operators by host time")
    field = details.get_by_role("searchbox")
    field.fill("OP1")
    assert set(column(details, 1)) == {"aten::op1", "aten::op10", "aten::op11", "aten::op12", "aten::op13"}
    assert details.get_by_role("status").text_content() == "5 of 14 rows"
    field.fill("nothing of this name")
    assert column(details, 1) == []
    field.fill("")
    assert len(column(details, 1)) == 14


def visible_texts(table: Any) -> list[list[str]]:
    rows = table.locator("tr:visible").all()
    return [[cell.strip() for cell in row.locator("th:visible, td:visible").all_text_contents()] for row in rows]


@pytest.mark.parametrize("with_scripts", [True, False])
def test_a_slider_shows_one_step_at_a_time_and_without_a_script_all_steps_are_there(
    browser: Any, with_scripts: bool
) -> None:
    times = {"gemm": (7e3, 3e3), "relu": (0, 5e3), "copy": (9e3, 0)}
    rows = tuple(StepTimes(name=name, calls=(1, 1), times_us=of_step) for name, of_step in times.items())
    found = ByStep(steps=("ProfilerStep#7", "ProfilerStep#8"), kernels=rows, kernels_count=3)
    whole = [
        ["kernel", "step 7", "step 8", "calls"],
        ["gemm", "7", "3", "2"],
        ["relu", "0", "5", "2"],
        ["copy", "9", "0", "2"],
    ]
    one = browser.new_page()
    one.set_default_timeout(PATIENCE_MS)
    body = [html_page.table_html(kernel_step_table(found))]
    one.set_content(html_page.page("t", body, with_scripts=with_scripts))
    table, slider = one.locator("table"), one.get_by_role("slider")
    assert visible_texts(table) == whole
    assert slider.count() == with_scripts
    if with_scripts:
        slider.focus()
        one.keyboard.press("ArrowRight")
        assert visible_texts(table) == [["kernel", "step 7", "calls"], ["copy", "9", "2"], ["gemm", "7", "2"]]
        one.keyboard.press("ArrowRight")
        assert visible_texts(table) == [["kernel", "step 8", "calls"], ["relu", "5", "2"], ["gemm", "3", "2"]]
        assert slider.get_attribute("aria-valuetext") == "step 8"
        one.keyboard.press("Home")
        assert visible_texts(table) == whole
        assert one.get_by_role("status").text_content() == "all steps"
    one.close()


def test_a_step_is_filtered_and_sorted_as_the_whole_table_is(page: Any) -> None:
    details = open_table(page, "Operators by step")
    assert details.get_by_role("slider").count() == 1
    details.get_by_role("slider").press("End")
    assert details.locator("th:visible").all_text_contents()[1:] == ["step 9", "calls"]
    button = details.locator("th:visible button").nth(1)
    button.press("Enter")
    times = [float(text) for text in details.locator("tbody tr:visible td:nth-child(4)").all_text_contents()]
    assert len(times) >= 5
    assert times == sorted(times, reverse=True)


def test_a_name_that_was_cut_is_found_by_what_is_left_out(browser: Any) -> None:
    kernel: Column[int] = Column("kernel", lambda n: f"ker...nel{n}", hover=lambda n: f"ker MIDDLE{n} nel")
    table = Table.of("t", range(12), kernel)
    one = browser.new_page()
    one.set_default_timeout(PATIENCE_MS)
    one.set_content(html_page.page("t", [html_page.table_html(table)]))
    one.get_by_role("searchbox").fill("middle7")
    assert one.locator("tbody tr:visible").all_text_contents() == ["ker...nel7"]
    one.close()


def test_an_operator_unfolds_into_its_shapes(page: Any) -> None:
    first = page.locator("#operators ol.bars details").first
    assert not first.locator("table").is_visible()
    first.locator("summary").press("Enter")
    assert first.locator("table").is_visible()
    assert "32x64, 64x112" in (first.locator("table").text_content() or "")


SORTED: dict[str, list[str]] = {
    "units": ["1.5 GiB", "3 MiB", "12 KiB", "1,200", "900 B", "<0.001", "2.00e-7"],
    "changes": ["x1,234", "x12", "+100.0 %", "+25.0 %", "+<0.1 %", "+0.0 %", "-<0.1 %", "\u22123 %", "-50.0 %"],
    "bounds": ["≤ 12x", "≤ 3.5x", "2.5x", "≤ 2x, 4 ms/step", "1.5x", "≤ 1.2x", "1.1x", "≤ 1.02x"],
}
"""Numbers as the tables show them, largest first."""


@pytest.mark.parametrize("kind", SORTED)
def test_the_sorting_script_reads_numbers_as_shown_and_keeps_what_is_not_measured_last(browser: Any, kind: str) -> None:
    texts = ["-", *sorted(SORTED[kind])]
    assert texts[1:] != SORTED[kind]
    table = Table.of("t", (*texts, "sum"), Column("size", str, FIGURE), foot=1)
    one = browser.new_page()
    one.set_default_timeout(PATIENCE_MS)
    one.set_content(html_page.page("t", [html_page.table_html(table)]))
    one.get_by_role("button").click()
    assert one.locator("td").all_text_contents() == [*SORTED[kind], "-", "sum"]
    one.close()
