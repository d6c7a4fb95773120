"""Whether a slowdown is noticed while it goes on, in how many steps, and how often one is that is none; writes JSON.

Run it from anywhere; nothing is timed::

    python benchmarks/slowdowns.py --runs 20

Step times are computed: their noise is lognormal, that of neighbours alike (correlation 0.7), and grows from 2 to 15 %;
some single steps are twice as long, and with much noise other programs lengthen 10 to 30 steps in a row by a fifth. The
watcher of slow steps gets them as the journal's thread hands them over. In the middle of a run all further steps become
longer by a part, or one step takes twenty times as long, or nothing happens. ``--journals`` also replays recorded runs,
in which nothing was planted.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from paired import at_least, command_line, wide_console, write_json
from rich.table import Table

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.capture.slow_steps import SlowSteps
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import Slot

STEPS = 2_000
AT = 1_000
"""Step from which on something is planted."""
SHIFTS = (0.03, 0.05, 0.1, 0.3, 1.0)
NOISES = {"quiet": 0.02, "ordinary": 0.05, "noisy": 0.15}
STEP_MS = (10.0, 50.0)
FLUSH_MS = 500.0
"""The journal's thread looks about so often."""
LIKE_BEFORE = 0.7
LOOP = [Slot(id=0, action="loop", phase="loop")]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What became of the runs of one kind."""

    noise: str
    step_ms: float
    planted: str
    runs: int
    noticed: int
    """Runs in which it was reported after it began."""
    median_delay_steps: float | None
    false_alarms: int
    """Reports before it, or where there is none to report."""
    steps_without: int
    """Steps in which a report is a false alarm."""


def times_ms(noise: str, step_ms: float, rng: np.random.Generator) -> Floats:
    """Step times of a healthy run, shape (STEPS,)."""
    spread = NOISES[noise]
    drawn = rng.normal(0, spread * np.sqrt(1 - LIKE_BEFORE**2), STEPS)
    for step in range(1, STEPS):
        drawn[step] += LIKE_BEFORE * drawn[step - 1]
    found = step_ms * np.exp(drawn)
    found[rng.random(STEPS) < 0.01] *= 2
    if noise == "noisy":
        for begin in rng.integers(0, STEPS, 10):
            found[begin : begin + rng.integers(10, 31)] *= 1.2
    return found


def reports(periods_ms: Sequence[float]) -> list[int]:
    """Steps at which a slowdown is reported."""
    watch, now, flushed = SlowSteps(LOOP), 0, 0.0
    waiting: list[ClosedStep] = []
    found: list[int] = []
    for batch, period_ms in enumerate(periods_ms):
        end = now + round(period_ms * 1e6)
        waiting.append(ClosedStep(batch, now, end, batch, 0, 0, [end - now], None, -1))
        now = end
        flushed += period_ms
        if flushed >= FLUSH_MS:
            if watch.look(waiting) is not None:
                found.append(batch)
            waiting, flushed = [], 0.0
    return found


def measure(noise: str, step_ms: float, planted: str, runs: int, seed: int) -> Case:
    """Many runs of one kind."""
    rng = np.random.default_rng(seed)
    delays: list[int] = []
    false_alarms = without = 0
    for _ in range(runs):
        periods = times_ms(noise, step_ms, rng)
        is_shift = planted not in ("nothing", "a stall")
        if planted == "a stall":
            periods[AT] *= 20
        elif is_shift:
            periods[AT:] *= 1 + float(planted.removesuffix(" %")) / 100
        found = reports(periods.tolist())
        after = [step for step in found if step >= AT] if is_shift else []
        false_alarms += len(found) - len(after)
        without += AT if is_shift else STEPS
        delays += [after[0] - AT] if after else []
    return Case(
        noise=noise,
        step_ms=step_ms,
        planted=planted,
        runs=runs,
        noticed=len(delays),
        median_delay_steps=float(np.median(delays)) if delays else None,
        false_alarms=false_alarms,
        steps_without=without,
    )


def replayed(folders: Sequence[Path]) -> Iterator[tuple[str, int, int]]:
    """Name, steps and reports of recorded runs."""
    for path in sorted(path for folder in folders for path in folder.rglob("rank0.jsonl")):
        steps = read_journal(path).steps
        yield str(path.parent), len(steps), len(reports((steps.period_ns / 1e6).tolist()))


def as_table(cases: Sequence[Case]) -> Table:
    """The results for a person."""
    table = Table(title="Slowdowns that go on, as they are noticed")
    for heading in ("noise", "step ms", "planted", "noticed", "delay, steps", "false alarms", "in steps"):
        table.add_column(heading, justify="left" if heading in ("noise", "planted") else "right")
    for case in cases:
        delay = "" if case.median_delay_steps is None else f"{case.median_delay_steps:.0f}"
        noticed = "" if case.planted in ("nothing", "a stall") else f"{case.noticed} of {case.runs}"
        told = (noticed, delay, str(case.false_alarms), f"{case.steps_without:,}")
        table.add_row(case.noise, f"{case.step_ms:g}", case.planted, *told)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = command_line("slowdowns", __doc__, seed="of the step times")
    parser.add_argument("--runs", type=at_least(1), default=20, help="of each kind")
    parser.add_argument("--journals", type=Path, nargs="*", default=[], help="folders of recorded runs, also replayed")
    options = parser.parse_args(arguments)
    console = wide_console()
    planted = ["nothing", "a stall", *(f"{100 * shift:g} %" for shift in SHIFTS)]
    cases = [
        measure(noise, step_ms, what, options.runs, options.seed)
        for noise in NOISES
        for step_ms in STEP_MS
        for what in planted
    ]
    console.print(as_table(cases))
    for name, steps, found in replayed(options.journals):
        console.print(f"{name}: {found} reports in {steps:,} steps", markup=False)
    settings = {"runs": options.runs, "steps": STEPS, "at": AT, "seed": options.seed}
    write_json(options.json, "slowdowns", settings=settings, results=[asdict(case) for case in cases])
    return 0


if __name__ == "__main__":
    sys.exit(main())
