"""Does `gpuprof try` measure what a change really gains? Settings of known effect: tried, and really applied.

Run it from anywhere, with nothing else running; fifteen minutes::

    python benchmarks/advice.py
    python benchmarks/advice.py --only anomaly "num_workers 0"

Each setting: a whole run as it is, one with the change, and a trial of ten seconds of the same fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from paired import RESULTS, wide_console, write_json
from rich.table import Table
from truths.running import run_all
from truths.settings import SETTINGS, Measured, jobs

console = wide_console()


def row_of(one: Measured) -> tuple[str, ...]:
    tried = "-" if one.tried is None else f"{one.tried:.2f}x"
    error = "-" if one.tried is None else f"{off_ratio(one):.1%}"
    predicted = "-" if one.predicted_ms is None else f"{one.before_ms / one.predicted_ms:.2f}x"
    times = f"{one.before_ms:.2f}", f"{one.after_ms:.2f}"
    return one.name, *times, predicted, tried, f"{one.achieved:.2f}x", error, one.outcome


def off_ratio(one: Measured) -> float:
    """|tried - achieved| of the step time after the change, both from the same base."""
    assert one.tried is not None
    return abs(1 / one.tried - 1 / one.achieved)


def summary(found: Sequence[Measured]) -> dict[str, float | int | None]:
    errors = [off_ratio(one) for one in found if one.tried is not None]
    predicted = [abs(one.predicted_ms - one.after_ms) / one.before_ms for one in found if one.predicted_ms is not None]
    covered = [
        one.lower_ms / one.base_ms <= one.after_ms / one.before_ms <= one.upper_ms / one.base_ms
        for one in found
        if one.lower_ms is not None and one.upper_ms is not None and one.base_ms
    ]
    nothing = [one.outcome == "no gain" for one in found if one.no_gain]

    def quantile(values: Sequence[float], q: float) -> float | None:
        return float(np.quantile(values, q)) if values else None

    return {
        "settings": len(found),
        "tried_off_median": quantile(errors, 0.5),
        "tried_off_p90": quantile(errors, 0.9),
        "predicted": len(predicted),
        "predicted_off_median": quantile(predicted, 0.5),
        "predicted_off_p90": quantile(predicted, 0.9),
        "covered_by_90": float(np.mean(covered)) if covered else None,
        "without_effect": len(nothing),
        "called_no_gain": float(np.mean(nothing)) if nothing else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=(), help="parts of names")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "advice.json")
    options = parser.parse_args(arguments)
    chosen = [one for one in SETTINGS if not options.only or any(part in one.name for part in options.only)]
    if not chosen:
        parser.error(f"--only {' '.join(options.only)} names no setting")
    found: list[Measured] = []
    failed = 0
    for repetition in range(options.repetitions):
        for done in run_all(jobs(chosen, repetition)):
            if done.told is None:
                failed += 1
                console.print(f"{done.name}: {done.error}", markup=False)
            else:
                found.append(done.told)
                console.print("  ".join(row_of(done.told)), highlight=False, markup=False)
    table = Table("setting", "before ms", "after ms", "promised", "tried", "achieved", "off by", "said")
    for one in found:
        table.add_row(*row_of(one))
    console.print(table)
    told = summary(found)
    for name, value in told.items():
        console.print(f"{name:<22} {value if value is None or isinstance(value, int) else round(value, 4)}")
    write_json(options.json, "advice", summary=told, settings=[asdict(one) for one in found])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
