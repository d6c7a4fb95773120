"""The metrics of one rank of several: its own numbers, and what the summaries of the others add.

The CPU time of the other ranks is set apart from that of other programs.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lightning_gpuprof.analyze import metrics, rank_notices
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_ends import rank_ends
from lightning_gpuprof.analyze.rank_summary import MOST_BYTES_WHILE_RUNNING, OtherRanks, left_by, summarise
from lightning_gpuprof.analyze.rank_times import of_one_job, rank_times
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import Notice, Sample
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.rank_memory import RankMemory, RankNeed
from lightning_gpuprof.model.rank_summary import RankSummary
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.model.window import WindowFacts

_CLOCKS_APART_NS = 60_000_000_000
"""Machines of one name count from their own starts, which are further apart than the calendar is set right."""


def attribute_cpu_to_ranks(own: Journal, others: Sequence[RankSummary]) -> Journal:
    """Take the CPU time that other ranks measured of themselves off that of "other processes" on the CPUs of this one.

    Args:
        own: One rank's journal.
        others: Other ranks of the job, on whatever machine.

    Returns:
        The journal with ``cpu_ranks_cpus`` beside ``cpu_others_cpus`` in the machine's samples; the same journal where
        no other rank shares CPUs with this one.
    """
    rows = [(at, s) for at, s in enumerate(own.samples) if s.subject == "host" and _others_cpus(s) is not None]
    t_ns = np.array([s.t_ns for _, s in rows], np.int64)
    taken = [found for other in others if (found := _used_by(own, other, t_ns)) is not None]
    if not rows or not taken:
        return own
    samples = list(own.samples)
    for (at, sample), cpus in zip(rows, np.sum(taken, axis=0), strict=True):
        of_all = _others_cpus(sample) or 0.0
        ranks = min(of_all, float(cpus))
        values = {**sample.values, "cpu_others_cpus": of_all - ranks, "cpu_ranks_cpus": ranks}
        samples[at] = replace(sample, values=values)
    return replace(own, samples=samples)


def _others_cpus(sample: Sample) -> float | None:
    return sample.values.get("cpu_others_cpus")


def _used_by(own: Journal, other: RankSummary, t_ns: NDArray[np.int64]) -> Floats | None:
    """CPUs of this rank that another one used at each time; None where it has none of them, or nothing is known."""
    ours, theirs = _cpus(own.conditions.get("host.cpu_set")), _cpus(other.cpu_set)
    if not _side_by_side(own, other) or not ours & theirs or not other.cpu_t_s:
        return None
    times = other.start_ns + np.array(other.cpu_t_s) * 1e9
    there = np.interp(t_ns, times, other.cpu_cpus)
    return there * (len(ours & theirs) / len(theirs))  # spread over its CPUs


def _cpus(listed: object) -> frozenset[str]:
    return frozenset(listed.split(",")) if isinstance(listed, str) and listed else frozenset()


def _side_by_side(own: Journal, other: RankSummary) -> bool:
    """Whether both are of one stage, and on one machine."""
    a, b = own.header, other
    if (a.host, a.stage, a.world_size) != (b.host, b.stage, b.world_size):
        return False
    return abs((a.epoch_ns - a.start_ns) - (b.epoch_ns - b.start_ns)) < _CLOCKS_APART_NS


def build(
    journal: Journal, found: Path, others: OtherRanks, windows: Sequence[WindowFacts], notices: Sequence[Notice]
) -> Metrics:
    """Compute the metrics of a rank.

    Args:
        journal: Of the rank.
        found: The file that it was read from.
        others: The other ranks of its job.
        windows: Facts of the rank's own windows.
        notices: That did not reach the journal.

    Returns:
        As of :func:`~lightning_gpuprof.analyze.metrics.build`, with what ranks say beside each other; not valid if they
        were out of step.
    """
    alone = metrics.build(attribute_cpu_to_ranks(journal, others.summaries), windows, notices)
    own = summarise(journal)
    ends = rank_ends(own, others.summaries, others.unread)
    notices_of_others, windows_of_others = rank_notices.of_others(journal, others.summaries)
    times = rank_times(_as_others(own, found, others), others.summaries, others.unread)
    caveats = (*ends.sentences, *alone.validity.caveats, *notices_of_others)
    return replace(
        alone,
        validity=replace(alone.validity, ok=alone.validity.ok and ends.in_step, caveats=caveats),
        ranks=replace(times, folder=str(found.parent)) if isinstance(times, RankTimes) else times,
        rank_memory=rank_memory(own, others.summaries) if journal.header.world_size > 1 else None,
        rank_ends=ends.sentences,
        rank_windows=windows_of_others,
    )


def _as_others(own: RankSummary, found: Path, others: OtherRanks) -> RankSummary:
    """The rank as others are known, whole or by the ends: which steps are drawn depends on how many there are."""
    are_whole = all(one.is_whole for one in others.summaries)
    if not are_whole:
        with suppress(JournalError):
            return summarise(read_journal(found, MOST_BYTES_WHILE_RUNNING))
    return own if own.is_whole else left_by(found) or own


def rank_memory(own: RankSummary, others: Sequence[RankSummary]) -> RankMemory | Unmeasured:
    """Compare ranks by the peak of their GPU's memory.

    Args:
        own: Of the rank that is looked at.
        others: Whatever else lies in the run's folder.

    Returns:
        The ranks that have the same part of the model; why not, if fewer than two are left.
    """
    job = of_one_job(own, others, {}).values()
    alike = [one for one in job if one.pipeline_stage == own.pipeline_stage]
    if len(alike) < 2 <= len(job):
        return Unmeasured(why="no other rank has the same part of the model")
    found = [RankNeed(rank=one.rank, host=one.host, gpu=one.gpu_need) for one in alike if one.gpu_need is not None]
    if len(found) < 2:
        return Unmeasured(
            why=f"the peak of GPU memory is known of {counted(len(found), 'rank')} of {own.world_size}, 2 are needed"
        )
    if any(one.gpu.outside_bytes is None for one in found):
        found = [replace(one, gpu=replace(one.gpu, outside_bytes=None)) for one in found]
    return RankMemory(ranks=tuple(sorted(found, key=lambda one: one.rank)))
