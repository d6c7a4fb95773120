"""Several ranks of one window: what each collective cost as transfer and as waiting, and who was late."""

import msgspec

from lightning_gpuprof.model.trace.communication import CollectiveKind

TRACE_ALL_RANKS = "trace all ranks with TraceConfig(ranks=list(range(RANKS))) and pass their windows to `gpuprof trace`"
"""Advice about one rank's trace, with the number of ranks in place of RANKS."""


class RankTimes(msgspec.Struct, kw_only=True, frozen=True):
    """One rank, microseconds. Of its matched collectives, ``transfer_us + waiting_us`` is the sum of durations.

    Times of the device are None without one, and those of matched collectives where it has none.
    """

    rank: int
    trace: str
    """The name that was given for the trace."""
    device: str | None
    """The one that communicates; None if the trace has no device work."""
    window_us: float | None
    """First start to last end of the device's work."""
    computation_us: float | None
    """Union of kernels that do not communicate."""
    communication_us: float | None
    """Union of those that do."""
    idle_us: float | None
    """The window without kernels and copies."""
    matched: int
    """Collectives that were found in the other ranks, too."""
    unmatched: int
    transfer_us: float | None
    waiting_us: float | None
    """In matched collectives, for ranks that came later."""
    waiting_in_first_us: float | None
    """Of that in the rank's first matched collective: also what ranks were apart before the window began."""
    last: int | None
    """Collectives to which this rank came last."""
    caused_us: float | None
    """Waiting of all other ranks in those."""
    between_us: float | None
    """From the end of each matched collective to the start of the next, summed: what the rank does on its own."""
    between_computation_us: float | None
    """Of that covered by computation."""
    clock_offset_us: float | None
    """Median of the rank's ends of collectives minus those of the median rank."""


class MatchedCollective(msgspec.Struct, kw_only=True, frozen=True):
    """One collective on several ranks, microseconds; all tuples are in the order of ``ranks``."""

    kind: CollectiveKind
    group: str | None
    message_bytes: int | None
    """None if it is not known or differs between ranks."""
    step: str | None
    number: int
    """Which of its kind in the step, or in the window, from 0."""
    ranks: tuple[int, ...]
    transfer_us: float
    """The shortest duration: who comes last waits for no one."""
    waiting_us: tuple[float, ...]
    """Duration without the transfer: how long each rank was there before the last one."""
    late_rank: int | None
    """Who came last; None where not everyone waits for everyone, as in a broadcast, or nobody waited."""
    start_skew_us: float | None
    """Last start minus first start by the clocks; None where these do not agree."""


class UnmatchedCollectives(msgspec.Struct, kw_only=True, frozen=True):
    """Collectives that are not equally often in the traces, or cannot be matched by their order."""

    kind: CollectiveKind
    group: str | None
    message_bytes: int | None
    step: str | None
    counts: tuple[int, ...]
    """On each rank, in the order of :attr:`RanksComparison.ranks`."""
    why: str


class KindTimes(msgspec.Struct, kw_only=True, frozen=True):
    """Matched collectives of a kind, summed over ranks, microseconds."""

    kind: CollectiveKind
    count: int
    """Collectives, not kernels: one on eight ranks counts once."""
    transfer_us: float
    waiting_us: float
    waiting_ratio: float | None
    """Of both."""


class ClassExcess(msgspec.Struct, kw_only=True, frozen=True):
    """Device time of a kernel class on the late rank against the others, microseconds."""

    kernel_class: str
    rank_us: float
    others_median_us: float
    excess_us: float


class LateRank(msgspec.Struct, kw_only=True, frozen=True):
    """The rank that waits least, and what it does more than the others, microseconds."""

    rank: int
    waiting_us: float
    others_waiting_us: float
    """Median of the others."""
    last_ratio: float
    """Share of the collectives to which it came last."""
    consistent: bool
    """It came last more than half of the time; otherwise ranks are late in turn and none is to blame."""
    excess_between_us: float | None
    """Its time between collectives, minus the median of the others; None with fewer than two matched collectives."""
    excess_computation_us: float | None
    """Of that computation; the rest is the device waiting for the host or for copies."""
    excess_by_class: tuple[ClassExcess, ...]
    """Kernel classes that take longer on it than on the median of the others, largest first."""


class RanksComparison(msgspec.Struct, kw_only=True, frozen=True):
    """Ranks of one window, compared by the durations of their collectives.

    Clocks of different hosts are not synchronised, so waiting and lateness come from durations alone: all ranks leave a
    collective together, so who was in it for the shortest time came last.
    """

    world_size: int | None
    ranks: tuple[RankTimes, ...]
    missing_ranks: tuple[int, ...]
    matched: int
    kinds: tuple[KindTimes, ...]
    """Longest first."""
    collectives: tuple[MatchedCollective, ...]
    """Those with most waiting, largest first."""
    collectives_left_out: int
    unmatched: tuple[UnmatchedCollectives, ...]
    ends_apart_us: float | None
    """Median over collectives of last end minus first end by the clocks."""
    clocks_agree: bool | None
    """That is at most 50 µs: starts of different ranks can be compared. None without matched collectives."""
    late: LateRank | None
    """None where nobody waited in a collective of all ranks."""
    notes: tuple[str, ...]
    """What is missing, and what to mind, in sentences."""
