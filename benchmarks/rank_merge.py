"""What it takes to join the ranks of a job, from their journals and from their summaries; prints tables, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/rank_merge.py --ranks 8 64 256 1024 4096

Ranks are computed: steps of 60 ms for some minutes, eight ranks a host, one rank late. Each look is a fresh process
that reads the folder once without summaries, as all of it had to be read before ranks wrote these, and once with them.
The second table is of one rank: the size of its summary, and the CPU time of renewing it from the ends of its journal
and of the complete one at the end. The third is ``gpuprof trace`` on the traces of one window of all ranks, which does
not read them where the ranks have kept what the comparison needs: 400 collectives each.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np
from paired import PEAK_MB, at_least, command_line, wide_console, write_json
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # the tests compute ranks, too

from rank_folders import write_rank
from rank_windows import write_windows

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.rank_summary import MOST_BYTES_WHILE_RUNNING, summarise, summary_path
from lightning_gpuprof.cli.trace import MAX_DETAILS
from lightning_gpuprof.model.journal import Header
from lightning_gpuprof.model.rank_summary import RankSummary
from lightning_gpuprof.trace.analyses.communication.rank_window import file_beside

RANKS = (8, 64, 256, 1024, 4096)
LENGTHS = (1_000, 100_000, 1_000_000)
STEPS = 3_000
ON_A_HOST = 8
LATE_MS = 21.0
KINDS = 16
"""Ranks with noise of their own; the others repeat them."""
REPEATS = 5

LOOK = """
import json, time
from pathlib import Path
import lightning_gpuprof.job_ranks as job_ranks
import lightning_gpuprof.pipeline as pipeline
begin = time.process_time()
if sys.argv[1] == "gpuprof ranks":
    found = job_ranks.job_ranks(Path(sys.argv[2])).findings
else:
    found = pipeline.make_report(Path(sys.argv[2])).findings
late = next((one.subject for one in found if one.rule == "straggler-rank"), "")
print(json.dumps({"cpu_s": time.process_time() - begin, "peak_mb": peak_mb(), "late": late}))
"""

WINDOWS = """
from lightning_gpuprof.cli.main import main
rc = main(["trace", *sys.argv[1:]])
print(peak_mb(), file=sys.stderr)
sys.exit(rc)
"""


@dataclass(frozen=True, kw_only=True)
class OneWindow:
    """``gpuprof trace`` on the traces of all ranks."""

    ranks: int
    wall_s: float
    """Of the whole process, the median of several."""
    peak_mb: float
    kept_bytes: int
    """By each rank."""
    is_right: bool
    """Whether the late rank is named."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One command on one folder."""

    command: str
    ranks: int
    reads: str
    """``journals`` or ``summaries``."""
    cpu_s: float
    """What other programs take meanwhile does not count."""
    peak_mb: float
    """Of the whole process."""
    is_right: bool
    """Whether the late rank is named."""


@dataclass(frozen=True, kw_only=True)
class OneRank:
    """The summary of one rank."""

    steps: int
    journal_bytes: int
    summary_bytes: int
    renewed_cpu_ms: float
    complete_cpu_ms: float


def late_rank(ranks: int) -> int:
    """Somewhere in the last host but one."""
    return ranks - ON_A_HOST // 2 - 1


def make_job(folder: Path, ranks: int, steps: int, *, summaries: bool) -> None:
    """The folder of a job of so many ranks, with journals and, if wanted, the summaries of these."""
    for kind in range(KINDS + 1):
        late_ms = LATE_MS if kind == KINDS else 0.0
        path = write_rank(folder / "kinds", kind, ranks, steps=steps, late_ms=late_ms, host="node")
        first, _, rest = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(first, type=Header)
        summary = summarise(read_journal(path, MOST_BYTES_WHILE_RUNNING))
        for rank in range(ranks):
            if kind != (KINDS if rank == late_rank(ranks) else rank % KINDS):
                continue
            own = {"rank": rank, "host": f"node{rank // ON_A_HOST}"}
            written = folder / f"rank{rank}.jsonl"
            line = msgspec.json.encode(msgspec.structs.replace(header, **own)) + b"\n"
            written.write_bytes(line + rest)
            if summaries:
                one: RankSummary = msgspec.structs.replace(summary, **own, journal_bytes=len(line) + len(rest))
                summary_path(written).write_bytes(msgspec.json.encode(one))
        path.unlink()
    (folder / "kinds").rmdir()


def look(command: str, folder: Path, ranks: int, reads: str) -> Look:
    """Run a command in a fresh process."""
    run = [sys.executable, "-c", PEAK_MB + LOOK, command, str(folder)]
    found = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    late = found.pop("late")
    return Look(command=command, ranks=ranks, reads=reads, is_right=late == f"rank {late_rank(ranks)}", **found)


