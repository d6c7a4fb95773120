"""A run of ten million steps in fast motion: memory, size of the journal, time to read it; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/long_run.py --steps 10000000 --slots 10

The real clock and the real writer are driven through the real contexts by a clock of its own, which advances at each
look by a drawn time: a slot has its own median between 2 and 500 µs, and its times vary by a fifth around it
(lognormal), so that their low digits are as random as measured ones. Steps are made as fast as the writer's threads
take them. The journal is then read in a fresh process, and its report made in another one, up to a number of steps
that is given, because a report of many steps needs room for all of them.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from paired import PEAK_MB, at_least, command_line, wide_console, write_json
from rich.table import Table

from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.journal import JOURNAL_VERSION, Footer, Header
from lightning_gpuprof.model.phases import PHASES

MIN_SLOTS = 2
STEPS_PER_EPOCH = 100_000
FIRST_EPOCH = 1
"""Memory is compared from the end of this epoch on."""
DRAWN_STEPS = 4_999
"""Steps after which the drawn times repeat; a block has 1,024."""
QUEUE_STEPS = 4_096
"""So many steps may wait for the writer before the next ones are made."""
FLUSH_S = 0.02
"""Steps are made about a hundred times as fast as a run makes them."""
SPREAD = 0.2
REPORT_STEPS = 10_000_000
MB = 1e6

READ = """
import json, time
from pathlib import Path
import lightning_gpuprof.analyze.journal as journal
import lightning_gpuprof.pipeline as pipeline
before = peak_mb()
begin = time.perf_counter()
if sys.argv[1] == "read":
    found = journal.read_journal(Path(sys.argv[2]))
    took = time.perf_counter() - begin
    steps, whole = len(found.steps), found.dropped_lines == 0
else:
    found = pipeline.make_report(Path(sys.argv[2]).parent)
    took = time.perf_counter() - begin
    steps, whole = found.steps.count, found.validity.ok
print(json.dumps({"steps": steps, "whole": whole, "time_s": took, "peak_mb": peak_mb() - before}))
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the measurement depends on besides the machine."""

    steps: int
    slots: int
    report_steps: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident memory of the process that writes, at the end of an epoch."""

    steps: int
    resident_mb: float


@dataclass(frozen=True, kw_only=True)
class Written:
    """What writing took."""

    time_s: float
    writer_cpu_us_per_step: float
    journal_mb: float
    bytes_per_step: float
    dropped_steps: int
    memory: tuple[Memory, ...]
    growth_mb: float
    """Largest resident memory after the first epoch minus that at its end."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """What reading the journal, or making its report, took in a process of its own."""

    steps: int
    whole: bool
    """Whether nothing was left out."""
    time_s: float
    steps_per_s: float
    peak_mb: float
    """Largest resident memory, beyond what the imports take."""


def looks_per_step(slots: int) -> int:
    """How often the clock looks at the time in a step: at its begin, and twice for each slot but the loop's own."""
    return 1 + 2 * (slots - 1)


def drawn_clock(slots: int, seed: int) -> Callable[[], int]:
    """A clock whose looks are as far apart as slots are long; it repeats after ``DRAWN_STEPS`` steps."""
    rng = np.random.default_rng(seed)
    looks = looks_per_step(slots)
    median_ns = np.full(looks, 800.0)  # between slots
    median_ns[2::2] = np.exp(rng.uniform(np.log(2e3), np.log(5e5), size=slots - 1))
    drawn = np.maximum(median_ns * rng.lognormal(0, SPREAD, size=(DRAWN_STEPS, looks)), 1).astype(np.int64)
    return itertools.accumulate(itertools.cycle(drawn.ravel().tolist())).__next__


