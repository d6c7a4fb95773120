"""Is all of the time found, and in the right place? Every loop of Lightning, sleeps planted against found.

Run it from anywhere, with nothing else running::

    python benchmarks/accounting.py --scale 2

Each case of :mod:`planted_loops.cases` is run twice, without and with sleeps of known size at named places; see
:mod:`planted_loops.check` for what must hold. A case that does not is made again twice, for a disturbed machine. Three
further runs show how much of the wall time remains unexplained: the digits example, a step of about 0.5 ms and one of
50 ms. The exit code is 1 if anything is off.
"""

import argparse
import contextlib
import io
import logging
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from paired import at_least, command_line, write_json
from planted_loops.case import Case
from planted_loops.cases import CASES
from planted_loops.check import UNEXPLAINED, Line, Outcome, run_case
from planted_loops.naps import Naps
from planted_loops.planting import loader, planted_module
from planted_loops.run import Run
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report

ROOT = Path(__file__).resolve().parents[1]
ATTEMPTS = 3
COLUMNS = tuple(phase for phase in PHASES if phase != "loop")
OUTSIDE = ("setup", "sanity", "epoch_gap", "teardown")
"""Parts of the wall time without steps."""
UNNAMED = "Lightning, between named actions"
"""The ledger's name for it."""
TABLE_WIDTH = 200


@dataclass(frozen=True, kw_only=True)
class Result:
    """A case as it went in the attempt that counts: the first good one, or the last."""

    case: str
    attempts: int
    seconds: float
    problems: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Remainder:
    """How much of a run no record explains."""

    run: str
    steps: int
    step_ms: float | None
    """Median."""
    wall_s: float
    unexplained_ratio: float
    """Of the wall time: no record covers it."""
    unnamed_ratio: float
    """Of the wall time: covered, but only known to be Lightning's own work between named actions."""


class Busy(nn.Module):
    """Multiplies for a given time: a step that computes, not one that sleeps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.linear = nn.Linear(8, 8)
        self.matrix = torch.ones(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        """A linear layer, after the multiplications."""
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            torch.mm(self.matrix, self.matrix)
        return self.linear(x)  # type: ignore[no-any-return]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What Lightning prints and warns about in such small runs is not for this table."""
    sink = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def attempt(case: Case, scale: float) -> Outcome:
    """Run a case; one that raises is a problem like others."""
    try:
        with quiet():
            return run_case(case, scale=scale)
    except Exception:
        return Outcome(case=case.name, lines=(), problems=(traceback.format_exc(limit=-3),))


def measure(cases: Sequence[Case], scale: float, console: Console) -> list[Result]:
    """All cases, each until it is good, at most :data:`ATTEMPTS` times."""
    results = []
    for case in cases:
        begin = time.perf_counter()
        outcome, attempts = attempt(case, scale), 1
        while outcome.problems and attempts < ATTEMPTS:
            outcome, attempts = attempt(case, scale), attempts + 1
        seconds = time.perf_counter() - begin
        results.append(
            Result(
                case=case.name,
                attempts=attempts,
                seconds=round(seconds, 2),
                problems=outcome.problems,
                lines=outcome.lines,
            )
        )
        console.print(f"{case.name}: {'off' if outcome.problems else 'found'}", style="dim", highlight=False)
    return results


def as_table(results: Sequence[Result]) -> Table:
    """Loops by phases, for a person."""
    table = Table(
        title="Planted ms, and by how many % more was found (beyond what the run without sleeps has there)",
        caption="outside: set-up, sanity check, epoch gaps, teardown; elsewhere: most that came to any other phase,"
        " in % of all that was planted",
        box=None,
    )
    table.add_column("loop", no_wrap=True)
    for column in (*COLUMNS, "outside", "elsewhere"):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        for fit in dict.fromkeys(line.case for line in result.lines) or [result.case]:
            lines = [line for line in result.lines if line.case == fit]
            cells = [_cell([x for x in lines if x.where == f"phase {phase}"]) for phase in COLUMNS]
            outside = [x for x in lines if x.where.startswith("ledger ") and x.where.split()[1] in OUTSIDE]
            style = "red" if result.problems else ""
            table.add_row(fit, *cells, _cell(outside), _elsewhere(lines), style=style)
    return table


def _cell(lines: Sequence[Line]) -> str:
    planted_s = sum(line.planted_s for line in lines)
    if not planted_s:
        return ""
    more_s = sum(line.found_s - line.twin_s - line.planted_s for line in lines if line.planted_s)
    return f"{planted_s * 1e3:.0f} {100 * more_s / planted_s:+.1f}"


