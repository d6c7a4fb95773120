"""The parts of a page that show trace windows: complete without script, alike in a run's page and a trace's."""

import io
import json
import re

import msgspec
import pytest
import sample_report
import window_samples
from parsed_page import Page
from tiny_traces import document, span

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks import html_page, plain
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.tables import Column, Table
from lightning_gpuprof.sinks.trace_html import render_trace_html
from lightning_gpuprof.sinks.views import windows
from lightning_gpuprof.sinks.window_html import idle_html, opening_html, operators_html
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.reader import Trace


@pytest.fixture(scope="module")
def found() -> TraceAnalysis:
    return window_samples.analysis()


@pytest.fixture(scope="module")
def page(found: TraceAnalysis) -> str:
    return render_html(window_samples.report(window_samples.window(found)))


def part(text: str, anchor: str) -> str:
    match = re.search(rf'<section id="{anchor}">.*?</section>', text, re.DOTALL)
    return match[0]


def test_both_pages_have_the_timeline_and_the_operators_under_the_same_names(page: str, found: TraceAnalysis) -> None:
    for text in (page, render_trace_html(found, name="t.json")):
        timeline, operators = part(text, "timeline"), part(text, "operators")
        assert 'data-figure="timeline"' in timeline
        assert "GPU 0 stream 8" in Page(timeline).text  # in the table, too
        assert "aten::op13" in Page(operators).text
        assert "32x64, 64x112" in Page(operators).text


def test_the_five_operators_with_the_most_time_have_a_line_over_the_steps(found: TraceAnalysis, page: str) -> None:
    for text in (page, render_trace_html(found, name="t.json")):
        drawn = part(text, "operators").partition("operators with the most host time, step by step</h4>")[2]
        lines = re.findall(r'<polyline points="([^"]*)"[^>]*><title>([^<]*)</title>', drawn)
        assert [name for _, name in lines] == [row.name for row in found.by_step.operators[:5]]
        assert {len(points.split()) for points, _ in lines} == {len(found.by_step.steps)}
    first = msgspec.structs.replace(found.by_step, steps=found.by_step.steps[:1])
    assert "step by step" not in operators_html(msgspec.structs.replace(found, by_step=first))


def test_every_number_of_the_timeline_is_there_without_script(page: str, found: TraceAnalysis) -> None:
    rows = sum(len(lane.sums) for lane in found.timeline.lanes)
    body = part(page, "timeline")
    assert body.count("<tr>") == rows + 1
    (data,) = Page(body).scripts
    assert len(json.loads(data)["lanes"]) == len(found.timeline.lanes)


def test_a_page_with_only_a_timeline_needs_no_plotly(found: TraceAnalysis) -> None:
    text = render_trace_html(msgspec.structs.replace(found, roofline=None), name="t.json")
    assert "plotly.js" not in text
    assert "gpuprof.figures.timeline" in text
    assert len(text) < 200_000


def test_pieces_of_the_idle_bar_are_the_whole_window(found: TraceAnalysis) -> None:
    widths = [float(width) for width in re.findall(r'<span style="[^"]*;width:([\d.]+)%', idle_html(found))]
    assert sum(widths) == pytest.approx(100, abs=0.01)
    text = Page(idle_html(found)).text
    for words in ("busy", "slow launches", "data"):
        assert re.search(rf"{words} [\d.]+ %", text)


def test_the_ring_of_types_is_closed_and_its_legend_sums_to_all(found: TraceAnalysis) -> None:
    text = operators_html(found)
    lengths = [float(a) + 0.4 for a in re.findall(r'<circle[^>]*stroke-dasharray="([\d.]+) ', text)]
    assert sum(lengths) == pytest.approx(100, abs=0.1)
    legend = Page(text[text.index('<ul class="colours">') : text.index("<ol")]).text
    assert sum(map(float, re.findall(r"([\d.]+) %", legend))) == pytest.approx(100, abs=0.5)


def test_operators_come_in_order_of_their_time_and_unfold_into_shapes(found: TraceAnalysis) -> None:
    text = operators_html(found)
    names = re.findall(r'<span class="name"><bdi>([^<]*)</bdi>', text)
    assert names == [f"aten::op{number}" for number in range(13, -1, -1)]
    assert text.count("<details>") == len(names)
    assert text.count("<summary>") == len(names)


