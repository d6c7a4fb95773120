"""How long the tab in TensorBoard takes to its first view and to its list of runs; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/tab.py --steps 100000 --runs 200

A real fit of 400 steps with three trace windows is recorded. The long run has these windows and conditions and so many
steps of the real clock in fast motion (see ``long_run.py``). Of these a log directory with one run
and one with many are made. Each round starts a TensorBoard anew and opens it in Chromium, which can reach nothing but
127.0.0.1. Times are those of the tab's own frame, from its navigation to the first view being drawn, and of the whole
page of TensorBoard, which the frame is in. The server has nothing in memory: the files are in the system's cache, since
they were just written. At the end many runs are opened, one after the other, and the memory of TensorBoard is read.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import long_run
import psutil
from paired import command_line, wide_console, write_json
from playwright.sync_api import sync_playwright
from rich.table import Table

from lightning_gpuprof import pipeline

ROUNDS = 5
OPENED = 30
SHORT_STEPS = 400
MB = 1e6
PATIENCE_S = 300
DRAWN = """
new MutationObserver(() => {
  const found = document.querySelector("main[aria-busy='false'] table.runs, main[data-shown][aria-busy='false']");
  if (found && !window.drawnMs) window.drawnMs = performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true});
"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One way into the tab: medians over the rounds, and the slowest round."""

    what: str
    frame_ms: float
    frame_slowest_ms: float
    page_ms: float
    """From the navigation of TensorBoard's own page on."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident memory of the TensorBoard process."""

    before_mb: float
    after_mb: float
    opened: int


def record(folder: Path) -> Path:
    """A real fit with three windows; gives the run's folder."""
    import torch
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader
    from toy_run import BATCH_SIZE, CLASSES, FEATURES, Toy

    from lightning_gpuprof import GpuProfiler

    torch.set_num_threads(1)
    batches = [(torch.randn(BATCH_SIZE, FEATURES), torch.randint(CLASSES, (BATCH_SIZE,))) for _ in range(SHORT_STEPS)]
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[GpuProfiler(windows=[100, 200, 300], reports=["json"])],
    )
    trainer.fit(Toy(), DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    for trace in folder.rglob("*.pt.trace.json.gz"):
        trace.unlink()  # the tab never reads it
    return folder / "gpuprof"


def lengthen(short: Path, folder: Path, steps: int) -> Path:
    """A run of so many steps in fast motion, with the windows and conditions of a short one; gives its folder."""
    shutil.copytree(short, folder)
    path = folder / "rank0.jsonl"
    path.unlink()
    long_run.write(path, long_run.Settings(steps=steps, slots=10, report_steps=0, seed=0))
    kept = (b'{"k":"window"', b'{"k":"conditions"')
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1:-1] = [
        line for line in (short / "rank0.jsonl").read_bytes().splitlines(keepends=True) if line.startswith(kept)
    ]
    path.write_bytes(b"".join(lines))
    pipeline.write_reports(pipeline.make_report(folder), folder, ["json"])
    return folder


@contextmanager
def tensorboard(logdir: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A started TensorBoard: its address and its process."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--load_fast", "false"], stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + PATIENCE_S
            address = ""
            while not address:
                said = Path(log.name).read_text()
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"TensorBoard did not start:\n{said}")
                time.sleep(0.1)
                address = next((word for word in said.split() if word.startswith("http://127.0.0.1:")), "")
            yield address.rstrip("/"), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def open_once(browser: Any, address: str, state: str) -> tuple[float, float]:
    """Open TensorBoard at the tab; milliseconds of the frame and of the page to the first view."""
    context = browser.new_context()
    context.route("**/*", lambda route: _only_local(route, address))
    context.add_init_script(DRAWN)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1e3)
    page.goto(f"{address}/#gpuprof{state}")
    page.frame_locator("iframe[src*='name=gpuprof']").locator("main[aria-busy='false']").wait_for()
    frame = next(frame for frame in page.frames if "name=gpuprof" in frame.url)
    frame.wait_for_function("window.drawnMs")
    drawn_ms, origin_ms = frame.evaluate("[window.drawnMs, performance.timeOrigin]")
    page_ms = origin_ms - page.evaluate("performance.timeOrigin") + drawn_ms
    context.close()
    return float(drawn_ms), float(page_ms)