def _elsewhere(lines: Sequence[Line]) -> str:
    planted_s = sum(line.planted_s for line in lines if line.where.startswith("part "))
    in_phases = [line for line in lines if line.where.startswith(("phase ", "part epoch_gap", "part sanity"))]
    other = max((line.found_s - line.twin_s for line in in_phases if not line.planted_s), default=0.0)
    return f"{100 * max(0.0, other) / planted_s:.1f}" if planted_s else ""


def digits(folder: Path, epochs: int) -> Report:
    """The example in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "examples.digits", "fit", "--config", "configs/digits.yaml"]
    options = [f"--trainer.max_epochs={epochs}", f"--trainer.logger.init_args.save_dir={folder}"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the digits example failed: {done.stderr[-2000:]}")
    (found,) = folder.rglob("report.json")
    return load_report(found)


def toy(folder: Path, step_s: float, steps: int) -> Report:
    """A run with the profiler's default options whose steps take about so long."""
    naps = Naps({})
    run = Run(folder, naps)
    profiler = GpuProfiler(dirpath=str(folder / "gpuprof"), reports=["json"])
    module = planted_module(naps)
    if step_s:
        module.layer = Busy(step_s)
    with quiet():
        run.trainer(profiler).fit(module, loader(naps, steps))
    if profiler.report is None:
        raise RuntimeError("the profiler made no report")
    return profiler.report


def remainders(epochs: int) -> list[Remainder]:
    """The share of the wall time that is unexplained in three runs of different kinds."""
    found = []
    runs: dict[str, Callable[[Path], Report]] = {
        f"digits, {epochs} epochs": lambda folder: digits(folder, epochs),
        "toy": lambda folder: toy(folder, 0.0, 4000),
        "50 ms step": lambda folder: toy(folder, 0.0495, 100),
    }
    for name, work in runs.items():
        with tempfile.TemporaryDirectory(prefix="accounting-") as folder:
            report = work(Path(folder))
        period = report.steps.period_ms
        unnamed_s = sum(row.total_s for row in report.ledger if row.name == UNNAMED)
        found.append(
            Remainder(
                run=name,
                steps=report.steps.count,
                step_ms=period.median if period is not None else None,
                wall_s=report.wall.total_s,
                unexplained_ratio=report.wall.parts["unexplained"] / report.wall.total_s,
                unnamed_ratio=unnamed_s / report.wall.total_s,
            )
        )
    return found


def remainder_table(found: Sequence[Remainder]) -> Table:
    table = Table(title="Wall time that no record explains, and that is known only as between two named actions")
    for column in ("run", "steps", "step", "wall time", "unexplained", "between actions"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in found:
        step = "" if row.step_ms is None else f"{row.step_ms:.3g} ms"
        shares = (f"{row.unexplained_ratio:.3%}", f"{row.unnamed_ratio:.2%}")
        table.add_row(row.run, str(row.steps), step, f"{row.wall_s:.2f} s", *shares)
    return table


def _as_plain(result: Result) -> dict[str, object]:
    lines = [
        {"fit": line.case, "where": line.where, "ok": line.ok}
        | {name: round(getattr(line, name), 6) for name in ("planted_s", "found_s", "twin_s")}
        for line in result.lines
        if line.planted_s or not line.ok
    ]
    return {**asdict(result), "ok": not result.problems, "lines": lines}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("accounting", __doc__)
    parser.add_argument("--scale", type=float, default=2.0, help="all sleeps are longer by this factor")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only cases with such a word in the name")
    parser.add_argument("--quick", action="store_true", help="without slow cases and without the three further runs")
    parser.add_argument("--epochs", type=at_least(1), default=2, help="of the digits example")
    options = parser.parse_args(arguments)
    if options.scale <= 0:
        parser.error(f"--scale must be above 0, got {options.scale}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = Console()
    cases = [
        case
        for case in CASES
        if not (options.quick and case.slow) and (not options.only or any(word in case.name for word in options.only))
    ]
    if not cases:
        console.print(f"No case has {' or '.join(options.only)} in its name.")
        return 2
    results = measure(cases, options.scale, console)
    found = [] if options.quick else remainders(options.epochs)
    Console(width=max(console.width, TABLE_WIDTH)).print(as_table(results))
    if found:
        console.print(remainder_table(found))
    for result in results:
        for problem in result.problems:
            console.print(f"off: {problem}", markup=False)
    write_json(
        options.json,
        "accounting",
        settings={"scale": options.scale, "attempts": ATTEMPTS},
        cases=[_as_plain(result) for result in results],
        unexplained=[asdict(row) for row in found],
    )
    off = any(result.problems for result in results)
    return int(off or any(abs(row.unexplained_ratio) > UNEXPLAINED for row in found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
