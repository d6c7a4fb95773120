"""Is advice right? What a report expects of a change and what `gpuprof try` measures of it, against what it brought.

Run it from anywhere, with nothing else running; an hour::

    python benchmarks/advice.py
    python benchmarks/advice.py --only anomaly "num_workers 0"

Each setting: a whole run as it is, one with the change, and a trial of the same fit. Each truth case with advice that
can be applied: a whole run as it is, and one with the advice. Each search of loader settings: a whole run
with every setting, and ``gpuprof try --input``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from paired import RESULTS, wide_console, write_json
from rich.table import Table
from truths import cures
from truths.cases import CASES
from truths.running import Job, run_all
from truths.settings import SETTINGS, Found, Measured, jobs, searches

from lightning_gpuprof.model.finding import Expected

console = wide_console()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change: what was expected, what a trial measured, what it brought; times in ms of a step."""

    name: str
    before_ms: float
    after_ms: float
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
    if isinstance(told, Measured):
        return Row(name=told.name, before_ms=told.before_ms, after_ms=told.after_ms, expected=told.expected, tried=told)
    name = f"{told.case}: {told.rule}"
    return Row(name=name, before_ms=told.before_ms, after_ms=told.after_ms, expected=told.expected)


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
        "without_effect": len(nothing),
        "called_no_gain": float(np.mean(nothing)) if nothing else None,
    }


def chosen(only: Sequence[str], repetition: int) -> list[Job]:
    every = [*searches(repetition), *jobs(SETTINGS, repetition), *cures.jobs(CASES, repetition)]
    return [job for job in every if not only or any(part in job.name for part in only)]


def write(path: Path, rows: Sequence[Row], found: Sequence[Found]) -> None:
    """What is known by now: an hour is long."""
    changes = [msgspec.to_builtins(asdict(row)) for row in rows]
    write_json(path, "advice", summary=summary(rows), changes=changes, searches=[asdict(one) for one in found])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=(), help="parts of names")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "advice.json")
    parser.add_argument("--keep", type=Path, help="folder in which the files of all runs stay")
    options = parser.parse_args(arguments)
    if not chosen(options.only, 0):
        parser.error(f"--only {' '.join(options.only)} names no setting and no case")
    rows: list[Row] = []
    found: list[Found] = []
    failed = 0
    for repetition in range(options.repetitions):
        for done in run_all(chosen(options.only, repetition), keep=options.keep):
            if done.told is None:
                failed += 1
                console.print(f"{done.name}: {done.error}", markup=False)
            elif isinstance(done.told, Found):
                found.append(done.told)
                told = f"{done.told.chosen} ({done.told.chosen_ms:.2f} ms), the best {done.told.best}"
                console.print(f"{done.name}: chosen {told} ({done.told.best_ms:.2f} ms)", markup=False)
            else:
                rows.append(row_of(done.told))
                console.print("  ".join(cells(rows[-1])), highlight=False, markup=False)
            write(options.json, rows, found)
    table = Table(
        *("change", "before ms", "after ms", "achieved", "expected", "90 %", "off by", "tried", "off by", "said")
    )
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    told = summary(rows)
    for name, value in told.items():
        console.print(f"{name:<22} {value if value is None or isinstance(value, int) else round(value, 4)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
