"""What reading and analysing a trace takes, ours against other tools: time, memory, stages; prints tables, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/trace_peers_environment.py
    python benchmarks/trace.py --grown 620

The files are recorded traces in a folder that is not part of this project. In each round every reader reads the file
once, in an order that is drawn anew, in a process of its own; the file has been read before, so that no one waits for
the disk. ``--grown`` repeats a trace until it has so many MB of JSON, and compresses it as torch does; it is removed
afterwards.

- ``ours``: reads without the calls of Python functions and computes everything that needs no stacks; ``ours-as-hta``:
  only what HolisticTraceAnalysis is asked for; ``ours-all``: with the calls; ``ours-1`` (on request): as ``ours``, in
  one process whatever the size.
- ``hta``: HolisticTraceAnalysis, kernels, idle time, overlap, launches and queue; ``tb``: torch_tb_profiler, all its
  views; ``tracelens``: TraceLens, timeline, operators and kernels. ``trace_peers.py`` has what exactly they are asked.

``gpuprof trace`` itself is run in the same rounds, and timed from the start of its process to its end: that is what a
user waits for, and what documentation says.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import trace_ours
import trace_peers
from paired import at_least, command_line, wide_console, write_json
from rich.console import Console
from trace_peers_environment import PEERS, python, why_not
from trace_reading import MB, Reading
from trace_results import (
    FileResult,
    Run,
    Target,
    as_table,
    as_table_of_commands,
    as_table_of_stages,
    as_table_of_targets,
    commands_of,
    summarise,
    targets_of,
)

from lightning_gpuprof.trace.compression import compress
from lightning_gpuprof.trace.partial_read import size_of_json

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TRACES = ROOT.parent / "shared" / "traces"
FILES = ("v100_2rank_rank1_comm_heavy", "h100_owlv2")
GROWN = "v100_2rank_rank1_comm_heavy"
READERS = (*trace_ours.READERS, *trace_peers.READERS)
DEFAULT_READERS = ("ours", "ours-as-hta", "ours-all", *trace_peers.READERS)
COMMANDS: dict[str, tuple[str, ...]] = {"gpuprof trace FILE --json": ("--json",), "gpuprof trace FILE": ()}
TIMEOUT_S = 900


def as_installed(*, own: bool) -> dict[str, str]:
    """The environment of a process that keeps what it compiles, as installed ones do; ours finds this package."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if own:
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return environ


def in_a_process(reader: str, path: Path | None) -> Run:
    """Let a reader read a file, or only import what it needs, in a fresh process."""
    own = reader in trace_ours.READERS
    program, interpreter = ("trace_ours.py", sys.executable) if own else ("trace_peers.py", str(python()))
    command = [interpreter, str(HERE / program), reader, *([str(path)] if path else [])]
    environ = as_installed(own=own)
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Run(process_s=TIMEOUT_S, reading=None, failed=f"not done after {TIMEOUT_S} s")
    took = time.perf_counter() - begin
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        return Run(process_s=took, reading=None, failed=f"ended with {done.returncode}: {last}")
    return Run(process_s=took, reading=Reading.parse(done.stdout.splitlines()[-1]))


def time_command(options: Sequence[str], path: Path) -> float:
    """Run ``gpuprof trace`` and return the seconds from the start of its process to its end.

    Raises:
        RuntimeError: It failed.
    """
    environ = as_installed(own=True)
    command = [sys.executable, "-m", "lightning_gpuprof", "trace", str(path), *options]
    begin = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    took = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"gpuprof trace {path.name}: {done.stderr.strip()}")
    return took


def able(readers: Sequence[str], console: Console) -> list[str]:
    """The readers that can run here. Each is started once, so that what is not compiled yet is.

    Raises:
        RuntimeError: One of ours cannot.
    """
    found = []
    for reader in dict.fromkeys(readers):
        reason = "" if reader in trace_ours.READERS else why_not(reader)
        reason = reason or in_a_process(reader, None).failed
        if reason and reader in trace_ours.READERS:
            raise RuntimeError(f"{reader}: {reason}")
        if reason:
            console.print(f"{reader} is left out: {reason}", style="yellow", markup=False)
        else:
            found.append(reader)
    return found


