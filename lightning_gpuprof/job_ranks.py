"""All ranks of a job, from its folder: where they are and who is late."""

import time
from pathlib import Path

from msgspec.structs import replace

from lightning_gpuprof.analyze import rank_states
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_summary import Unended, others_in_folder
from lightning_gpuprof.model.job_ranks import JobRanks
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.rules import engine
from lightning_gpuprof.run_folder import find_journal, metrics_of
from lightning_gpuprof.sinks.status_line import progress

_INTERRUPTED_RANKS_WAIT_S = 2.0
"""The report of a run that was interrupted waits no longer for other ranks, as some of them may be dead."""

_LOOKS_RATIO = 0.2
"""So much of the wait may pass between two looks. Heuristic."""

_ON_RANKS = ("straggler-rank", "load-imbalance", "rank-memory-imbalance")


def await_ranks(found: Path, journal: Journal, most_s: float) -> None:
    """Give the other ranks a moment to end; nobody is asked, and nobody has to answer.

    Args:
        found: The journal of this rank.
        journal: What is in it.
        most_s: So long at most.
    """
    if journal.header.world_size == 1:
        return
    finished = journal.footer is not None and journal.footer.status == "finished"
    begin = time.monotonic()
    end = begin + (most_s if finished else min(most_s, _INTERRUPTED_RANKS_WAIT_S))
    with progress("waiting for the summaries of the other ranks"):
        waited_for = Unended(others_in_folder(found).values())
        while waited_for.look() and (now := time.monotonic()) < end:
            time.sleep(min(end - now, 0.05 + _LOOKS_RATIO * (now - begin)))


def job_ranks(directory: Path, most_bytes: int = rank_states.MOST_BYTES, *, name: str = "") -> JobRanks:
    """Where all ranks of a job are and who is late, from its folder, while it runs or later; no rank is asked.

    Of large journals only the ends are read.

    Args:
        directory: Folder of the run.
        most_bytes: Of all journals together that are read, but at least 128 kB of each.
        name: Of the folder in what is said; empty: itself, else the address of which it is a copy.

    Returns:
        Without a comparison, but with the reason, where fewer than two ranks can be compared.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    folder = find_journal(directory).parent
    job = rank_states.look(folder, most_bytes)
    header = job.own.header
    metrics = metrics_of(job.own, folder / f"rank{header.rank}.jsonl", others=job.others)
    name = name or str(folder)
    if isinstance(metrics.ranks, RankTimes):
        metrics = replace(metrics, ranks=replace(metrics.ranks, folder=name))
    findings = tuple(one for one in engine.diagnose(metrics).findings if one.rule in _ON_RANKS)
    comparison = metrics.rank_table
    return JobRanks(
        folder=name,
        stage=header.stage,
        world_size=header.world_size,
        answer=rank_states.answer(job, findings, compared=comparison is not None),
        is_over=job.is_over,
        ranks=job.states,
        worst=rank_states.worst(job, comparison),
        ends=job.ends.sentences,
        problems=job.problems,
        findings=findings,
        comparison=comparison,
        not_compared=metrics.ranks.why if isinstance(metrics.ranks, Unmeasured) else "",
    )
