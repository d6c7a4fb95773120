"""Makes the pictures of the docs: ``python docs/tools/doc_pictures.py``.

Those of one run in the tab are of ``digits-report.json``. With ``--demo``, also those of a page and of two runs, from
``make demo`` on a quiet machine, in the project's folder. Those of traces are of the files that are given: the first
for the timeline, all of them for the ranks. Needs Chromium. Look at each picture that was made.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from plotly.graph_objects import Scatter
from plotly.subplots import make_subplots

from pictures import COLOURS, Seen, chromium, opened, page_of, save, tensorboard

DOCS = Path(__file__).resolve().parents[1]
RUNS = Path("runs")
"""As a user names it: what the pictures show of paths."""


def newest(name: str) -> Path:
    """The last run of a configuration."""
    reports = sorted(RUNS.glob(f"{name}/version_*/gpuprof/report.json"), key=lambda one: one.stat().st_mtime)
    if not reports:
        raise SystemExit(f"There is no run below {RUNS / name}: call make demo first")
    return reports[-1].parent.parent


def of_top(browser: Browser, page_file: Path, target: Path, height: int) -> None:
    """The top of a page."""
    with opened(browser, Seen(theme="light", width=1200)) as page:
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        _save(page, target, {"x": 0, "y": 0, "width": 1200, "height": height})


def of_tab(browser: Browser, address: str, state: dict[str, str], target: Path, *, theme: str, height: int) -> None:
    """One view of the tab."""
    with opened(browser, Seen(theme=theme, width=1280)) as page:
        own = "&".join(f"p.gpuprof.{key}={value}" for key, value in state.items())
        page.goto(f"{address}/data/plugin_entry.html?name=gpuprof#{own}")
        part = page.locator("main[data-shown][aria-busy='false']")
        part.wait_for()
        part.locator("[data-figure]:not(:has(svg, canvas))").first.wait_for(state="detached")
        page.wait_for_timeout(1000)
        _save(page, target, {"x": 0, "y": 0, "width": 1280, "height": height})


def of_section(browser: Browser, page_file: Path, anchor: str, target: Path, height: int) -> None:
    """The top of a section of a page."""
    with opened(browser, Seen(theme="light", width=1280)) as page:
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        box: Any = page.locator(f"#{anchor}").bounding_box()
        _save(page, target, {"x": box["x"] - 14, "y": box["y"] - 14, "width": box["width"] + 28, "height": height})


def _save(page: Page, target: Path, clip: dict[str, float]) -> None:
    save(target, page.screenshot(clip=clip, full_page=True), COLOURS)  # type: ignore[arg-type]


def of_one_run(browser: Browser, folder: Path) -> None:
    """The pictures of a run in the tab."""
    run = folder / RUNS / "digits/version_0/gpuprof"
    run.mkdir(parents=True)
    shutil.copy(DOCS / "tools/digits-report.json", run / "report.json")
    with tensorboard(RUNS, cwd=folder) as address:
        state = {"run": "digits/version_0/gpuprof", "view": "overview"}
        of_tab(browser, address, state, DOCS / "pictures/tab_overview.png", theme="light", height=700)
        state["view"] = "steps"
        of_tab(browser, address, state, DOCS / "pictures/tab_dark.png", theme="dark", height=720)


def of_demo(browser: Browser, folder: Path) -> None:
    """The pictures of a page and of two runs."""
    before, after = newest("digits"), newest("digits_fixed")
    of_top(browser, before / "gpuprof/report.html", DOCS / "images/report.png", 640)
    compared = folder / "comparison.html"
    command = [sys.executable, "-m", "lightning_gpuprof", "compare", str(before), str(after), "--html", str(compared)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"{after} is not faster than {before}: call make demo on a quiet machine")
    of_top(browser, compared, DOCS / "images/comparison.png", 440)
    first, second = (f"{run.relative_to(RUNS)}/gpuprof" for run in (before, after))
    with tensorboard(RUNS) as address:
        beside = {"run": first, "view": "overview", "other": second}
        of_tab(browser, address, beside, DOCS / "pictures/tab_beside.png", theme="light", height=900)


def of_traces(browser: Browser, folder: Path, traces: Sequence[Path]) -> None:
    """The pictures of traces."""
    one, ranks = folder / "one", folder / "ranks"
    for into in (one, ranks):
        into.mkdir()
    of_section(browser, page_of([traces[0]], one), "timeline", DOCS / "pictures/trace_timeline.png", 642)
    of_section(browser, page_of(traces, ranks), "ranks", DOCS / "pictures/trace_ranks.png", 654)


def of_growth(browser: Browser, folder: Path) -> None:
    """What traces, runs and callbacks cost by their number, as ``benchmarks/growth.py`` measured it."""
    found = json.loads((DOCS.parent / "benchmarks/results/growth.json").read_text(encoding="utf-8"))
    lines: list[dict[str, list[tuple[float, float]]]] = [{}, {}, {}]
    for one in found["traces"]:
        lines[0].setdefault(one["who"], []).append((one["megabytes"], one["process_s"]))
    lines[1]["gpuprof report"] = [(one["steps"], one["report_s"]) for one in found["steps"]]
    for one in found["callbacks"]:
        if one["mode"] != "none":
            lines[2].setdefault(one["label"], []).append((one["other_callbacks"], one["added_us"]["median"]))
    titles = ("A trace: seconds", "A run's report: seconds", "A step: µs added")
    drawing = make_subplots(rows=1, cols=3, subplot_titles=titles)
    for column, (of, along) in enumerate(zip(lines, ("MB of JSON", "steps", "other callbacks"), strict=True), 1):
        for name, points in sorted(of.items()):
            x, y = zip(*points, strict=True)
            drawing.add_trace(Scatter(x=x, y=y, name=name, mode="lines+markers"), row=1, col=column)
        kind = "linear" if column == 3 else "log"
        drawing.update_xaxes(title_text=along, type=kind, dtick=None if column == 3 else 1, row=1, col=column)
        drawing.update_yaxes(type=kind, dtick=None if column == 3 else 1, rangemode="tozero", row=1, col=column)
    drawing.update_layout(width=1200, height=360, template="plotly_white", legend={"orientation": "h", "y": -0.3})
    drawing.update_layout(margin={"t": 40, "b": 40, "l": 60, "r": 20})
    page_file = folder / "growth.html"
    drawing.write_html(page_file)
    with opened(browser, Seen(theme="light", width=1240)) as page:
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        _save(page, DOCS / "pictures/growth.png", {"x": 8, "y": 8, "width": 1200, "height": 360})


def main() -> None:
    """Read the command line and make the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="also the pictures of make demo")
    parser.add_argument("--growth", action="store_true", help="only that of benchmarks/results/growth.json")
    parser.add_argument("traces", nargs="*", type=Path, help="trace files of the ranks of one window")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        if options.growth:
            of_growth(browser, Path(made))
            return
        of_one_run(browser, Path(made))
        if options.demo:
            of_demo(browser, Path(made))
        if options.traces:
            of_traces(browser, Path(made), options.traces)


if __name__ == "__main__":
    main()