def test_the_shapes_of_an_operator_add_up_to_its_own_time(found: TraceAnalysis) -> None:
    assert found.operators is not None
    first = found.operators.operators[0]
    of_shape = next(one for one in found.operators.shapes or () if one.operator == first.operator)
    nested = msgspec.structs.replace(of_shape, device_total_us=2 * (of_shape.device_self_us or 0))
    changed = msgspec.structs.replace(found.operators, shapes=(nested,))
    text = operators_html(msgspec.structs.replace(found, operators=changed))
    inner = text[text.index("<table") : text.index("</table>")]
    assert numbers.fixed((first.device_self_us or 0) / 1000) in inner
    assert "self" in inner
    assert "total" not in inner


def test_without_a_device_operators_are_told_by_host_time(found: TraceAnalysis) -> None:
    text = render_html(window_samples.report(window_samples.window(window_samples.analysis(on_device=False))))
    operators = Page(part(text, "operators")).text
    assert "share of host time" in operators
    assert "device time" not in operators
    assert operators.count("Operators by host time") == 1
    assert "Busy and idle" not in text


def test_windows_without_these_analyses_say_so() -> None:
    report = window_samples.report(window_samples.window(TraceAnalysis()))
    assert "No trace window holds this." in windows.timeline(report)
    assert "No trace window holds this." in windows.operators(report)
    assert "No trace window holds this." in windows.timeline(sample_report.minimal_report())


def test_several_windows_have_their_steps_as_titles_and_one_has_none(found: TraceAnalysis) -> None:
    one = window_samples.window(found)
    other = msgspec.structs.replace(one, start_step=300, stop_step=302)
    assert "<h3>" not in windows.timeline(window_samples.report(one))
    both = windows.timeline(window_samples.report(one, other))
    assert both.index("Steps 200 to 202") < both.index("Steps 300 to 302")
    assert both.count("data-figure") == 2


def test_the_command_for_perfetto_can_be_copied_whatever_the_file_is_called(page: str) -> None:
    assert "<code>gpuprof trace rank0.17.pt.trace.json.gz --perfetto</code>" in part(page, "windows")
    assert "<code>gpuprof trace &#x27;a b&lt;.json&#x27; --perfetto</code>" in opening_html("a b<.json")
    assert opening_html("") == ""
    assert not re.search(r"https?://", page)


def test_hostile_names_add_no_element_no_attribute_and_no_script(found: TraceAnalysis) -> None:
    harmless = Page(render_html(window_samples.report(window_samples.window(found))))
    for suffix in (sample_report.HOSTILE, window_samples.HUGE):
        bad = window_samples.window(window_samples.analysis(suffix), file=suffix)
        text = render_html(window_samples.report(bad))
        hostile = Page(text)
        assert set(hostile.tags) <= set(harmless.tags)
        assert len(hostile.scripts) == len(harmless.scripts)
        assert {(tag, name) for tag, name, _ in hostile.attributes} <= {
            (tag, name) for tag, name, _ in harmless.attributes
        }
        assert "n" * 400 not in text
        assert not set("\x1b\x07\u202e\u2028") & set(text)
        trace_page = Page(render_trace_html(bad.analysis or found, name=suffix))
        assert not [name for _, name, _ in trace_page.attributes if name.startswith("on")]
        assert "alert(1)" not in "".join(script for script in trace_page.scripts if not script.startswith(("{", '{"')))
    assert plain.visible("aten::op3") in harmless.text


def test_the_page_of_a_trace_has_the_rows_that_a_reader_may_look_for() -> None:
    many = window_samples.events()
    many += [span("cpu_op", f"aten::rare{number}", 3000 + 2 * number, 1) for number in range(23)]
    many += [span("kernel", "late", 4000, 5, pid=0, tid=7, device=0, stream=7, correlation=9999)]
    text = json.dumps(document(many)).encode()
    whole = analyse(Trace.read(io.BytesIO(text)))
    body = part(render_trace_html(whole, name="t.json"), "operators")
    assert "aten::rare22" in body
    assert "aten::rare22" not in Page(windows.operators(window_samples.report(window_samples.window(whole)))).text


def table(rows: int, foot: int = 0) -> Table:
    return Table.of("t", range(rows), Column("a", str), foot=foot)


def test_tables_that_are_large_are_marked_for_the_script_and_rows_that_sum_up_are_their_foot() -> None:
    assert "data-large" not in html_page.table_html(table(html_page.LARGE_FROM - 1))
    assert "data-large" in html_page.table_html(table(html_page.LARGE_FROM))
    with_foot = html_page.table_html(table(3, foot=1))
    assert with_foot.index("</tbody>") < with_foot.index("<tfoot>") < with_foot.index(">2<")
    assert html_page.scripts(["<p>no table</p>"]) == ()
    (script,) = html_page.scripts([html_page.table_html(table(2))])  # folds it on a narrow screen
    assert b"plotly.js" not in script