def _only_local(route: Any, address: str) -> None:
    if not route.request.url.startswith((address, "data:", "blob:")):
        raise SystemExit(f"the page asked for {route.request.url}")
    route.continue_()


def measure(browser: Any, what: str, logdir: Path, state: str, rounds: int) -> Opened:
    """Open the tab in a TensorBoard of its own each time."""
    times = []
    for _ in range(rounds):
        with tensorboard(logdir) as (address, _process):
            times.append(open_once(browser, address, state))
    frame, page = zip(*times, strict=True)
    return Opened(
        what=what,
        frame_ms=statistics.median(frame),
        frame_slowest_ms=max(frame),
        page_ms=statistics.median(page),
    )


def memory(logdir: Path, names: Sequence[str]) -> Memory:
    """Open two views of each of these runs and read the memory before and after."""
    with tensorboard(logdir) as (address, process):
        get(f"{address}/data/plugins_listing")
        get(f"{address}/data/plugin/gpuprof/runs")
        before = process.memory_info().rss
        for name in names:
            for view in ("overview", "windows"):
                get(f"{address}/data/plugin/gpuprof/view?run={quote(name, safe='')}&view={view}")
        return Memory(before_mb=before / MB, after_mb=process.memory_info().rss / MB, opened=len(names))


def get(address: str) -> None:
    """Ask until there is an answer."""
    status = 202
    while status == 202:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:
            status = response.status
            response.read()


def main() -> None:
    parser = command_line("tab", __doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is needed: install it and put it on the PATH")
    with tempfile.TemporaryDirectory(prefix="tab-") as folder, sync_playwright() as driver:
        one, many = Path(folder) / "one", Path(folder) / "many"
        short = record(Path(folder) / "short")
        long = lengthen(short, one / "gpuprof", options.steps)
        for number in range(options.runs):
            shutil.copytree(long if number < OPENED else short, many / f"version_{number}" / "gpuprof")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = [
            measure(browser, "overview", one, "&p.gpuprof.run=gpuprof&p.gpuprof.view=overview", options.rounds),
            measure(browser, "step time, figure", one, "&p.gpuprof.run=gpuprof&p.gpuprof.view=steps", options.rounds),
            measure(browser, f"list of {options.runs} runs", many, "", options.rounds),
        ]
        browser.close()
        used = memory(many, [f"version_{number}/gpuprof" for number in range(min(OPENED, options.runs))])
        report_mb = (long / "report.json").stat().st_size / MB
        journal_mb = (long / "rank0.jsonl").stat().st_size / MB
    show(opened, used)
    write_json(
        options.json,
        "tab",
        settings={"steps": options.steps, "runs": options.runs, "rounds": options.rounds},
        opened=[asdict(row) for row in opened],
        memory=asdict(used),
        files={"report_mb": report_mb, "journal_mb": journal_mb},
    )


def show(opened: Sequence[Opened], used: Memory) -> None:
    """Print the tables."""
    console = wide_console()
    table = Table("what", "frame ms", "slowest ms", "with TensorBoard's page ms", title="From navigation to first view")
    for row in opened:
        numbers = (row.frame_ms, row.frame_slowest_ms, row.page_ms)
        table.add_row(row.what, *(f"{number:,.0f}" for number in numbers))
    console.print(table)
    console.print(
        f"memory of TensorBoard: {used.before_mb:,.0f} MB with the list, {used.after_mb:,.0f} MB after "
        f"{used.opened} runs"
    )


if __name__ == "__main__":
    main()
