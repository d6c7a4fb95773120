"""Is advice right? What a report expects of a change and what `gpuprof try` measures of it, against what it brought.

Run it from anywhere, with nothing else running; 90 minutes::

    python benchmarks/advice.py
    python benchmarks/advice.py --minutes 30             # one of each kind of change first
    python benchmarks/advice.py --resume                 # what is left, if the profiler is still the same
    python benchmarks/advice.py --only anomaly "num_workers 0"

Each setting: a run as it is and one with the change, in slices of time so that a slow moment of the machine meets both,
and a trial of the same fit. Each truth case with advice that can be applied: the same without a trial, or pairs of
whole runs where the effect is not in the steps. Each search of loader settings: slices of runs with every setting, and
``gpuprof try --input``. Each run has a fresh process, because the second fit of a process finds other caches and
another heap than the first. What was measured while other programs used the CPUs is set aside and measured again.
"""

import argparse
import contextlib
import ctypes
import hashlib
import math
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from paired import RESULTS, wide_console, write_json
from rich.table import Table
from truths import cures
from truths.cases import CASES
from truths.running import Job, JobResult, in_turn, run_all
from truths.settings import SETTINGS, Found, Measured, jobs, searches

import lightning_gpuprof
from lightning_gpuprof.model.finding import Expected

SOURCES = Path(lightning_gpuprof.__file__).parent, Path(cures.__file__).parent
"""The profiler and the cases: what results depend on."""
MOST_TRIES = 5
_SET_CHILD_SUBREAPER = 36
"""Of ``prctl``: orphans among the descendants become children of this process."""
console = wide_console()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change: what was expected, what a trial measured, what it brought; times in ms of a step."""

    name: str
    before_ms: float
    after_ms: float
    unsure: float
    """Standard error of the ratio of both."""
    expected: Expected | None
    tried: Measured | None = None

    @property
    def left(self) -> float:
        """Step time after the change, of the one before."""
        return self.after_ms / self.before_ms

    @property
    def expected_off(self) -> float | None:
        """|expected - achieved| of the step time before the change."""
        return None if self.expected is None else abs(self.expected.step_ms / self.expected.whole_ms - self.left)

    @property
    def is_covered(self) -> bool | None:
        """Whether what came lies in the interval."""
        if self.expected is None:
            return None
        return self.expected.lower_ms <= self.left * self.expected.whole_ms <= self.expected.upper_ms

    @property
    def tried_off(self) -> float | None:
        """|tried - achieved| of the step time before the change."""
        return None if self.tried is None or self.tried.tried is None else abs(1 / self.tried.tried - self.left)


def row_of(told: Measured | cures.Effect) -> Row:
    name, trial = (told.name, told) if isinstance(told, Measured) else (f"{told.case}: {told.rule}", None)
    return Row(
        name=name,
        before_ms=told.before_ms,
        after_ms=told.after_ms,
        unsure=told.unsure,
        expected=told.expected,
        tried=trial,
    )


def cells(row: Row) -> tuple[str, ...]:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    trial, interval, likely = row.tried, "-", "-"
    if row.expected is not None:
        likely = f"{row.expected.speedup:.2f}x"
        interval = " to ".join(f"{end:.2f}" for end in row.expected.speedup_range)
    tried = "-" if trial is None or trial.tried is None else f"{trial.tried:.2f}x"
    times = f"{row.before_ms:.2f}", f"{row.after_ms:.2f}"
    said = "-" if trial is None else trial.outcome
    return (
        *(row.name, *times, f"{1 / row.left:.2f}x", likely, interval),
        *(percent(row.expected_off), tried, percent(row.tried_off), said),
    )


def summary(rows: Sequence[Row]) -> dict[str, float | int | None]:
    expected = [off for row in rows if (off := row.expected_off) is not None]
    covered = [row.is_covered for row in rows if row.is_covered is not None]
    tried = [off for row in rows if (off := row.tried_off) is not None]
    unsure = [row.unsure for row in rows]
    nothing = [row.tried.outcome == "no gain" for row in rows if row.tried is not None and row.tried.no_gain]

    def quantile(values: Sequence[float], q: float) -> float | None:
        return float(np.quantile(values, q)) if values else None

    return {
        "changes": len(rows),
        "expected": len(expected),
        "expected_off_median": quantile(expected, 0.5),
        "expected_off_p90": quantile(expected, 0.9),
        "covered_by_90": float(np.mean(covered)) if covered else None,
        "tried": len(tried),
        "tried_off_median": quantile(tried, 0.5),
        "tried_off_p90": quantile(tried, 0.9),
        "unsure_median": quantile(unsure, 0.5),
        "without_effect": len(nothing),
        "called_no_gain": float(np.mean(nothing)) if nothing else None,
    }


def chosen(only: Sequence[str], repetition: int) -> list[Job]:
    every = [*searches(repetition), *jobs(SETTINGS, repetition), *cures.jobs(CASES, repetition)]
    return in_turn([job for job in every if not only or any(part in job.name for part in only)])


class Results(msgspec.Struct):
    """What is known by now; written after each job, so that a cut loses one."""

    summary: dict[str, float | int | None] = {}
    changes: list[Row] = []
    searches: list[Found] = []
    done: list[str] = []
    """Names of jobs, once for each repetition, those that failed among them."""
    source: str = ""
    """Of the profiler, see :func:`source_digest`; results of another one are not kept."""
    minutes: float = 0.0
    """That all jobs took."""
    failed: dict[str, str] = {}
    disturbed: dict[str, int] = {}
    """How often other programs disturbed a job, which was then measured again, or not at all if that was too often."""
    left: int = 0
    """Jobs for which there was no time."""
    note: str = ""
    """What a reader has to know of these results, in whole sentences."""

    def add(self, done: JobResult) -> str:
        """Take what a job found, and say it in a line."""
        self.done.append(done.name)
        self.minutes += done.seconds / 60
        if done.told is None:
            self.failed[done.name] = done.error.strip().rpartition("\n")[2]
            return f"{done.name}: {done.error}"
        if isinstance(done.told, Found):
            self.searches.append(done.told)
            choice = f"{done.told.chosen} ({done.told.chosen_ms:.2f} ms)"
            return f"{done.name}: chosen {choice}, the best {done.told.best} ({done.told.best_ms:.2f} ms)"
        self.changes.append(row_of(done.told))
        return "  ".join(cells(self.changes[-1]))

    def write(self, path: Path) -> None:
        """For the docs, and for a later call with ``--resume``."""
        self.summary = summary(self.changes)
        write_json(path, "advice", **msgspec.to_builtins(self))


def source_digest() -> str:
    """First digits of a hash over :data:`SOURCES`."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def earlier(path: Path) -> Results:
    """Results to go on with; none if they were made with another profiler."""
    source = source_digest()
    if path.is_file():
        with contextlib.suppress(msgspec.ValidationError):  # of an older shape
            found = msgspec.json.decode(path.read_bytes(), type=Results)
            if found.source == source:
                return found
        aside = path.rename(path.with_name(f"{path.stem}-before{path.suffix}"))
        console.print(f"{path.name} was measured with other code: it is {aside.name} now, and all is measured anew")
    return Results(source=source)


