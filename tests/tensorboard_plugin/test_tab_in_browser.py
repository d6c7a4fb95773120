"""The tab in a started TensorBoard, drawn by a real browser that can reach nothing else, over real fits."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import log_directories
import msgspec
import patience
import pytest
import sample_report
from chromium import PATIENCE_MS
from planted_runs import Planted, Sleepy, fit
from tensorboard_server import served
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.tensorboard_plugin.run_list import MAX_TREND

pytestmark = pytest.mark.slow
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
sync_api.expect.set_options(timeout=PATIENCE_MS)  # which no page's own timeout is for
SLOW, FAST = "digits/version_0/gpuprof", "digits/version_1/gpuprof"


def real_fit(folder: Path, item_s: float) -> None:
    """A fit with a trace window, which is analysed."""
    with pytest.MonkeyPatch.context() as changed:
        patience.begin(changed.setattr)
        fit(
            folder,
            Planted(),
            DataLoader(Sleepy(120, item_s), batch_size=2),
            profiler=GpuProfiler(windows=[(20, 22)], nvml=False, reports=["json"]),
        )


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real fit, a run that goes on, one with names that try to leave the page."""
    root = tmp_path_factory.mktemp("tab")
    real_fit(root / Path(SLOW).parent, 0.004)
    (root / "live").mkdir()
    lines = log_directories.journal_lines(root, 3)
    (root / "live" / "rank0.jsonl").write_bytes(b"".join(lines[: log_directories.up_to_epoch(lines, 1)]))
    hostile = root / sample_report.HOSTILE.replace("/", "")
    hostile.mkdir()
    json_report.write(sample_report.hostile_report(), hostile / "report.json")
    return root


@pytest.fixture(scope="module")
def second_run(logdir: Path) -> str:
    """Another real fit, which comes while TensorBoard is there."""
    real_fit(logdir / Path(FAST).parent, 0.001)
    return FAST