def measure(path: Path, name: str, readers: Sequence[str], *, rounds: int, seed: int, console: Console) -> FileResult:
    """All readers in every round, in an order that is drawn anew for each.

    Raises:
        RuntimeError: One of ours failed.
    """
    order = random.Random(seed)
    path.read_bytes()
    runs: dict[str, list[Run]] = {reader: [] for reader in readers}
    took_s: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for options in COMMANDS.values():
        time_command(options, path)  # compiles what is not compiled yet
    each = [*readers, *COMMANDS]
    for number in range(1, rounds + 1):
        for reader in order.sample(each, k=len(each)):
            if reader in COMMANDS:
                took_s[reader].append(time_command(COMMANDS[reader], path))
                continue
            run = in_a_process(reader, path)
            if run.reading is None and reader in trace_ours.READERS:
                raise RuntimeError(f"{reader}, {name}: {run.failed}")
            runs[reader].append(run)
            told = f"{run.reading.work_s:.2f} s, {run.reading.peak_mb:.0f} MB" if run.reading else run.failed
            console.print(f"{name}, round {number} of {rounds}: {reader} {told}", style="dim", markup=False)
    json_mb = size_of_json(path) / MB
    rng = np.random.default_rng(seed)
    return FileResult(
        file=name,
        json_mb=json_mb,
        file_mb=path.stat().st_size / MB,
        rounds=rounds,
        results=summarise(runs, json_mb, rng),
        commands=commands_of(took_s, runs.get("hta", ()), json_mb, rng),
    )


@contextmanager
def grown_trace(source: Path, tool: Path, megabytes: float) -> Iterator[Path]:
    """A trace that was repeated until it has so much JSON, compressed; it is removed at the end."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trace-grown-", dir=ROOT / "build") as folder:
        plain, packed = Path(folder) / "grown.pt.trace.json", Path(folder) / "grown.pt.trace.json.gz"
        if shutil.disk_usage(folder).free < 2 * megabytes * MB:
            raise RuntimeError(f"there is no room for a trace of {megabytes:.0f} MB in {folder}")
        command = [sys.executable, str(tool), str(source), str(plain), f"{megabytes:g}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        compress(plain, packed)
        plain.unlink()
        yield packed


def found_in(folder: Path, name: str) -> Path | None:
    """The file of this name, which may be without its endings."""
    candidates = (folder / f"{name}{ending}" for ending in ("", ".json.gz", ".json"))
    return next((path for path in candidates if path.is_file()), None)


def show(found: Sequence[FileResult], targets: Sequence[Target], console: Console) -> None:
    """Print all tables, and what failed."""
    for file in found:
        console.print(as_table(file))
        for result in file.results:
            for problem in filter(None, (result.failed, *result.problems)):
                console.print(f"{result.reader}: {problem}", style="yellow", markup=False)
    for file in found:
        commands = as_table_of_commands(file)
        if commands is not None:
            console.print(commands)
    for file in found:
        stages = as_table_of_stages(file, list(trace_ours.READERS))
        if stages is not None:
            console.print(stages)
    console.print(as_table_of_targets(targets))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("trace", __doc__, seed="of the order and of the bootstrap")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the recorded traces")
    parser.add_argument("--files", nargs="*", default=list(FILES), help="names in it, with or without .json.gz")
    parser.add_argument("--grown", type=float, metavar="MB", help="also a trace that is repeated up to this size")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="how often every reader reads a file")
    parser.add_argument("--grown-rounds", type=at_least(1), default=1, help="the same of the grown one")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(DEFAULT_READERS))
    options = parser.parse_args(arguments)
    if options.traces == TRACES and not TRACES.is_dir():
        return options
    wanted = [*options.files, *([GROWN] if options.grown else [])]
    missing = [name for name in wanted if found_in(options.traces, name) is None]
    if missing:
        parser.error(f"--files: {options.traces} has no {', '.join(missing)}")
    options.tool = options.traces.resolve().parent / "tools" / "grow_trace.py"
    if options.grown and not options.tool.is_file():
        parser.error(f"--grown needs {options.tool}, which is not there")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = wide_console()
    if not options.traces.is_dir():
        console.print(f"nothing to read: {options.traces} is not there; give a folder with --traces", markup=False)
        return 0
    readers = able(options.readers, console)
    found = []
    for name in options.files:
        path = found_in(options.traces, name)
        assert path is not None
        found.append(measure(path, name, readers, rounds=options.rounds, seed=options.seed, console=console))
    if options.grown:
        source = found_in(options.traces, GROWN)
        assert source is not None
        with grown_trace(source, options.tool, options.grown) as path:
            name = f"{GROWN}, grown"
            found.append(measure(path, name, readers, rounds=options.grown_rounds, seed=options.seed, console=console))
    targets = [target for file in found for target in targets_of(file)]
    show(found, targets, console)
    write_json(
        options.json,
        "trace",
        settings={
            "files": options.files,
            "grown_mb": options.grown,
            "rounds": options.rounds,
            "grown_rounds": options.grown_rounds,
            "readers": readers,
            "seed": options.seed,
            "peers": {reader: version for reader, version in PEERS.items() if reader in readers},
        },
        results=[asdict(file) for file in found],
        targets=[{**asdict(target), "met": target.met} for target in targets],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