class OtherPrograms:
    """CPUs that other programs use meanwhile, what the machine's host takes away included.

    Runs that are measured in slices are killed with their workers: what these took is known once they are reaped here.
    """

    def __init__(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
        self._begin = self._now()

    def cpus(self) -> float:
        """Since this was made, on average."""
        elapsed, others = (end - begin for begin, end in zip(self._begin, self._now(), strict=True))
        return others / elapsed if elapsed else 0.0

    @staticmethod
    def _now() -> tuple[float, float]:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        own = os.times()
        everything = psutil.cpu_times()
        idle = everything.idle + getattr(everything, "iowait", 0.0)
        guests = getattr(everything, "guest", 0.0) + getattr(everything, "guest_nice", 0.0)  # counted twice
        return own.elapsed, sum(everything) - idle - guests - sum(own[:4])


def judged(results: Results) -> Table:
    """What the results come to, beside the goals."""
    found = summary(results.changes)
    table = Table("what", "of", "measured", "goal")
    goals = (
        ("|expected - achieved|, median", "expected", "expected_off_median", "<= 3 %"),
        ("|expected - achieved|, 90 % quantile", "expected", "expected_off_p90", "<= 8 %"),
        ("achieved within the 90 % interval", "expected", "covered_by_90", "85 to 95 %"),
        ("|tried - achieved|, median", "tried", "tried_off_median", "<= 2 %"),
        ("|tried - achieved|, 90 % quantile", "tried", "tried_off_p90", ""),
        ("standard error of what was achieved", "tried", "unsure_median", ""),
        ('without effect, called "no gain"', "without_effect", "called_no_gain", ">= 95 %"),
    )
    for what, of, name, goal in goals:
        value = found[name]
        table.add_row(what, str(found[of]), "-" if value is None else f"{value:.1%}", goal)
    if results.searches:
        worst = max(one.off for one in results.searches)
        table.add_row("--input, slower than the best by at most", str(len(results.searches)), f"{worst:.1%}", "<= 5 %")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=(), help="parts of names")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing later; what has begun ends")
    parser.add_argument("--others", type=float, default=0.1, help="CPUs that other programs may use beside a job")
    parser.add_argument("--resume", action="store_true", help="keep what --json has already, and measure the rest")
    parser.add_argument("--json", type=Path, default=RESULTS / "advice.json")
    parser.add_argument("--keep", type=Path, help="folder in which the files of all runs stay")
    options = parser.parse_args(arguments)
    if not chosen(options.only, 0):
        parser.error(f"--only {' '.join(options.only)} names no setting and no case")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    results = earlier(options.json) if options.resume else Results(source=source_digest())
    wanted = deque(
        job
        for repetition in range(options.repetitions)
        for job in chosen(options.only, repetition)
        if results.done.count(job.name) <= repetition and results.disturbed.get(job.name, 0) < MOST_TRIES
    )
    results.left = planned = len(wanted)
    begin = time.monotonic()
    while wanted and time.monotonic() - begin < 60 * options.minutes:
        job = wanted.popleft()
        others = OtherPrograms()
        done = next(iter(run_all([job], keep=options.keep)))
        if (used := others.cpus()) > options.others:
            results.disturbed[job.name] = results.disturbed.get(job.name, 0) + 1
            said = f"{job.name}: other programs used {used:.2f} CPUs"
            if results.disturbed[job.name] < MOST_TRIES:
                wanted.append(job)
        else:
            said = results.add(done)
        results.left = len(wanted)
        console.print(f"{done.seconds:.0f} s  {said}", highlight=False, markup=False)
        results.write(options.json)
    table = Table(
        *("change", "before ms", "after ms", "achieved", "expected", "90 %", "off by", "tried", "off by", "said")
    )
    for row in results.changes:
        table.add_row(*cells(row))
    console.print(table, judged(results))
    if results.left:
        console.print(f"{results.left} of {planned} jobs are left: --resume measures them")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
