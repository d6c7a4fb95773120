"""The metrics of one rank of several: its own numbers, and what the summaries of the others add."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from lightning_gpuprof.analyze import metrics, rank_notices
from lightning_gpuprof.analyze.journal import Journal, read_journal
from lightning_gpuprof.analyze.other_ranks import attribute_cpu_to_ranks
from lightning_gpuprof.analyze.rank_ends import rank_ends
from lightning_gpuprof.analyze.rank_summary import MOST_BYTES_WHILE_RUNNING, OtherRanks, left_by, summarise
from lightning_gpuprof.analyze.rank_times import rank_times
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import Notice
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.rank_summary import RankSummary
from lightning_gpuprof.model.window import WindowFacts


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
    """
    alone = metrics.build(attribute_cpu_to_ranks(journal, others.summaries), windows, notices)
    own = summarise(journal)
    ends = rank_ends(own, others.summaries, others.unread)
    notices_of_others, windows_of_others = rank_notices.of_others(journal, others.summaries)
    caveats = (*ends.sentences, *alone.validity.caveats, *notices_of_others)
    return msgspec.structs.replace(
        alone,
        validity=msgspec.structs.replace(alone.validity, ok=alone.validity.ok and ends.in_step, caveats=caveats),
        ranks=rank_times(_as_others(own, found, others), others.summaries, others.unread),
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