@pytest.fixture(scope="module")
def server(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One for all tests."""
    with served(logdir, tmp_path_factory.mktemp("server") / "server.log") as address:
        yield address


class Reader:
    """A page that notes what it asks of other hosts and what its console says."""

    def __init__(self, browser: Any, server: str) -> None:
        self.server = server
        self.page = browser.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.elsewhere: list[str] = []
        self.said: list[str] = []
        self.watching = True
        self.page.route("**/*", self._let_through)
        self.page.on("console", lambda said: self._note(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))

    def _note(self, said: str) -> None:
        if self.watching:
            self.said.append(said)

    def _let_through(self, route: Any) -> None:
        if route.request.url.startswith((self.server, "data:", "blob:")):
            route.continue_()
        else:
            if self.watching:
                self.elsewhere.append(route.request.url)
            route.abort()

    def open(self, **state: str) -> Any:
        """The tab itself, without TensorBoard's own page around it, at a run and a view."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.server}/data/plugin_entry.html?name=gpuprof#{address(state)}")
        return self.page

    def open_in_tensorboard(self, **state: str) -> Any:
        """The frame of the tab in TensorBoard's page."""
        # TensorBoard does not know "#gpuprof&": it would show the first tab that is active.
        self.page.goto(f"{self.server}/#{'&'.join(['gpuprof', *filter(None, [address(state)])])}")
        return self.page.frame_locator("iframe[src*='name=gpuprof']")


def address(state: dict[str, str]) -> str:
    from urllib.parse import quote

    return "&".join(f"p.gpuprof.{key}={quote(value, safe='')}" for key, value in state.items())


@pytest.fixture
def reader(browser: Any, server: str) -> Iterator[Reader]:
    """No test may ask another host for anything, and none may leave an error on the console."""
    opened = Reader(browser, server)
    yield opened
    opened.page.close()
    assert opened.elsewhere == []
    assert opened.said == []


def shown(page: Any, run: str, view: str) -> Any:
    """The part of the page with a view, once it is drawn."""
    part = page.locator(f"main[data-shown='{run}|{view}'][aria-busy='false']")
    part.wait_for()
    # Figures may be drawn one after the other, so that the page can be read meanwhile.
    part.locator("[data-figure]:not(:has(.main-svg, canvas, .lanes))").first.wait_for(state="detached")
    return part


def test_the_tab_appears_lists_the_runs_and_draws_a_figure(reader: Reader) -> None:
    tab = reader.open_in_tensorboard()
    reader.page.get_by_role("tab", name="GPU Profiler").wait_for()
    tab.get_by_role("link", name=SLOW.removesuffix("/gpuprof")).click()
    shown(tab, SLOW, "overview").get_by_text("checks passed").wait_for()
    tab.get_by_role("link", name="Time", exact=True).click()
    assert shown(tab, SLOW, "group-time").locator(".main-svg").count() >= 1
    assert "p.gpuprof.view=group-time" in reader.page.url


def test_where_there_is_one_run_only_it_is_shown_at_once_and_the_list_is_one_click_away(
    browser: Any, logdir: Path, tmp_path: Path
) -> None:
    with served((logdir / SLOW).parent, tmp_path / "server.log") as server:
        page = Reader(browser, server).open()
        page.locator("main[data-shown$='|overview'][aria-busy='false']").get_by_text("checks passed").wait_for()
        page.get_by_role("link", name="GPU Profiler").click()
        page.get_by_role("heading", name="Runs").wait_for()
        page.close()


def test_every_view_shows_its_heading_and_draws_its_figures(reader: Reader) -> None:
    page = reader.open(run=SLOW)
    shown(page, SLOW, "overview")
    anchors = [link.get_attribute("href")[1:] for link in page.locator("nav a").all()]
    assert len(anchors) == 8
    for anchor in anchors:
        page.locator(f"nav a[href='#{anchor}']").click()
        part = shown(page, SLOW, anchor)
        assert part.locator("h2").count() >= 1, anchor
        figures = part.locator("[data-figure]").count()
        assert part.locator("[data-figure]:has(.main-svg, svg, canvas)").count() == figures, anchor
        assert page.locator("nav a[aria-current='page']").get_attribute("href") == f"#{anchor}"


def test_a_link_leads_back_to_the_run_and_the_view_and_so_does_the_way_back(reader: Reader) -> None:
    tab = reader.open_in_tensorboard(run=SLOW, view="phases")
    shown(tab, SLOW, "phases").get_by_text("Phases of a step").wait_for()
    tab.get_by_role("link", name="Findings", exact=True).click()
    shown(tab, SLOW, "group-findings")
    reader.page.go_back()
    shown(tab, SLOW, "phases")
    reader.watching = False  # the other tab asks for its charts
    reader.page.get_by_role("tab", name="PYTORCH_PROFILER").click()
    reader.page.get_by_role("tab", name="GPU Profiler").click()
    shown(tab, SLOW, "phases")
    reader.page.wait_for_url("**/*p.gpuprof.view=phases*")


def test_a_finding_leads_to_its_moment_in_the_timeline(reader: Reader) -> None:
    page = reader.open(run=SLOW, view="group-findings")
    finding = shown(page, SLOW, "group-findings").locator(".finding:has([data-moment])").first
    moment = finding.locator("[data-moment]").get_attribute("data-moment")
    finding.locator("summary").click()
    finding.locator("[data-moment]").click()
    part = shown(page, SLOW, "group-trace")
    part.locator(".said", has_text=f"{moment}: ").wait_for()


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)], ids=["laptop", "telephone"])
def test_the_first_screen_of_the_tab_is_one_view(width: int, height: int, reader: Reader) -> None:
    reader.page.set_viewport_size({"width": width, "height": height})
    page = reader.open(run=SLOW, view="overview")
    box = shown(page, SLOW, "overview").locator(".first").bounding_box()
    assert box["y"] + box["height"] <= height
    assert "gpuprof compare" in page.locator(".first").inner_text()
    assert "BEFORE" not in page.locator(".first").inner_text()