class FastMotion:
    """A training of nothing but its times.

    Args:
        slots: With time in every step, the loop's own among them.
        seed: Of the drawn times.
    """

    def __init__(self, slots: int, seed: int) -> None:
        self.now = drawn_clock(slots, seed)
        self._looks = looks_per_step(slots)
        self.clock = StepClock(now=self.now, cpu_now=drawn_clock(slots, seed + 1), delay_now=lambda: 0, start_ns=0)
        clock = self.clock
        numbers = [clock.slot(f"action {n}", PHASES[n % len(PHASES)]) for n in range(slots - 1)]
        self._plain = [clock.context(number) for number in numbers]
        self._sampled = [clock.context(number, cpu=True) for number in numbers]
        self._contexts: list[AbstractContextManager[object]] = self._plain
        clock.set_cpu_mode_listener(self._use)

    def _use(self, cpu: bool) -> None:
        self._contexts = self._sampled if cpu else self._plain

    def train(self, steps: int, wait: Callable[[], None], *, steps_per_epoch: int = STEPS_PER_EPOCH) -> Iterator[int]:
        """Make steps; yields after each epoch how many there are."""
        clock = self.clock
        clock.begin_training(-1, 0)
        for begin in range(0, steps, steps_per_epoch):
            end = min(begin + steps_per_epoch, steps)
            clock.begin_epoch(begin // steps_per_epoch, begin - 1)
            for step in range(begin, end):
                clock.begin_step()
                for context in self._contexts:
                    with context:
                        pass
                if step % 256 == 0:
                    wait()
            clock.end_epoch()
            for _ in range(self._looks - 1):  # so that the next look is again the first of a step
                self.now()
            yield end


def write(path: Path, settings: Settings) -> Written:
    """Write a journal of so many steps."""
    run = FastMotion(settings.slots, settings.seed)
    clock = run.clock
    failures: list[OSError] = []
    header = Header(
        version=JOURNAL_VERSION,
        gpuprof="0",
        run_id="long",
        stage="fit",
        rank=0,
        world_size=1,
        host="host",
        pid=0,
        start_ns=0,
        epoch_ns=0,
    )
    writer = JournalWriter(open_journal(path), clock, header=header, on_failure=failures.append, flush_s=FLUSH_S)
    writer.start()

    def wait() -> None:
        while len(clock.closed) > QUEUE_STEPS:
            time.sleep(0.001)

    process = psutil.Process()
    memory: list[Memory] = []
    begin = time.perf_counter()
    for steps in run.train(settings.steps, wait):
        memory.append(Memory(steps=steps, resident_mb=process.memory_info().rss / MB))
    clock.open_segment(None)
    writer.close([Footer(end_ns=run.now(), status="finished", overhead={})], timeout_s=60)
    if failures:
        raise failures[0]
    time_s = time.perf_counter() - begin
    size = path.stat().st_size
    after = memory[FIRST_EPOCH - 1 :]
    return Written(
        time_s=time_s,
        writer_cpu_us_per_step=writer.cpu_s / settings.steps * 1e6,
        journal_mb=size / MB,
        bytes_per_step=size / settings.steps,
        dropped_steps=writer.dropped_steps,
        memory=tuple(memory),
        growth_mb=max(m.resident_mb for m in after) - after[0].resident_mb,
    )


def read(path: Path, what: str) -> Read:
    """Read the journal (``read``) or make its report (``report``) in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK_MB + READ, what, str(path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Read(steps_per_s=found["steps"] / found["time_s"], **found)


def as_table(settings: Settings, written: Written, reading: Read, report: Read | None) -> Table:
    """The results for a person."""
    table = Table(title=f"A run of {settings.steps:,} steps with {settings.slots} slots in fast motion")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("wanted", justify="right")
    table.add_row("memory after the first 100,000 steps", f"{written.growth_mb:+.1f} MB", "at most +20 MB")
    table.add_row("journal", f"{written.bytes_per_step:.1f} MB a million steps", "at most 100 MB")
    table.add_row("steps left out", f"{written.dropped_steps + settings.steps - reading.steps:,}", "0")
    table.add_row("writer's CPU time", f"{written.writer_cpu_us_per_step:.2f} µs a step", "")
    table.add_row("reading", f"{reading.steps_per_s:,.0f} steps/s", "at least 500,000")
    table.add_row("memory for reading", f"{reading.peak_mb:,.0f} MB", "")
    if report is not None:
        table.add_row(f"report of {report.steps:,} steps", f"{report.time_s:.1f} s", "")
        table.add_row("memory for the report", f"{report.peak_mb:,.0f} MB", "")
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("long_run", __doc__, seed="of the drawn times")
    parser.add_argument("--steps", type=at_least(STEPS_PER_EPOCH // 2), default=10_000_000, help="how many")
    parser.add_argument("--slots", type=at_least(MIN_SLOTS), default=10, help="slots with time in every step")
    parser.add_argument(
        "--report-steps", type=int, default=REPORT_STEPS, help="make the report too, of at most so many steps"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    settings = Settings(steps=options.steps, slots=options.slots, report_steps=options.report_steps, seed=options.seed)
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
        path = Path(folder) / "rank0.jsonl"
        written = write(path, settings)
        console.print(f"written in {written.time_s:.0f} s", style="dim")
        reading = read(path, "read")
        report = read(path, "report") if settings.steps <= settings.report_steps else None
    console.print(as_table(settings, written, reading, report))
    write_json(
        options.json,
        "long_run",
        settings=asdict(settings),
        written=asdict(written),
        reading=asdict(reading),
        report=None if report is None else asdict(report),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