def one_rank(folder: Path, steps: int) -> OneRank:
    """Sum up one journal again and again."""
    path = write_rank(folder, 1, 2, steps=steps)
    times_ms: dict[int | None, list[float]] = {MOST_BYTES_WHILE_RUNNING: [], None: []}
    for most_bytes, times in times_ms.items():
        for _ in range(REPEATS):
            begin = time.process_time()
            text = msgspec.json.encode(summarise(read_journal(path, most_bytes)))
            times.append((time.process_time() - begin) * 1e3)
    renewed_ms, complete_ms = (float(np.median(times)) for times in times_ms.values())
    return OneRank(
        steps=steps,
        journal_bytes=path.stat().st_size,
        summary_bytes=len(text),
        renewed_cpu_ms=renewed_ms,
        complete_cpu_ms=complete_ms,
    )


def compare_windows(ranks: int) -> OneWindow:
    """Compare the traces of a window of all ranks, by what they kept, in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
        files = write_windows(Path(folder), ranks, late=late_rank(ranks))
        kept = sum(file_beside(file).stat().st_size for file in files)
        times_s: list[float] = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            run = [sys.executable, "-c", PEAK_MB + WINDOWS, *map(str, files)]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            times_s.append(time.perf_counter() - begin)
    return OneWindow(
        ranks=ranks,
        wall_s=float(np.median(times_s)),
        peak_mb=float(done.stderr.splitlines()[-1]),
        kept_bytes=kept // ranks,
        is_right=f"Rank {late_rank(ranks)} waits least" in " ".join(done.stdout.split()),
    )


def tables(looks: Sequence[Look], lengths: Sequence[OneRank], windows: Sequence[OneWindow]) -> list[Table]:
    """The results for a person."""
    of_jobs = Table(title="Joining the ranks of a job")
    for heading in ("command", "ranks", "reads", "CPU s", "peak MB", "late rank named"):
        of_jobs.add_column(heading, justify="right" if heading in {"ranks", "CPU s", "peak MB"} else "left")
    for one in looks:
        named = "yes" if one.is_right else "NO"
        of_jobs.add_row(one.command, f"{one.ranks:,}", one.reads, f"{one.cpu_s:.2f}", f"{one.peak_mb:.0f}", named)
    of_one = Table(title="The summary of one rank")
    for heading in ("steps", "journal kB", "summary kB", "renewed, CPU ms", "complete, CPU ms"):
        of_one.add_column(heading, justify="right")
    for length in lengths:
        sizes = (f"{length.journal_bytes / 1e3:,.0f}", f"{length.summary_bytes / 1e3:.1f}")
        of_one.add_row(f"{length.steps:,}", *sizes, f"{length.renewed_cpu_ms:.1f}", f"{length.complete_cpu_ms:,.1f}")
    of_windows = Table(title="Traces of one window, compared by what the ranks kept")
    for heading in ("ranks", "whole process s", "peak MB", "kB kept by a rank", "late rank named"):
        of_windows.add_column(heading, justify="right")
    for window in windows:
        numbers = (f"{window.wall_s:.2f}", f"{window.peak_mb:.0f}", f"{window.kept_bytes / 1e3:.0f}")
        of_windows.add_row(f"{window.ranks:,}", *numbers, "yes" if window.is_right else "NO")
    return [of_jobs, of_one, of_windows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write.

    Args:
        arguments: The command line.
    """
    parser = command_line("rank_merge", __doc__)
    parser.add_argument("--ranks", type=at_least(8), nargs="+", default=list(RANKS), help="ranks of the jobs")
    parser.add_argument("--steps", type=at_least(200), default=STEPS, help="of each of their ranks")
    parser.add_argument("--lengths", type=at_least(200), nargs="+", default=list(LENGTHS), help="steps of one rank")
    options = parser.parse_args(arguments)
    console = wide_console()
    looks = []
    for ranks in options.ranks:
        for reads in ("journals", "summaries"):
            with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
                make_job(Path(folder), ranks, options.steps, summaries=reads == "summaries")
                looks += [look(command, Path(folder), ranks, reads) for command in ("gpuprof ranks", "gpuprof report")]
    with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
        lengths = [one_rank(Path(folder), steps) for steps in options.lengths]
    windows = [compare_windows(ranks) for ranks in options.ranks if ranks > MAX_DETAILS]
    for table in tables(looks, lengths, windows):
        console.print(table)
    write_json(
        options.json,
        "rank_merge",
        settings={"steps": options.steps, "on_a_host": ON_A_HOST, "late_ms": LATE_MS},
        looks=[asdict(one) for one in looks],
        lengths=[asdict(one) for one in lengths],
        windows=[asdict(one) for one in windows],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
