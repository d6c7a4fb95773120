"""Takes screenshots of pages, traces and our tab: every view, light and dark, wide and narrow.

For whoever changes how something looks (``doc_pictures.py`` makes the pictures of the docs)::

    python docs/tools/pictures.py pictures --logdir runs report.html trace.json.gz

A page gets one picture per section, a run of the log directory one per view of our tab. Traces are made into pages
first. The browser (Chromium, driven by Playwright) reaches nothing but a TensorBoard that is started for it.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = (1280, 700)
THEMES = ("light", "dark")
COLOURS = 200
AROUND_PX = 14
TALLEST_PX = 4000
"""More of a view is not in its picture."""
PATIENCE_MS = 120_000
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the pictures are to be of."""

    folder: Path
    themes: Sequence[str]
    widths: Sequence[int]
    views: Sequence[str]
    """Anchors; all if empty."""
    unfolded: bool
    colours: int

    def holds(self, anchor: str) -> bool:
        """Whether a view is wanted."""
        return not self.views or anchor in self.views


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A theme and a width."""

    theme: str
    width: int

    def file(self, wanted: Wanted, *names: str) -> Path:
        """Where the picture of something goes; nothing of its path stays in the name."""
        parts = [re.sub(r"[^\w.]+", "_", name).strip("_") for name in names]
        return wanted.folder / f"{'-'.join([*parts, self.theme, str(self.width)])}.png"


def save(target: Path, picture: bytes, colours: int) -> None:
    """Write a picture with few colours, which makes it a third as large."""
    target.write_bytes(picture)
    with Image.open(target) as image:
        few = image.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    print(target.name)


@contextmanager
def opened(browser: Browser, seen: Seen) -> Iterator[Page]:
    """A page that tells on the terminal what goes wrong in it, or wider than its window."""
    page = browser.new_page(viewport={"width": seen.width, "height": 900}, color_scheme=seen.theme)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: print(f"error: {error}", file=sys.stderr))
    yield page
    page.close()


def complain_of_width(page: Page, what: str, width: int) -> None:
    """Say so if the page as a whole scrolls sideways."""
    needed = page.evaluate("document.documentElement.scrollWidth")
    if needed > width:
        print(f"{what}: {needed} px wide in a window of {width}", file=sys.stderr)


def of_page(browser: Browser, file: Path, wanted: Wanted) -> None:
    """All sections of a page that opens from disk.

    Args:
        browser: Without a network.
        file: The page.
        wanted: Which pictures.
    """
    for seen in (Seen(theme=theme, width=width) for theme in wanted.themes for width in wanted.widths):
        with opened(browser, seen) as page:
            page.goto(file.resolve().as_uri())
            page.wait_for_load_state()
            if wanted.unfolded:
                page.evaluate(UNFOLD)
            page.wait_for_timeout(1500)
            complain_of_width(page, file.stem, seen.width)
            for section in page.locator("main > section, header").all():
                anchor = section.get_attribute("id") or "header"
                box = section.bounding_box()
                if wanted.holds(anchor) and box is not None and box["height"] > 1:
                    picture = page.screenshot(clip=_framed(box), full_page=True)
                    save(seen.file(wanted, file.stem, anchor), picture, wanted.colours)


def _framed(box: Any) -> Any:
    """A section with a little of the page around it."""
    height = min(box["height"], TALLEST_PX) + 2 * AROUND_PX
    size = {"width": box["width"] + 2 * AROUND_PX, "height": height}
    return {"x": max(box["x"] - AROUND_PX, 0), "y": max(box["y"] - AROUND_PX, 0), **size}


def of_tab(browser: Browser, address: str, wanted: Wanted) -> None:
    """The list of runs, every view of every run, and the last two beside each other, the earlier one first.

    Args:
        browser: Reaches nothing but TensorBoard.
        address: Of TensorBoard.
        wanted: Which pictures.
    """
    for seen in (Seen(theme=theme, width=width) for theme in wanted.themes for width in wanted.widths):
        with opened(browser, seen) as page:
            page.goto(f"{address}/data/plugin_entry.html?name=gpuprof")
            page.locator("table.runs").wait_for()
            if wanted.holds("runs"):
                save(seen.file(wanted, "tab", "runs"), page.screenshot(full_page=True), wanted.colours)
            runs = page.locator("#run option").evaluate_all("all => all.map((one) => one.value).filter(Boolean)")
            links = page.locator("nav a").evaluate_all("all => all.map((one) => one.getAttribute('href').slice(1))")
            links += [view for view in wanted.views if view not in (*links, "runs")]
            for state in _states(runs):
                for anchor in filter(wanted.holds, links):
                    _of_view(page, address, {**state, "view": anchor}, seen, wanted)


def _states(runs: Sequence[str]) -> list[dict[str, str]]:
    return [*({"run": run} for run in runs), *([{"run": runs[1], "other": runs[0]}] if len(runs) > 1 else [])]


def _of_view(page: Page, address: str, state: dict[str, str], seen: Seen, wanted: Wanted) -> None:
    own = "&".join(f"p.gpuprof.{key}={quote(value, safe='')}" for key, value in state.items())
    page.goto("about:blank")
    page.goto(f"{address}/data/plugin_entry.html?name=gpuprof#{own}")
    part = page.locator(f"main[data-shown='{state['run']}|{state['view']}'][aria-busy='false']")
    part.wait_for()
    part.locator("[data-figure]:not(:has(svg, canvas))").first.wait_for(state="detached")
    if wanted.unfolded:
        page.evaluate(UNFOLD)
    page.wait_for_timeout(500)
    complain_of_width(page, str(state), seen.width)
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST_PX)
    clip: Any = {"x": 0, "y": 0, "width": seen.width, "height": height}
    picture = page.screenshot(full_page=True, clip=clip)
    name = state["run"] + ("_beside" if "other" in state else "")
    save(seen.file(wanted, "tab", name, state["view"]), picture, wanted.colours)


@contextmanager
def tensorboard(logdir: Path, cwd: Path | None = None) -> Iterator[str]:
    """The address of a TensorBoard that is started for this, there."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--load_fast", "false"], stdout=log, stderr=subprocess.STDOUT, cwd=cwd)
        try:
            address = ""
            while not address:
                said = Path(log.name).read_text()
                if process.poll() is not None:
                    raise SystemExit(f"TensorBoard did not start:\n{said}")
                time.sleep(0.1)
                address = next((word for word in said.split() if word.startswith("http://127.0.0.1:")), "")
            yield address.rstrip("/")
        finally:
            process.terminate()
            process.wait(60)


