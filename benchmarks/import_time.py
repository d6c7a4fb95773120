"""What importing this package costs beyond ``import lightning``, in fresh processes; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/import_time.py --rounds 7

Each round runs two programs in random order, each in a fresh process: ``import lightning_gpuprof``, and
``from lightning_gpuprof import GpuProfiler``, both after ``import lightning``. The program itself notes the time that
its last line took, so that the seconds that lightning takes do not blur it. One run before the first round compiles
what is not compiled yet. The modules that take longest are listed from one more run with ``python -X importtime``.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from paired import Interval, at_least, bootstrap, command_line, wide_console, write_json
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"package": "import lightning_gpuprof", "profiler": "from lightning_gpuprof import GpuProfiler"}
LIGHTNING = "import lightning"
LONGEST = 12
TIMEOUT_S = 120
_MARK = "benchmark: from here on"
_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)$")


@dataclass(frozen=True, kw_only=True)
class Import:
    """How long imports took in one process."""

    lightning_ms: float
    added_ms: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one statement costs after ``import lightning``."""

    statement: str
    added_ms: Interval
    lightning_ms: float
    rounds: tuple[Import, ...]


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module that the import of ours loads."""

    name: str
    self_ms: float
    """Without what it imports itself."""
    cumulative_ms: float


def python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh process that finds this package."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )


def time_once(statement: str, before: str) -> Import:
    """Time a statement after another one, in a fresh process."""
    program = "\n".join(
        [
            "from time import perf_counter_ns as now",
            "start = now()",
            before,
            "middle = now()",
            statement,
            "end = now()",
            "print(middle - start, end - middle)",
        ]
    )
    first, second = map(int, python(program).stdout.split()[-2:])
    return Import(lightning_ms=first / 1e6, added_ms=second / 1e6)


def measure(
    rounds: int, seed: int, before: str, programs: Mapping[str, str], console: Console
) -> dict[str, list[Import]]:
    """All statements in every round, in an order that is drawn anew for each."""
    rng = random.Random(seed)
    names = list(programs)
    for name in names:
        time_once(programs[name], before)
    times: dict[str, list[Import]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        for name in rng.sample(names, k=len(names)):
            times[name].append(time_once(programs[name], before))
        told = ", ".join(f"{name} {of[-1].added_ms:.0f} ms" for name, of in times.items())
        console.print(f"round {number} of {rounds}: {told}", style="dim")
    return times


def longest_modules(statement: str, before: str) -> list[Module]:
    """The modules that take longest by themselves; each is a little slower under ``-X importtime``."""
    program = f"import sys\n{before}\nprint({_MARK!r}, file=sys.stderr, flush=True)\n{statement}"
    told = python(program, "-X", "importtime").stderr.partition(_MARK)[2]
    found = [match.groups() for line in told.splitlines() if (match := _LINE.match(line))]
    modules = [Module(name=name, self_ms=int(own) / 1e3, cumulative_ms=int(all_) / 1e3) for own, all_, name in found]
    return sorted(modules, key=lambda module: -module.self_ms)[:LONGEST]


def as_tables(results: Sequence[Result], modules: Sequence[Module]) -> list[Table]:
    """The results for a person."""
    table = Table(title="Time of an import after `import lightning`, in ms")
    for heading in ("statement", "added", "95 % interval", "import lightning"):
        table.add_column(heading, justify="left" if heading == "statement" else "right")
    for result in results:
        added = result.added_ms
        interval = f"{added.low:.1f} to {added.high:.1f}"
        table.add_row(result.statement, f"{added.median:.1f}", interval, f"{result.lightning_ms:.0f}")
    of_modules = Table(title=f"Modules that take longest in `{PROGRAMS['profiler']}`, in ms (under -X importtime)")
    for heading in ("module", "self", "with its imports"):
        of_modules.add_column(heading, justify="left" if heading == "module" else "right")
    for module in modules:
        of_modules.add_row(module.name, f"{module.self_ms:.1f}", f"{module.cumulative_ms:.1f}")
    return [table, of_modules]


def main(
    arguments: Sequence[str] | None = None, *, before: str = LIGHTNING, programs: Mapping[str, str] = PROGRAMS
) -> int:
    """Measure, print, write.

    Args:
        arguments: The command line.
        before: What is imported first, outside the measurement.
        programs: The statements that are measured after it; the modules of ``profiler`` are listed.
    """
    parser = command_line("import_time", __doc__, seed="of the order and of the bootstrap")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="how often both statements are timed")
    options = parser.parse_args(arguments)
    console = wide_console()
    rng = np.random.default_rng(options.seed)
    results = [
        Result(
            statement=programs[name],
            added_ms=bootstrap([each.added_ms for each in times], rng),
            lightning_ms=float(np.median([each.lightning_ms for each in times])),
            rounds=tuple(times),
        )
        for name, times in measure(options.rounds, options.seed, before, programs, console).items()
    ]
    modules = longest_modules(programs["profiler"], before)
    for table in as_tables(results, modules):
        console.print(table)
    write_json(
        options.json,
        "import_time",
        settings={"rounds": options.rounds, "seed": options.seed, "before": before},
        results=[asdict(result) for result in results],
        modules=[asdict(module) for module in modules],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
