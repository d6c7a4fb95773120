"""The metrics of one rank of several: its own numbers, and what the summaries of the others add."""

from collections.abc import Sequence

import msgspec

from lightning_gpuprof.analyze import metrics, rank_notices
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.other_ranks import attribute_cpu_to_ranks
from lightning_gpuprof.analyze.rank_ends import rank_ends
from lightning_gpuprof.analyze.rank_summary import OtherRanks, summarise
from lightning_gpuprof.analyze.rank_times import rank_times
from lightning_gpuprof.model.journal import Notice
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.window import WindowFacts


def build(journal: Journal, others: OtherRanks, windows: Sequence[WindowFacts], notices: Sequence[Notice]) -> Metrics:
    """Compute the metrics of a rank.

    Args:
        journal: Of the rank.
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
        ranks=rank_times(own, others.summaries, others.unread),
        rank_ends=ends.sentences,
        rank_windows=windows_of_others,
    )
