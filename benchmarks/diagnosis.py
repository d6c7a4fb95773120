"""From a journal of many steps to its diagnosis: how long reading, computing and judging take; a table and JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/diagnosis.py --steps 100000

The journal is written by the real clock and writer in fast motion (see ``long_run.py``), with conditions, so that rules
about loaders and trainers judge it, too. Then, several times in one process: the journal is read, its metrics are
computed, all rules are asked, and the levels of the method are made. Wall time and CPU time of the process are told: on
a machine that others use, the CPU time is what the program needs.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import long_run
import numpy as np
from paired import Interval, at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.rules import engine
from lightning_gpuprof.rules.method import method

CONDITIONS: dict[str, str | int | bool] = {
    "device.type": "cpu",
    "loader.kind": "DataLoader",
    "loader.batch_size": 32,
    "loader.num_workers": 0,
    "trainer.world_size": 1,
    "trainer.log_every_n_steps": 50,
}
PARTS = ("read the journal", "compute metrics", "ask all rules", "levels and checklist")
WANTED_S = 1.0
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the measurement depends on besides the machine."""

    steps: int
    slots: int
    rounds: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the way, over the rounds."""

    what: str
    wall_s: Interval
    cpu_s: Interval


def measure(path: Path, rounds: int) -> tuple[list[Part], str]:
    """Make the diagnosis so often; returns what each part took, the whole last, and the verdict."""
    wall_s: dict[str, list[float]] = {what: [] for what in (*PARTS, "all")}
    cpu_s: dict[str, list[float]] = {what: [] for what in (*PARTS, "all")}
    verdict = ""

    def timed(what: str, work: Callable[[], Result]) -> Result:
        begin, cpu_begin = time.perf_counter(), time.process_time()
        found = work()
        cpu_s[what].append(time.process_time() - cpu_begin)
        wall_s[what].append(time.perf_counter() - begin)
        return found

    def whole() -> None:
        nonlocal verdict
        journal = timed(PARTS[0], lambda: read_journal(path))
        journal.conditions.update(CONDITIONS)
        metrics = timed(PARTS[1], lambda: analyze_metrics.build(journal, []))
        diagnosis = timed(PARTS[2], lambda: engine.diagnose(metrics))
        timed(PARTS[3], lambda: method(metrics, diagnosis))
        verdict = diagnosis.verdict.kind

    whole()  # imports and caches
    for values in (*wall_s.values(), *cpu_s.values()):
        values.clear()
    for _ in range(rounds):
        timed("all", whole)
    rng = np.random.default_rng(0)
    parts = [
        Part(what=what, wall_s=bootstrap(wall_s[what], rng), cpu_s=bootstrap(cpu_s[what], rng))
        for what in (*PARTS, "all")
    ]
    return parts, verdict


def as_table(settings: Settings, parts: Sequence[Part]) -> Table:
    """The results for a person."""
    table = Table(title=f"Diagnosis of {settings.steps:,} steps with {settings.slots} slots, {settings.rounds} rounds")
    for title in ("part", "wall", "95 %", "CPU"):
        table.add_column(title, justify="left" if title == "part" else "right")
    for part in parts:
        wall = part.wall_s
        table.add_row(
            part.what,
            f"{wall.median * 1e3:.0f} ms",
            f"{wall.low * 1e3:.0f} to {wall.high * 1e3:.0f}",
            f"{part.cpu_s.median * 1e3:.0f} ms",
        )
    table.caption = f"wanted: at most {WANTED_S:g} s for all of it"
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("diagnosis", __doc__, seed="of the drawn times")
    parser.add_argument("--steps", type=at_least(100), default=100_000, help="how many")
    parser.add_argument("--slots", type=at_least(long_run.MIN_SLOTS), default=10, help="slots with time in every step")
    parser.add_argument("--rounds", type=at_least(1), default=9, help="how often the diagnosis is made")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    settings = Settings(steps=options.steps, slots=options.slots, rounds=options.rounds, seed=options.seed)
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="diagnosis-") as folder:
        path = Path(folder) / "rank0.jsonl"
        long_run.write(
            path, long_run.Settings(steps=settings.steps, slots=settings.slots, report_steps=0, seed=settings.seed)
        )
        parts, verdict = measure(path, settings.rounds)
    console.print(as_table(settings, parts))
    write_json(
        options.json,
        "diagnosis",
        settings=asdict(settings),
        parts=[asdict(part) for part in parts],
        verdict=verdict,
        wanted_s=WANTED_S,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
