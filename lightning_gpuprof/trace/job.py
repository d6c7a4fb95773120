"""Compresses a plain trace and computes the window's facts, in a process of its own.

Run as ``python -m lightning_gpuprof.trace.job PLAIN.json FINAL.pt.trace.json.gz FACTS.json START STOP``. The training
process starts it and goes on; ``FACTS.json`` appears last, so whoever finds it finds everything else done.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.analyses.communication.rank_window import rank_window, write_beside
from lightning_gpuprof.trace.analysis import DEBUG_VARIABLE, analyse, first_rows
from lightning_gpuprof.trace.compression import compress, replacing
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

_USAGE = "usage: python -m lightning_gpuprof.trace.job PLAIN.json FINAL.pt.trace.json.gz FACTS.json START STOP"
_NICE = 10


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to do for one window."""

    plain: Path
    """The trace as torch.profiler wrote it; deleted once ``final`` is in place."""
    final: Path
    facts: Path
    start_step: int
    stop_step: int

    @staticmethod
    def parse(argv: Sequence[str]) -> Job | None:
        """The job that the arguments name, or None if they name none."""
        if len(argv) != 5 or len({os.path.realpath(name) for name in argv[:3]}) != 3:
            return None
        plain, final, facts = map(Path, argv[:3])
        try:
            start_step, stop_step = map(int, argv[3:])
        except ValueError:
            return None
        return Job(plain=plain, final=final, facts=facts, start_step=start_step, stop_step=stop_step)


def run(argv: Sequence[str]) -> int:
    """Compress the trace, compute its facts and write them.

    Whatever fails is named in :attr:`WindowFacts.problem`; the rest is done all the same. The plain trace is kept if
    it could not be compressed.

    Args:
        argv: PLAIN, FINAL, FACTS, START, STOP.

    Returns:
        0, or 1 after a failure, or 2 if the arguments are wrong, and then nothing was touched.
    """
    job = Job.parse(argv)
    if job is None:
        print(_USAGE, file=sys.stderr)
        return 2
    facts, problems = _run_analysis(job)
    if problems:
        facts = msgspec.structs.replace(facts, problem="; ".join([*problems, *filter(None, [facts.problem])]))
    try:
        with replacing(job.facts) as file:
            file.write(msgspec.json.encode(facts))
    except OSError as error:
        problems.append(_failure_line(f"writing {job.facts.name}", error))
    for problem in problems:
        print(f"gpuprof: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _run_analysis(job: Job) -> tuple[WindowFacts, list[str]]:
    """The facts, and what failed. ``except Exception``: this is the outermost frame of a process of its own."""
    facts = WindowFacts(start_step=job.start_step, stop_step=job.stop_step)
    problems: list[str] = []
    in_place = False
    try:
        compress(job.plain, job.final)
        in_place = True
    except Exception as error:
        problems.append(_failure_line(f"compressing {job.plain.name}", error))
    if job.plain.exists():
        try:
            # one process: the CPUs belong to the training
            linked = LinkedTrace(Trace.read(job.plain, processes=1))
            facts = window_facts(linked, start_step=job.start_step, stop_step=job.stop_step)
            facts = msgspec.structs.replace(facts, analysis=first_rows(analyse(linked)))
            if in_place and (linked.trace.about.world_size or 1) > 1:
                write_beside(rank_window(linked), job.final)
        except Exception as error:
            problems.append(_failure_line(f"analysing {job.plain.name}", error))
    if in_place:
        facts = msgspec.structs.replace(facts, file=job.final.name)
        try:
            job.plain.unlink()
        except OSError as error:
            problems.append(_failure_line(f"deleting {job.plain.name}", error))
    elif job.plain.exists():
        problems.append(f"the plain trace is kept as {job.plain}")
    return facts, problems


def _failure_line(what: str, error: Exception) -> str:
    """One line for a failure, with its traceback on stderr if that is asked for."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    if isinstance(error, OSError):
        return f"{what} failed: {error.strerror or error}"
    return f"{what} failed: {error}" if isinstance(error, GpuProfError) else f"{what} failed: {error!r}"


def main() -> int:
    """Run the job of the command line, with a lower priority than the training that it must not slow down."""
    os.nice(_NICE)
    return run(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