def page_of(files: Sequence[Path], folder: Path) -> Path:
    """A page as it is; of traces, one page of all of them."""
    first = files[0]
    if first.suffix == ".html":
        return first
    page = folder / f"{first.name.partition('.')[0]}.html"
    command = [sys.executable, "-m", "lightning_gpuprof", "trace", *map(str, files), "--html", str(page)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return page


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a network."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("Chromium is needed: install it and put it on the PATH")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", OFFLINE])
        yield browser
        browser.close()


def main() -> None:
    """Read the command line and make what it asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("files", nargs="*", type=Path, help="pages (.html) and traces (.json, .json.gz)")
    parser.add_argument("--logdir", type=Path, help="runs, for the tab")
    parser.add_argument("--views", default="", help="anchors of the views, by commas; all if it is not given")
    parser.add_argument("--themes", default=",".join(THEMES))
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="pixels, by commas")
    parser.add_argument("--unfolded", action="store_true", help="open what is closed at first")
    parser.add_argument("--colours", type=int, default=COLOURS, help="in a picture")
    options = parser.parse_args()
    wanted = Wanted(
        folder=options.folder,
        themes=options.themes.split(","),
        widths=[int(width) for width in options.widths.split(",")],
        views=[view for view in options.views.split(",") if view],
        unfolded=options.unfolded,
        colours=options.colours,
    )
    wanted.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        for file in options.files:
            of_page(browser, page_of([file], Path(made)), wanted)
        if options.logdir is not None:
            with tensorboard(options.logdir) as address:
                of_tab(browser, address, wanted)


if __name__ == "__main__":
    main()
