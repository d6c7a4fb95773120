"""What the other ranks of a job could not measure, and their trace windows, as sentences for the report of one."""

from collections.abc import Iterable, Sequence

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.journal import Notice
from lightning_gpuprof.model.numbers import numbered
from lightning_gpuprof.model.rank_summary import RankSummary

_MOST = 8
"""Sentences; of more the rest is counted. Heuristic."""


def notable(journal: Journal, more: Sequence[Notice] = ()) -> list[Notice]:
    """What could not be measured of a rank; no GPU is missed on a CPU.

    Args:
        journal: Of the rank.
        more: Notices that did not reach it.

    Returns:
        A new list: those of the journal, then the others.
    """
    on_cpu = journal.conditions.get("device.type") == "cpu"
    return [notice for notice in (*journal.notices, *more) if not (on_cpu and notice.part == "nvml")]


def window_lines(journal: Journal) -> list[str]:
    """Each trace window of a rank: its steps, its file or why there is none."""
    return [
        f"steps {window.start_step} to {window.stop_step}, {window.file or window.problem or 'no trace'}"
        for window in journal.windows
    ]


def of_others(own: Journal, others: Sequence[RankSummary]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on notices that the own rank does not have, and on trace windows.

    Args:
        own: The rank whose report it is.
        others: Other ranks of the job.

    Returns:
        Both with the ranks that each is about, at most eight and how many more; empty if there are none.
    """
    known = {f"{notice.part}: {notice.message}" for notice in own.notices}
    same = [one for one in others if (one.job, one.stage) == (own.header.job, own.header.stage)]
    notices = ((text, one.rank) for one in same for text in one.notices if text not in known)
    return _grouped(notices), _grouped((text, one.rank) for one in same for text in one.windows)


def by_text(said: Iterable[tuple[str, int]]) -> list[str]:
    """``ranks 0 and 3: why`` of each text and its ranks, in the order in which the texts come first."""
    ranks: dict[str, list[int]] = {}
    for text, rank in said:
        ranks.setdefault(text, []).append(rank)
    return [f"{numbered('rank', of)}: {text}" for text, of in ranks.items()]


def _grouped(said: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    found = by_text(said)
    left = len(found) - _MOST
    return tuple(found) if left <= 0 else (*found[:_MOST], f"and {left:,} more of other ranks")
