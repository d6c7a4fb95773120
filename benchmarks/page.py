"""How large ``report.html`` is and how fast a browser shows it; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/page.py --steps 100000 --rounds 5

A journal of so many steps is written in fast motion (as ``long_run.py`` does), samples of a GPU and of the host are
added to it, and the page is made from it as always. A browser opens the file in a window without a cache, once per
round; what counts is its own clock, from the start of the navigation. Needs playwright and Chromium.
"""

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import long_run
import msgspec
import numpy as np
from paired import at_least, command_line, wide_console, write_json
from rich.table import Table

from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.pipeline import make_report
from lightning_gpuprof.sinks.html import FILE_NAME, render_html

MIN_STEPS = 1000
MAX_BYTES = 400_000
MAX_PARSED_S = 0.4
PATIENCE_MS = 120_000
CLOCK = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  const drawn = performance.getEntriesByName("gpuprof drawn")[0];
  return [painted?.startTime ?? null, page.domContentLoadedEventEnd, page.loadEventEnd, drawn.startTime];
}"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """The page as a file."""

    steps: int
    bytes: int
    render_s: float
    """From the report to the page."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One opening, seconds since the navigation began."""

    painted_s: float | None
    """Something can be read."""
    parsed_s: float
    """Everything is there: figures come drawn."""
    loaded_s: float
    drawn_s: float
    """The script has made what only it can: tables that sort, figures that answer."""
    thread_cpu_s: float
    """CPU time of the page's thread until then: what a machine that does nothing else would wait for, at least."""


def add_samples(path: Path, count: int, seed: int) -> None:
    """Samples of a GPU and of the process, evenly over the run, as lines at the end of a journal."""
    end_ns = msgspec.json.decode(path.read_bytes().splitlines()[-1])["end_ns"]
    rng = np.random.default_rng(seed)
    with open(path, "ab") as lines:
        for t_ns in np.linspace(0, end_ns, count).astype(np.int64):
            busy = float(rng.uniform(0.2, 1.0))
            gpu: dict[str, float | None] = {
                "utilization_ratio": busy,
                "memory_used_bytes": 5e9 + 1e9 * busy,
                "power_w": 120 + 500 * busy,
                "temperature_c": 50 + 10 * busy,
                "sm_clock_mhz": 1980 - 300 * busy,
                "memory_clock_mhz": 2619.0,
            }
            process: dict[str, float | None] = {
                "cpu_cpus": busy,
                "rss_bytes": 2e9 + 1e8 * busy,
                "read_bytes_per_s": 1e6 * busy,
                "write_bytes_per_s": 1e5 * busy,
            }
            machine: dict[str, float | None] = {"cpu_busy_ratio": busy, "memory_available_bytes": 4e10}
            found = (("nvml", "gpu0", gpu), ("host", "process", process), ("host", "host", machine))
            for source, subject, values in found:
                sample = Sample(source=source, subject=subject, t_ns=int(t_ns), values=values)
                lines.write(msgspec.json.encode(sample) + b"\n")


def make(folder: Path, steps: int, samples: int, seed: int) -> Made:
    """Write a journal and its page."""
    path = folder / "rank0.jsonl"
    long_run.write(path, long_run.Settings(steps=steps, slots=10, report_steps=0, seed=seed))
    add_samples(path, samples, seed)
    report = make_report(folder)
    begin = time.perf_counter()
    page = render_html(report).encode()
    render_s = time.perf_counter() - begin
    (folder / FILE_NAME).write_bytes(page)
    return Made(steps=report.steps.count, bytes=len(page), render_s=render_s)


def show(page: Path, rounds: int, chromium: str) -> list[Shown]:
    """Open a page so many times."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(rounds):
            opened = browser.new_page(viewport={"width": 1280, "height": 900})
            inside = opened.context.new_cdp_session(opened)
            inside.send("Performance.enable", {"timeDomain": "threadTicks"})
            opened.goto(page.as_uri(), timeout=PATIENCE_MS)
            opened.wait_for_selector("html[data-drawn]", state="attached", timeout=PATIENCE_MS)
            times = [None if ms is None else ms / 1e3 for ms in opened.evaluate(CLOCK)]
            counted = {one["name"]: one["value"] for one in inside.send("Performance.getMetrics")["metrics"]}
            opened.close()
            found.append(
                Shown(
                    painted_s=times[0],
                    parsed_s=times[1],
                    loaded_s=times[2],
                    drawn_s=times[3],
                    thread_cpu_s=counted["TaskDuration"],
                )
            )
        browser.close()
    return found


def medians(shown: Sequence[Shown]) -> Shown:
    """Of each moment the median over the rounds."""

    def median(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.median(known)) if known else None

    return Shown(
        painted_s=median([one.painted_s for one in shown]),
        parsed_s=median([one.parsed_s for one in shown]) or math.nan,
        loaded_s=median([one.loaded_s for one in shown]) or math.nan,
        drawn_s=median([one.drawn_s for one in shown]) or math.nan,
        thread_cpu_s=median([one.thread_cpu_s for one in shown]) or math.nan,
    )


def as_table(made: Made, usual: Shown, rounds: int) -> Table:
    """The results for a person."""
    table = Table(title=f"report.html of a run of {made.steps:,} steps, medians of {rounds} openings")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("wanted", justify="right")
    table.add_row("size", f"{made.bytes / 1e3:.0f} kB", f"at most {MAX_BYTES / 1e3:.0f} kB")
    table.add_row("making it from the report", f"{made.render_s:.2f} s", "")
    table.add_row("something can be read", "-" if usual.painted_s is None else f"{usual.painted_s:.2f} s", "")
    table.add_row("all is there", f"{usual.parsed_s:.2f} s", f"at most {MAX_PARSED_S:.1f} s")
    table.add_row("the script is done", f"{usual.drawn_s:.2f} s", "")
    table.add_row("CPU time of the page's thread", f"{usual.thread_cpu_s:.2f} s", "")
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("page", __doc__, seed="of the drawn times")
    parser.add_argument("--steps", type=at_least(MIN_STEPS), default=100_000, help="of the run")
    parser.add_argument(
        "--samples", type=at_least(1), default=5_000, help="of the GPU, the process and the machine each"
    )
    parser.add_argument("--rounds", type=at_least(1), default=5, help="how often the page is opened")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("page.py: no Chromium on this machine: install chromium", file=sys.stderr)
        return 1
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        made = make(Path(folder), options.steps, options.samples, options.seed)
        shown = show(Path(folder) / FILE_NAME, options.rounds, chromium)
    console.print(as_table(made, medians(shown), options.rounds))
    write_json(
        options.json,
        "page",
        settings={name: getattr(options, name) for name in ("steps", "samples", "rounds", "seed")},
        made=asdict(made),
        medians=asdict(medians(shown)),
        rounds=[asdict(one) for one in shown],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
