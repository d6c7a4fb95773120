"""Who waited for whom among the ranks of one window: transfer, waiting and the late rank."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.rank_window import RankWindow
from lightning_gpuprof.model.trace.ranks import (
    ClassExcess,
    KindTimes,
    LateRank,
    MatchedCollective,
    RanksComparison,
    RankTimes,
)
from lightning_gpuprof.trace.analyses.communication.rank_checks import named, rank_caveats, ranks_of
from lightning_gpuprof.trace.analyses.communication.rank_matching import Matched, match_collectives
from lightning_gpuprof.trace.tables import ratio

CLOCKS_AGREE_US = 50.0
"""Ends of a collective are this close together if the clocks agree: well above what its last hop takes, well below
what clocks of hosts are apart that only NTP sets."""

MAX_ROWS = 20
"""Collectives that are listed one by one, and as many without a counterpart."""


def compare_ranks(windows: Sequence[RankWindow], *, names: Sequence[str] | None = None) -> RanksComparison:
    """Compare ranks of one window by the durations of their collectives.

    Args:
        windows: One for each rank, in any order; not all ranks of the job need be there.
        names: What to call the traces, e.g. their files.

    Returns:
        Ranks ascending, whatever the order given; times in microseconds, of single collectives at most
        :data:`MAX_ROWS`.

    Raises:
        TraceError: Fewer than two traces, a rank twice, traces of jobs of different sizes, or ranks that only some of
            the traces name.
    """
    called = list(names) if names is not None else [f"trace {number + 1}" for number in range(len(windows))]
    ranks = ranks_of(windows, called)
    order = sorted(range(len(ranks)), key=lambda row: ranks[row])
    windows, called, ranks = [windows[i] for i in order], [called[i] for i in order], [ranks[i] for i in order]
    world_size = next((window.world_size for window in windows if window.world_size), None)
    matched = match_collectives(windows)
    clocks = _clocks(matched)
    times = tuple(
        _times(matched, column, rank, name, window, clocks)
        for column, (rank, name, window) in enumerate(zip(ranks, called, windows, strict=True))
    )
    most_waiting = np.argsort(-matched.waiting_ns.sum(axis=1), kind="stable")
    agree = None if clocks is None else clocks.apart_us <= CLOCKS_AGREE_US
    missing = tuple(sorted(set(range(world_size or 0)) - set(ranks))) if named(windows) else ()
    return RanksComparison(
        world_size=world_size,
        ranks=times,
        missing_ranks=missing,
        matched=len(matched.key),
        kinds=_kinds(matched),
        collectives=tuple(_collective(matched, int(row), ranks, agree) for row in most_waiting[:MAX_ROWS]),
        collectives_left_out=max(len(most_waiting) - MAX_ROWS, 0),
        unmatched=matched.unmatched[:MAX_ROWS],
        ends_apart_us=None if clocks is None else clocks.apart_us,
        clocks_agree=agree,
        late=late_rank(matched, windows, times),
        notes=rank_caveats(windows, called, matched, missing, world_size, agree, times),
    )


class _Clocks(msgspec.Struct, frozen=True, kw_only=True):
    apart_us: float
    offset_us: tuple[float | None, ...]


def _clocks(matched: Matched) -> _Clocks | None:
    """How far ends of the same collective are apart, by collectives in which everyone waits for everyone."""
    rows = np.flatnonzero(matched.all_wait)
    if not len(rows):
        return None
    present = matched.present[rows]
    # relative to one moment, as float64 has not enough digits for Unix time in ns
    ends = np.where(present, (matched.end_ns[rows] - matched.end_ns[rows].max()).astype(np.float64), np.nan)
    apart = np.nanmax(ends, axis=1) - np.nanmin(ends, axis=1)
    offsets = ends - np.nanmedian(ends, axis=1, keepdims=True)
    return _Clocks(
        apart_us=float(np.median(apart)) / 1000,
        offset_us=tuple(
            float(np.nanmedian(offsets[:, column])) / 1000 if present[:, column].any() else None
            for column in range(present.shape[1])
        ),
    )


def _times(
    matched: Matched,
    column: int,
    rank: int,
    name: str,
    window: RankWindow,
    clocks: _Clocks | None,
) -> RankTimes:
    present = matched.present[:, column]
    waiting_ns = matched.waiting_ns
    starts, ends = matched.start_ns[present, column], matched.end_ns[present, column]
    order = np.argsort(starts, kind="stable")
    from_ns = np.maximum.accumulate(ends[order])[:-1]
    to_ns = np.maximum(starts[order][1:], from_ns)
    computed_from_ns = np.maximum.accumulate(matched.computed_at_end_ns[present, column][order])[:-1]
    computed_to_ns = np.maximum(matched.computed_at_start_ns[present, column][order][1:], computed_from_ns)
    own = waiting_ns[present, column][order]
    caused = np.flatnonzero(matched.last == column)

    def of_device(ns: int) -> float | None:
        return None if window.device is None else ns / 1000

    def of_matched(ns: np.int64) -> float | None:
        return int(ns) / 1000 if len(own) else None

    return RankTimes(
        rank=rank,
        trace=name,
        device=window.device,
        window_us=of_device(window.window_ns),
        computation_us=of_device(window.computation_ns),
        communication_us=of_device(window.communication_ns),
        idle_us=of_device(window.window_ns - window.busy_ns),
        matched=len(own),
        unmatched=matched.unmatched_of_rank[column],
        transfer_us=of_matched(matched.transfer_ns[present].sum()),
        waiting_us=of_matched(own.sum()),
        waiting_in_first_us=of_matched(own[:1].sum()),
        last=len(caused) if len(own) else None,
        caused_us=of_matched(waiting_ns[caused].sum()),
        between_us=of_matched((to_ns - from_ns).sum()),
        between_computation_us=of_matched((computed_to_ns - computed_from_ns).sum()),
        clock_offset_us=None if clocks is None else clocks.offset_us[column],
    )


def _kinds(matched: Matched) -> tuple[KindTimes, ...]:
    found = []
    transfer_ns, waiting_ns = matched.transfer_ns * matched.present.sum(axis=1), matched.waiting_ns.sum(axis=1)
    for kind in dict.fromkeys(key.kind for key in matched.keys):
        rows = np.array([key.kind == kind for key in matched.keys], np.bool_)[matched.key]
        if rows.any():
            transfer, waiting = int(transfer_ns[rows].sum()), int(waiting_ns[rows].sum())
            found.append(
                KindTimes(
                    kind=kind,
                    count=int(rows.sum()),
                    transfer_us=transfer / 1000,
                    waiting_us=waiting / 1000,
                    waiting_ratio=ratio(waiting, transfer + waiting),
                )
            )
    return tuple(sorted(found, key=lambda one: -(one.transfer_us + one.waiting_us)))


def _collective(matched: Matched, row: int, ranks: Sequence[int], agree: bool | None) -> MatchedCollective:
    key, present = matched.keys[matched.key[row]], matched.present[row]
    starts = matched.start_ns[row, present]
    return MatchedCollective(
        kind=key.kind,
        group=key.group,
        message_bytes=key.message_bytes,
        step=key.step,
        number=int(matched.number[row]),
        ranks=tuple(rank for rank, here in zip(ranks, present, strict=True) if here),
        transfer_us=int(matched.transfer_ns[row]) / 1000,
        waiting_us=tuple((matched.waiting_ns[row, present] / 1000).tolist()),
        late_rank=ranks[last] if (last := int(matched.last[row])) >= 0 else None,
        start_skew_us=int(starts.max() - starts.min()) / 1000 if agree else None,
    )


def late_rank(matched: Matched, windows: Sequence[RankWindow], times: Sequence[RankTimes]) -> LateRank | None:
    """The rank that waited least, of those that took part in most of the collectives in which all wait for all.

    Args:
        matched: The collectives.
        windows: Of each rank, in the order of the columns of ``matched``; likewise below.
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
    others = [number for number, rank in enumerate(times) if number != column and rank.matched]
    own, last = times[column], int((matched.last == column).sum())

    def beyond(value: Callable[[RankTimes], float | None]) -> float | None:
        usual = float(np.median([value(times[other]) or 0.0 for other in others]))
        return None if own.matched < 2 else (value(own) or 0.0) - usual

    return LateRank(
        rank=own.rank,
        waiting_us=int(waiting_ns[column]) / 1000,
        others_waiting_us=float(np.median(matched.waiting_ns[judged][:, others].sum(axis=0))) / 1000,
        last_ratio=last / len(judged),
        consistent=last > len(judged) / 2,
        excess_between_us=beyond(lambda rank: rank.between_us),
        excess_computation_us=beyond(lambda rank: rank.between_computation_us),
        excess_by_class=_excess(windows, column, others),
    )


def _excess(windows: Sequence[RankWindow], column: int, others: Sequence[int]) -> tuple[ClassExcess, ...]:
    """Classes of kernels that take longer on one rank than on the median of the others."""
    totals = [window.class_us for window in windows]
    found = []
    for kind in sorted({kind for total in totals for kind in total} - {"communication"}):
        own = totals[column].get(kind, 0.0)
        usual = float(np.median([totals[other].get(kind, 0.0) for other in others]))
        if own > usual:
            found.append(ClassExcess(kernel_class=kind, rank_us=own, others_median_us=usual, excess_us=own - usual))
    return tuple(sorted(found, key=lambda one: -one.excess_us))