LINES_OF = """(name) => {
  const lines = new Map(), walk = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (let at = 0; at < node.data.length; at++) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const top = Math.round(range.getBoundingClientRect().top);
      lines.set(top, (lines.get(top) ?? "") + node.data[at]);
    }
  }
  return [...lines.values()];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_run_s_name_breaks_between_its_words(width: int, reader: Reader, logdir: Path) -> None:
    for name in ("tb_logs/lightning_logs/version_0", "sweeps/resnet-50_learning-rate_three_seed-eleven/version_12"):
        made = logdir / name / "gpuprof"
        made.mkdir(parents=True, exist_ok=True)
        json_report.write(sample_report.full_report(), made / "report.json")
    reader.page.set_viewport_size({"width": width, "height": 844})
    page = reader.open()
    page.get_by_role("link", name="version_12").wait_for()
    lines = {"".join(one): one for one in (link.evaluate(LINES_OF) for link in page.locator(".runs .name").all())}
    assert any(len(one) > 1 for one in lines.values())
    for name in (
        "tb_logs/lightning_logs/version_0",
        "sweeps/resnet-50_learning-rate_three_seed-eleven/version_12",
        SLOW.removesuffix("/gpuprof"),
    ):
        assert all(line.endswith(("/", "-", "_")) for line in lines[name][:-1]), lines[name]
        assert lines[name][-1].split("/")[-1] == name.split("/")[-1], "a short folder stays whole"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    list_of_runs = page.locator(".scroll")
    assert list_of_runs.evaluate("(area) => area.scrollWidth <= area.clientWidth"), "verdict and gain without scrolling"


def test_no_column_of_the_list_is_cut_on_a_laptop(reader: Reader, logdir: Path) -> None:
    """The widest verdict, a million steps and a trend of all bars, beside names that need several lines."""
    report = sample_report.full_report()
    report = msgspec.structs.replace(
        report,
        verdict=msgspec.structs.replace(report.verdict, kind="hardware-limited"),
        steps=msgspec.structs.replace(report.steps, count=1_234_567),
        run={**report.run, "started": "2026-12-31T23:59:00"},
    )
    for number in range(MAX_TREND):
        made = logdir / f"sweeps/language-model_learning-rate_three_seed-eleven/version_{number}" / "gpuprof"
        made.mkdir(parents=True)
        json_report.write(report, made / "report.json")
    reader.page.set_viewport_size({"width": 1280, "height": 720})
    page = reader.open()
    page.get_by_role("searchbox", name="Search runs").fill("language-model")
    page.get_by_role("status").get_by_text(f"{MAX_TREND} of ").wait_for()
    edge = page.locator(".scroll").bounding_box()
    cells = [cell.bounding_box() for cell in page.locator(".runs :is(th, td):last-child").all()]
    assert len(cells) == MAX_TREND + 1
    assert max(cell["x"] + cell["width"] for cell in cells) <= edge["x"] + edge["width"]
    dates = [cell.evaluate(LINES_OF) for cell in page.locator(".runs td:last-child").all()]
    assert all(lines[0].startswith("12/31/26,") for lines in dates), "a date is not broken"


def test_a_request_to_another_host_would_be_seen(reader: Reader) -> None:
    reader.page.set_content("<img src='http://gpuprof.example/x.png'>")
    reader.page.wait_for_load_state()
    assert reader.elsewhere == ["http://gpuprof.example/x.png"]
    reader.elsewhere, reader.said = [], []


def test_two_runs_side_by_side_show_the_change(reader: Reader, second_run: str) -> None:
    page = reader.open(run=SLOW, view="phases")
    shown(page, SLOW, "phases")
    while page.locator(f"#other option[value='{second_run}']").count() == 0:
        page.reload()
        shown(page, SLOW, "phases")
    page.get_by_label("beside").select_option(second_run)
    page.locator(".columns .column").nth(1).wait_for()
    row = page.locator(".changes tr", has_text="waiting for data")
    assert re.search(r"[+-][\d,.]+ %", row.inner_text())
    names = page.locator(".run-name").all_inner_texts()
    assert names == [name.removesuffix("/gpuprof") for name in (SLOW, second_run)]
    page.get_by_label("beside").select_option("")
    page.locator(".columns").wait_for(state="detached")


def axes_beside(page: Any, view: str) -> list[Any]:
    """For each column the ranges of all axes of its first figure, once both are drawn."""
    page.evaluate("(view) => { location.hash = location.hash.replace(/view=[^&]*/, `view=${view}`); }", view)
    shown(page, SLOW, view)
    page.locator(".column:nth-child(2) .main-svg").first.wait_for()
    return page.evaluate(
        "[...document.querySelectorAll('.column')].map((column) => column.querySelector('.js-plotly-plot')._fullLayout)"
        ".map((layout) => Object.keys(layout).filter((key) => /^[xy]axis/.test(key)).sort()"
        ".map((key) => [layout[key].title?.text, layout[key].range.map(Number)]))"
    )


def test_figures_of_two_runs_side_by_side_have_the_same_axes(reader: Reader, second_run: str) -> None:
    page = reader.open(run=SLOW, other=second_run, view="steps")
    for view in ("steps", "curves", "phases"):
        first, second = axes_beside(page, view)
        assert first == second, view
    page.locator("nav a[href='#group-trace']").click()
    shown(page, SLOW, "group-trace")
    ticks = [column.locator("text.tick").all_text_contents() for column in page.locator(".column").all()]
    assert ticks[0] == ticks[1] != []


def drawn_beside(page: Any, *both: dict[str, Any], kind: str = "steps") -> None:
    """Two figures in the place of the view, once they are drawn."""
    if not page.evaluate("'Plotly' in globalThis"):
        for name in ("plotly.js", "figures.js"):
            page.add_script_tag(url=name)
    page.evaluate(
        """([both, kind]) => {
          const main = document.querySelector("main"), part = (one) => `<div class="column"><div class="figure"
            data-figure="${kind}"><script type="application/json">${JSON.stringify(one)}</script></div></div>`;
          main.innerHTML = `<div class="columns">${both.map(part).join("")}</div>`;
          gpuprof.draw(main);
        }""",
        [both, kind],
    )
    page.locator(".column:nth-child(2) .main-svg").first.wait_for()


def test_the_longest_steps_are_cut_in_both_runs_or_in_none(reader: Reader) -> None:
    page = reader.open(run=SLOW, view="steps")
    shown(page, SLOW, "steps")
    steps = {
        "period_ms": [10.0] * 40,
        "phases": [{"phase": "forward", "words": "forward", "ms": [10.0] * 40}],
        "marks": [],
    }
    calm = {**steps, "batch": list(range(40)), "t_s": None}
    rough = {**calm, "period_ms": [30.0] * 39 + [900.0], "batch": list(range(50, 90))}
    drawn_beside(page, calm, rough)
    ranges = "[...document.querySelectorAll('.js-plotly-plot')].map(({layout: l}) => [l.xaxis.range, l.yaxis.range])"
    assert page.evaluate(ranges) == [[[0, 90], [0, 60]]] * 2
    page.get_by_role("button", name="Show the longest steps in full").first.click()
    assert page.evaluate(ranges) == [[[0, 90], [0, 945]]] * 2
    page.get_by_role("button", name="Clip the longest steps").last.click()
    assert page.evaluate(ranges) == [[[0, 90], [0, 60]]] * 2


def test_the_plots_of_two_runs_are_equally_high_whatever_happened_in_them(reader: Reader) -> None:
    page = reader.open()
    page.locator("table.runs").wait_for()
    mark = {"first": [3], "last": [3], "ms": [None]}
    phases = ["data_wait", "forward", "backward", "optimizer", "zero_grad", "logging", "validation"]
    few = {"batch": list(range(9)), "period_ms": [9.0] * 9, "t_s": None, "marks": []}
    many = {**few, "marks": [{**mark, "kind": kind} for kind in ("outlier", "window", "epoch")]}
    drawn_beside(
        page,
        {**few, "phases": [{"phase": "forward", "words": "forward", "ms": [9.0] * 9}]},
        {**many, "phases": [{"phase": phase, "words": words_of(phase), "ms": [1.0] * 9} for phase in phases]},
    )
    first, second = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map((one) => [one._fullLayout.height,"
        " one._fullLayout._size.h, one._fullLayout.yaxis.domain])"
    )
    assert first == second


def test_the_rooflines_of_two_runs_have_the_same_axes(reader: Reader) -> None:
    page = reader.open()
    page.locator("table.runs").wait_for()
    layout = {"xaxis": {"type": "log"}, "yaxis": {"type": "log"}}
    slow, fast = (
        {"data": [{"type": "scatter", "x": [1, 10], "y": y}], "layout": layout} for y in ([1e6, 1e9], [1, 1e12])
    )
    drawn_beside(page, slow, fast, kind="plotly")
    first, second = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(({layout: l}) => [l.xaxis.range, l.yaxis.range])"
    )
    assert first == second == [pytest.approx([-0.06, 1.06]), pytest.approx([-0.72, 12.72])]


def test_what_only_one_of_two_runs_measured_has_its_place_in_both(reader: Reader) -> None:
    page = reader.open()
    page.locator("table.runs").wait_for()
    line = {"name": "process", "batch": [0, 9], "t_s": [0, 1], "values": [1, 2]}
    panels = [{"title": title, "unit": "x", "lines": [line]} for title in ("CPU time", "Resident memory", "Disk")]
    first, second = ({"panels": own, "limits": [0, 10], "limits_s": [0, 1]} for own in (panels[::2], panels[1:]))
    drawn_beside(page, first, second, kind="curves")
    titles = "[...document.querySelectorAll('.js-plotly-plot')].map((one) => one.layout.annotations.map((a) => a.text))"
    columns = page.evaluate(titles)
    for column, absent in zip(columns, ("Resident memory", "CPU time"), strict=True):
        assert [text for text in column if "not measured" in text] == [f"<b>{absent}</b>, x   not measured"]
    order, other = ([text.partition("</b>")[0] for text in column] for column in columns)
    assert order == other
    assert sorted(order) == ["<b>CPU time", "<b>Disk", "<b>Resident memory"]
    phases = [
        {"phase": phase, "words": words_of(phase), "p05": 1, "median": 2, "p95": 3}
        for phase in ("data_wait", "forward", "backward")
    ]
    drawn_beside(page, {"rows": phases[::2]}, {"rows": phases[1:]}, kind="spread")
    rows = "[...document.querySelectorAll('.js-plotly-plot')].map((one) => one.layout.yaxis.categoryarray)"
    above, beside = page.evaluate(rows)
    assert above == beside
    assert sorted(above) == ["backward", "forward", "waiting for data"]


def test_the_titles_of_curves_end_inside_of_a_narrow_figure(reader: Reader) -> None:
    page = reader.open()
    page.locator("table.runs").wait_for()
    lines = [
        {"name": f"gpu0 {what} by torch", "batch": [0, 9], "t_s": [0, 1], "values": [1, 2]} for what in ("held", "used")
    ]
    panel = {"title": "GPU memory", "unit": "GiB", "lines": [*lines, {**lines[0], "name": "gpu0 reserved by torch"}]}
    curves = {"panels": [panel], "limits": [0, 10], "limits_s": [0, 1]}
    drawn_beside(page, curves, curves, kind="curves")
    edges = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map((one) => [one.getBoundingClientRect().right,"
        " one.querySelector('.annotation-text').getBoundingClientRect().right])"
    )
    assert all(text < figure for figure, text in edges)


def test_the_bars_of_operators_lie_in_their_column_and_not_on_the_next(reader: Reader) -> None:
    page = reader.open()
    page.locator("table.runs").wait_for()
    row = "<li class='head'><span>aten::convolution_backward</span><span></span><span class='n'>846 ms</span>"
    row += "<span class='n'>31.2 %</span><span class='n'>9 calls</span></li>"
    column = f"<div class='column'><ol class='bars'>{row}</ol></div>"
    html = f"<div class='columns'>{column * 2}</div>"
    page.evaluate("(html) => { document.querySelector('main').innerHTML = html }", html)
    edges = page.evaluate(
        "[...document.querySelectorAll('.column')].map((one) => [one.scrollWidth <= one.clientWidth,"
        " getComputedStyle(one.querySelector('.head')).gridTemplateColumns.split(' ').length])"
    )
    assert edges == [[True, 3], [True, 3]]


def test_the_rows_of_a_long_table_can_be_searched(reader: Reader) -> None:
    page = reader.open(run=SLOW, view="conditions")
    part = shown(page, SLOW, "conditions")
    field = part.locator("input[type=search]").first
    field.locator("xpath=ancestor::details").evaluate_all("all => all.forEach((d) => { d.open = true; })")
    rows = field.locator("xpath=following::table[1]").locator("tbody tr:not([hidden])")
    everything = rows.count()
    assert everything > 1
    field.fill("no such condition anywhere")
    assert rows.count() == 0
    field.fill("")
    assert rows.count() == everything


def test_a_run_that_goes_on_is_shown_again_as_it_grows_where_the_reader_was(reader: Reader, logdir: Path) -> None:
    lines = log_directories.journal_lines(logdir, 3)
    journal = logdir / "live" / "rank0.jsonl"
    first = log_directories.up_to_epoch(lines, 1)
    journal.write_bytes(b"".join(lines[:first]))
    page = reader.open(run="live", view="overview")
    part = shown(page, "live", "overview")
    assert page.locator(".state").inner_text() == "running"
    part.locator(".meta", has_text="300 steps").first.wait_for()
    page.set_viewport_size({"width": 700, "height": 300})
    page.evaluate("scrollTo(0, 150)")
    page.evaluate("document.querySelector('main').firstElementChild.dataset.old = 'yes'")
    with journal.open("ab") as file:
        file.write(b"".join(lines[first:]))
    part.locator(".meta", has_text="900 steps").first.wait_for()
    page.get_by_text("finished").first.wait_for()
    assert page.evaluate("scrollY") == 150
    assert page.locator("[data-old]").count() == 0


def test_a_zoom_is_kept_in_the_views_of_a_run_but_not_in_another_run(reader: Reader) -> None:
    page = reader.open(run=SLOW, view="steps")
    shown(page, SLOW, "steps")
    zoomed = "document.querySelector('main .js-plotly-plot').layout.xaxis.range.map(Number)"
    page.evaluate("Plotly.relayout(document.querySelector('main .js-plotly-plot'), {'xaxis.range': [40, 50]})")
    page.locator("nav a[href='#group-trace']").click()
    shown(page, SLOW, "group-trace")
    assert page.evaluate("[...gpuprof.run.others.keys()].every((canvas) => canvas.isConnected)")
    page.locator("nav a[href='#group-time']").click()
    shown(page, SLOW, "group-time")
    assert page.evaluate(zoomed) == [40, 50]
    page.locator("#run").select_option("live")
    shown(page, "live", "group-time")
    begin, end = page.evaluate(zoomed)
    assert begin == 0
    assert end >= 300


def test_what_has_not_changed_is_not_drawn_again(reader: Reader, logdir: Path) -> None:
    lines = log_directories.journal_lines(logdir, 3)
    journal = logdir / "still" / "rank0.jsonl"
    journal.parent.mkdir()
    journal.write_bytes(b"".join(lines[: log_directories.up_to_epoch(lines, 2)]))
    page = reader.open(run="still", view="phases")
    shown(page, "still", "phases")
    page.evaluate("document.querySelector('main').firstElementChild.dataset.old = 'yes'")
    with page.expect_response(lambda r: "/view?" in r.url and r.status == 304):
        pass
    assert page.locator("[data-old]").count() == 1


def test_hostile_names_run_nothing_and_are_shown(reader: Reader) -> None:
    reader.page.on("dialog", lambda dialog: reader.said.append(dialog.message))
    page = reader.open()
    page.locator("td a", has_text="alert(1)").first.click()
    page.locator("main[data-shown$='|overview']").wait_for()
    page.locator("nav summary", has_text="Nothing measured: ").click()
    for anchor in ("group-findings", "group-time", "group-trace", "group-about-this-run"):
        page.locator(f"nav a[href='#{anchor}']").click()
        page.locator(f"main[data-shown$='|{anchor}'][aria-busy='false']").wait_for()
    assert page.locator("main img, main script:not([type='application/json']), main a[href^='http']").count() == 0


def test_all_can_be_reached_by_keyboard(reader: Reader) -> None:
    page = reader.open(run=SLOW)
    shown(page, SLOW, "overview")
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('href')"))
    assert {"run", "other", "#overview", "#group-findings"} <= set(reached)
    while page.evaluate("document.activeElement.getAttribute('href')") != "#group-time":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shown(page, SLOW, "group-time")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#group-time"


def test_it_is_dark_where_the_reader_wants_it_dark(browser: Any, server: str) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{server}/data/plugin_entry.html?name=gpuprof")
        page.locator("table.runs").wait_for()
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.close()
    assert colours == {"light": LIGHT, "dark": DARK}


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 27)"


def switched(reader: Reader, tab: Any, mode: str, paper: str) -> None:
    """TensorBoard's own switch set to a mode, and the tab's paper and the paper of its figure as they have to be."""
    reader.page.locator("app-header-dark-mode-toggle button").click()
    reader.page.get_by_role("menuitem", name=mode).click()
    sync_api.expect(tab.locator("body")).to_have_css("background-color", paper)
    sync_api.expect(tab.locator("main .main-svg").first).to_have_css("background-color", paper)


def test_it_is_dark_as_tensorboards_own_switch_says_whatever_the_system_is(reader: Reader) -> None:
    tab = reader.open_in_tensorboard(run=SLOW, view="steps")
    shown(tab, SLOW, "steps")
    switched(reader, tab, "Dark", DARK)
    # TensorBoard writes its settings down a little later.
    reader.page.wait_for_function("/dark/i.test(localStorage.getItem('_tb_global_settings'))")
    reader.page.reload()
    shown(tab, SLOW, "steps")
    sync_api.expect(tab.locator("body")).to_have_css("background-color", DARK)
    switched(reader, tab, "Light", LIGHT)
    reader.page.emulate_media(color_scheme="dark")
    switched(reader, tab, "Light", LIGHT)
    assert tab.locator("body").evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_a_run_that_is_gone_is_said_calmly(reader: Reader) -> None:
    page = reader.open(run="not-there", view="overview")
    page.get_by_text("There is no such run under the log directory").wait_for()
    # Chromium itself notes a 404 on the console.
    reader.said = [line for line in reader.said if "404" not in line]
