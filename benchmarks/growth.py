"""Cost as a function of work: size of a trace, steps of a run, callbacks of a fit; prints tables, writes JSON.

Run it from anywhere, with nothing else running; ``trace_peers_environment.py`` first makes the peer's environment::

    python benchmarks/growth.py

- A recorded trace is repeated up to each size, and read by ``gpuprof trace`` and HolisticTraceAnalysis, each in a
  process of its own that is timed from its start to its end.
- The report of a run of so many steps, as ``long_run.py`` writes it, in a process of its own, without its imports.
- What ``GpuProfiler()`` and an empty callback add to a step beside so many other callbacks, as ``one_fit.py`` does.

``docs/tools/doc_pictures.py --growth`` draws it.
"""

import argparse
import logging
import random
import sys
import tempfile
import trace
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import long_run
import one_fit
import torch
from paired import at_least, command_line, wide_console, write_json
from rich.console import Console
from rich.table import Table
from trace_reading import MB

from lightning_gpuprof.trace.partial_read import size_of_json

SOURCE = "h100_nsfw_vit"
MEGABYTES = (5, 20, 54, 200, 620, 1200)
STEPS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CALLBACKS = (0, 2, 5, 10, 20)
SLOTS = 10
PEER = "HolisticTraceAnalysis"
PEER_ROUNDS_TO_MB, PEER_TO_MB = 100, 250
"""Above these, the peer reads once, and not at all: it takes minutes."""


@dataclass(frozen=True, kw_only=True)
class OfTrace:
    """How long a trace takes, median of the rounds."""

    megabytes: float
    """Of JSON."""
    who: str
    process_s: float


@dataclass(frozen=True, kw_only=True)
class OfSteps:
    """How long a report takes, and its memory beyond the imports."""

    steps: int
    report_s: float
    peak_mb: float


def traces(folder: Path, megabytes: Sequence[int], *, rounds: int, seed: int, console: Console) -> Iterator[OfTrace]:
    """Each size, read by all in every round, in a drawn order.

    Raises:
        RuntimeError: One of ours failed, or there is no room.
    """
    source, tool = trace.found_in(folder, SOURCE), folder.resolve().parent / "tools" / "grow_trace.py"
    if source is None or not tool.is_file():
        console.print(f"no traces: {folder / SOURCE} or {tool} is missing", style="yellow", markup=False)
        return
    order, peers = random.Random(seed), trace.able(["hta"], console)
    for size in megabytes:
        with trace.grown_trace(source, tool, size) as path:
            found: dict[str, list[float]] = {}
            for number in range(rounds):
                peer_reads = size <= (PEER_TO_MB if number == 0 else PEER_ROUNDS_TO_MB)
                of_round = [*trace.COMMANDS, *(peers if peer_reads else ())]
                for who in order.sample(of_round, k=len(of_round)):
                    if who in trace.COMMANDS:
                        found.setdefault(who, []).append(trace.time_command(trace.COMMANDS[who], path))
                    elif not (run := trace.in_a_process(who, path)).failed:
                        found.setdefault(PEER, []).append(run.process_s)
            for who, seconds in found.items():
                yield OfTrace(megabytes=size_of_json(path) / MB, who=who, process_s=median(seconds))


def reports(steps: Sequence[int], *, seed: int) -> Iterator[OfSteps]:
    """Write a run of each length, and make its report."""
    for count in steps:
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            path = Path(folder) / "rank0.jsonl"
            long_run.write(path, long_run.Settings(steps=count, slots=SLOTS, report_steps=count, seed=seed))
            found = long_run.read(path, "report")
            yield OfSteps(steps=found.steps, report_s=found.time_s, peak_mb=found.peak_mb)


def as_tables(
    of_traces: Sequence[OfTrace], of_steps: Sequence[OfSteps], of_callbacks: Sequence[one_fit.Result]
) -> Iterator[Table]:
    """The results for a person."""
    table = Table("MB of JSON", "who", "s", title="Whole process for a trace")
    for trace_read in of_traces:
        table.add_row(f"{trace_read.megabytes:,.0f}", trace_read.who, f"{trace_read.process_s:.2f}")
    yield table
    table = Table("steps", "s", "MB", title="Report of a run")
    for report in of_steps:
        table.add_row(f"{report.steps:,}", f"{report.report_s:.2f}", f"{report.peak_mb:,.0f}")
    yield table
    table = Table("other callbacks", "with", "added, µs", "95 % interval", title="A training step")
    for one in of_callbacks:
        if one.mode != one_fit.NONE:
            added = one.added_us
            interval = f"{added.low:+.1f} to {added.high:+.1f}"
            table.add_row(str(one.other_callbacks), one.label, f"{added.median:+.1f}", interval)
    yield table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("growth", __doc__, seed="of orders, times and the bootstrap")
    parser.add_argument("--traces", type=Path, default=trace.TRACES, help="folder of the recorded traces")
    parser.add_argument("--megabytes", type=int, nargs="*", default=MEGABYTES, help="sizes of a trace's JSON")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="in which each trace is read")
    parser.add_argument("--steps", type=int, nargs="*", default=STEPS, help="lengths of a run")
    parser.add_argument("--callbacks", type=int, nargs="*", default=CALLBACKS, help="other callbacks of a fit")
    least = one_fit.BLOCK * len(one_fit.MODES) * 3
    parser.add_argument("--fit-steps", type=at_least(least), default=30_000, help="steps of each fit")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    console = wide_console()
    of_traces = list(
        traces(options.traces, options.megabytes, rounds=options.rounds, seed=options.seed, console=console)
    )
    of_steps = list(reports(options.steps, seed=options.seed))
    torch.set_num_threads(1)
    of_callbacks: list[one_fit.Result] = []
    for others in options.callbacks:
        medians = one_fit.alternate(options.fit_steps, options.seed, others)
        of_callbacks += one_fit.summarise(medians, options.seed, others)
    for table in as_tables(of_traces, of_steps, of_callbacks):
        console.print(table)
    write_json(
        options.json,
        "growth",
        settings={
            "source": SOURCE,
            "rounds": options.rounds,
            "slots": SLOTS,
            "fit_steps": options.fit_steps,
            "seed": options.seed,
        },
        traces=[asdict(one) for one in of_traces],
        steps=[asdict(one) for one in of_steps],
        callbacks=[asdict(one) for one in of_callbacks],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
