"""How often ``gpuprof compare`` calls two runs changed that are equal, and how often it finds what did change.

Run it from anywhere; it simulates, so that other programs do not matter::

    python benchmarks/compare_alarms.py                 500 pairs of each kind, a minute
    python benchmarks/compare_alarms.py --pairs 40 --steps 1000
"""

import argparse
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # the tests simulate, too
from built_reports import report_of
from paired import RESULTS, wide_console, write_json
from rich.table import Table
from simulated_speeds import EQUAL, OUTLASTING, Floats, Speeds, demo, demo_fixed, remembering, steady

from lightning_gpuprof.analyze.comparison import judging
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes, draws_of
from lightning_gpuprof.model.comparison import DEFAULT_THRESHOLD_RATIO


@dataclass(frozen=True, kw_only=True)
class Row:
    """What pairs of one kind were called."""

    kind: str
    differ: bool
    pairs: int
    changed: int
    within_noise: int
    not_comparable: int


def longer(ratio: float, speeds: Speeds) -> Speeds:
    """The same steps, so many times as long."""
    return lambda count, rng: ratio * speeds(count, rng)


CHANGED: dict[str, tuple[Speeds, Speeds]] = {
    "5 % slower, independent steps": (steady, longer(1.05, steady)),
    "10 % slower, memory 0.5": (remembering(0.5), longer(1.1, remembering(0.5))),
    "10 % slower, memory 0.9": (remembering(0.9), longer(1.1, remembering(0.9))),
    "20 % slower, memory 0.9": (remembering(0.9), longer(1.2, remembering(0.9))),
    "the demo on a shared machine": (demo, demo_fixed),
}


def outcome(before: Floats, after: Floats) -> str:
    """The verdict on the steps of two runs."""
    times = [StepTimes(period_ms=one, phases_ms={}) for one in (before, after)]
    reports = [report_of(one) for one in times]
    drawn = [draws_of(report, one, stream=side) for side, (report, one) in enumerate(zip(reports, times, strict=True))]
    assert drawn[0] is not None
    assert drawn[1] is not None
    before, after = reports
    draws = drawn[0], drawn[1]
    runs = judging.Runs(before=before, after=after, draws=draws, threshold_ratio=DEFAULT_THRESHOLD_RATIO)
    return judging.training(runs).outcome


def row(kind: str, speeds: tuple[Speeds, Speeds], *, differ: bool, pairs: int, steps: int) -> Row:
    """Judge pairs of one kind, each with a seed of its own."""
    found = Counter(
        outcome(*(one(steps, np.random.default_rng((side, seed))) for side, one in enumerate(speeds)))
        for seed in range(pairs)
    )
    return Row(
        kind=kind,
        differ=differ,
        pairs=pairs,
        changed=found["improved"] + found["regressed"],
        within_noise=found["within noise"],
        not_comparable=found["not comparable"],
    )


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500, help="of each kind (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="steady steps of a run (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "compare_alarms.json")
    options = parser.parse_args()
    kinds = [(name, (one, one), False) for name, one in EQUAL.items()]
    kinds += [(name, both, True) for name, both in CHANGED.items()]
    rows = [row(name, both, differ=differ, pairs=options.pairs, steps=options.steps) for name, both, differ in kinds]
    table = Table(title=f"Pairs of runs of {options.steps} steps")
    for heading in ("pairs that are equal, or differ", "changed", "within noise", "not comparable"):
        table.add_column(heading, justify="left" if not table.columns else "right")
    for one in rows:
        shares = (one.changed, one.within_noise, one.not_comparable)
        table.add_row(one.kind, *(f"{100 * share / one.pairs:.1f} %" for share in shares))
    wide_console().print(table)
    outlasting = [one for one in rows if one.kind in OUTLASTING]
    alarms = sum(one.changed for one in outlasting) / sum(one.pairs for one in outlasting)
    print(f"equal runs called changed where noise outlasts the run: {100 * alarms:.1f} %")
    write_json(
        options.output,
        "compare_alarms",
        settings={"pairs": options.pairs, "steps": options.steps},
        results=[asdict(one) for one in rows],
        outlasting_changed_ratio=alarms,
    )


if __name__ == "__main__":
    main()
