"""The rank that the others wait for, and what it does more than they."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.model.trace.ranks import ClassExcess, LateRank, RankTimes
from lightning_gpuprof.trace.analyses.communication.rank_matching import Matched
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import kernel_traits
from lightning_gpuprof.trace.distinct import median
from lightning_gpuprof.trace.linked import LinkedTrace


def late_rank(matched: Matched, traces: Sequence[LinkedTrace], times: Sequence[RankTimes]) -> LateRank | None:
    """The rank that waited least, of those that took part in most of the collectives in which all wait for all.

    Args:
        matched: The collectives.
        traces: Of each rank, in the order of the columns of ``matched``; likewise below.
        times: Of each rank.

    Returns:
        None if nobody waited for anyone.
    """
    judged = np.flatnonzero(matched.last >= 0)
    if not len(judged):
        return None
    often = matched.present[judged].sum(axis=0)
    waiting_ns = np.where(often == often.max(), matched.waiting_ns[judged].sum(axis=0), np.iinfo(np.int64).max)
    column = int(waiting_ns.argmin())
    others = [number for number in range(len(times)) if number != column]
    own, last = times[column], int((matched.last == column).sum())
    comparable = own.matched > 1
    return LateRank(
        rank=own.rank,
        waiting_us=int(waiting_ns[column]) / 1000,
        others_waiting_us=median(matched.waiting_ns[judged][:, others].sum(axis=0)) / 1000,
        last_ratio=last / len(judged),
        consistent=last > len(judged) / 2,
        excess_between_us=(
            own.between_us - median([times[other].between_us for other in others]) if comparable else None
        ),
        excess_computation_us=(
            own.between_computation_us - median([times[other].between_computation_us for other in others])
            if comparable
            else None
        ),
        excess_by_class=_excess(traces, column),
    )


def _excess(traces: Sequence[LinkedTrace], column: int) -> tuple[ClassExcess, ...]:
    """Classes of kernels that take longer on one rank than on the median of the others."""
    totals = [_class_us(trace) for trace in traces]
    found = []
    for kind in sorted({kind for total in totals for kind in total} - {"communication"}):
        own = totals[column].get(kind, 0.0)
        others = median([total.get(kind, 0.0) for row, total in enumerate(totals) if row != column])
        if own > others:
            found.append(ClassExcess(kernel_class=kind, rank_us=own, others_median_us=others, excess_us=own - others))
    return tuple(sorted(found, key=lambda one: -one.excess_us))


def _class_us(linked: LinkedTrace) -> dict[str, float]:
    """Durations of kernels of each class, summed."""
    traits = kernel_traits(linked)
    totals: dict[str, int] = {}
    for trait, duration_ns in zip(traits.of_group, traits.groups.sums(linked.trace.kernel.duration_ns), strict=True):
        totals[trait.kernel_class] = totals.get(trait.kernel_class, 0) + int(duration_ns)
    return {kind: duration_ns / 1000 for kind, duration_ns in totals.items()}
