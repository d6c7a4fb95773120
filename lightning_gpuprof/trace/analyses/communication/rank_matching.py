"""Matches the collectives of several ranks: the k-th of its kind in the same step and group."""

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.communication import CollectiveKind
from lightning_gpuprof.model.trace.rank_window import BEFORE_WINDOW, CollectiveClass, RankWindow
from lightning_gpuprof.model.trace.ranks import UnmatchedCollectives
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows

SAME_SIZE: frozenset[CollectiveKind] = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
"""Kinds whose size is the same on all ranks, so that it helps to tell them apart."""

ALL_WAIT: frozenset[CollectiveKind] = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "unknown"}
)
"""Kinds in which every rank waits for every other; the sender of a broadcast may leave before others come."""

_BEFORE = "before the window"


class Key(msgspec.Struct, frozen=True):
    """What collectives on different ranks must have in common to be one; they are then told apart by their order."""

    step: str | None
    group: str | None
    kind: CollectiveKind
    message_bytes: int | None


class Matched(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Collectives as rows, ranks as columns."""

    key: Rows
    """Index into :attr:`keys`, for each collective."""
    number: Rows
    """Which of its key, from 0."""
    present: Mask
    """Whether a rank took part; both dimensions, likewise below."""
    start_ns: Int64
    """Unix time by the rank's own clock; 0 where it took no part, likewise below."""
    end_ns: Int64
    computed_at_start_ns: Int64
    """How long the device of the rank had computed by then."""
    computed_at_end_ns: Int64
    keys: tuple[Key, ...]
    unmatched: tuple[UnmatchedCollectives, ...]
    unmatched_of_rank: tuple[int, ...]

    @cached_property
    def duration_ns(self) -> Int64:
        """Time in each collective, for each rank."""
        return self.end_ns - self.start_ns

    @cached_property
    def transfer_ns(self) -> Int64:
        """The shortest duration of each collective."""
        longest = np.iinfo(np.int64).max
        shortest: Int64 = np.where(self.present, self.duration_ns, longest).min(axis=1, initial=longest)
        return shortest

    @cached_property
    def waiting_ns(self) -> Int64:
        """Duration without the transfer; 0 where a rank took no part."""
        waiting: Int64 = np.where(self.present, self.duration_ns - self.transfer_ns[:, None], 0)
        return waiting

    @cached_property
    def last(self) -> Rows:
        """The rank's column that came last to each collective; ABSENT where not all wait for all, or nobody waited."""
        shortest = np.where(self.present, self.duration_ns, np.iinfo(np.int64).max).argmin(axis=1)
        return np.where(self.all_wait & (self.waiting_ns.sum(axis=1) > 0), shortest, ABSENT)

    @cached_property
    def all_wait(self) -> Mask:
        """Whether every rank waits for every other, for each collective."""
        waits: Mask = np.array([key.kind in ALL_WAIT for key in self.keys], np.bool_)[self.key]
        return waits


class _Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one rank under keys."""

    key: Rows
    number: Rows
    times_ns: Int64
    """Start, end, and what the device had computed by both; one row each."""


def match_collectives(windows: Sequence[RankWindow]) -> Matched:
    """Match the collectives of ranks by step, process group, kind, size where it is the same on all, and order.

    Where ranks do not have the same number under a key, none of them is matched: their order does not say which is
    missing. Point-to-point transfers are not matched: a trace does not say with whom.
    """
    sized = _kinds_with_sizes(windows)
    keys: dict[Key, int] = {}
    ranks = [_calls(window, sized, keys) for window in windows]
    names = tuple(keys)
    counts = np.array([np.bincount(rank.key, minlength=len(names)) for rank in ranks], np.int64)
    counts = counts.reshape(len(ranks), len(names))
    reasons = [_mismatch(key, counts[:, number]) for number, key in enumerate(names)]
    good = np.array([not reason for reason in reasons], np.bool_)
    starts = np.concatenate(([0], np.cumsum(np.where(good, counts.max(axis=0, initial=0), 0))))
    shape = (int(starts[-1]), len(ranks))
    present, times_ns = np.zeros(shape, np.bool_), np.zeros((4, *shape), np.int64)
    for column, rank in enumerate(ranks):
        kept = good[rank.key]
        row = starts[rank.key[kept]] + rank.number[kept]
        present[row, column] = True
        times_ns[:, row, column] = rank.times_ns[:, kept]
    key = np.repeat(np.arange(len(names)), np.diff(starts))
    return Matched(
        key=key,
        number=np.arange(shape[0]) - starts[key],
        present=present,
        start_ns=times_ns[0],
        end_ns=times_ns[1],
        computed_at_start_ns=times_ns[2],
        computed_at_end_ns=times_ns[3],
        keys=names,
        unmatched=tuple(
            UnmatchedCollectives(
                kind=one.kind,
                group=one.group,
                message_bytes=one.message_bytes,
                step=one.step,
                counts=tuple(counts[:, number].tolist()),
                why=reasons[number],
            )
            for number, one in enumerate(names)
            if reasons[number]
        ),
        unmatched_of_rank=tuple(counts[:, ~good].sum(axis=1).tolist()),
    )


def _kinds_with_sizes(windows: Sequence[RankWindow]) -> set[CollectiveKind]:
    """Kinds whose sizes are known everywhere: one that is known on some ranks only tells nothing apart."""
    known = (one for window in windows for one in window.collectives.classes)
    return set(SAME_SIZE - {one.kind for one in known if one.message_bytes is None})


def _calls(window: RankWindow, sized: set[CollectiveKind], keys: dict[Key, int]) -> _Calls:
    calls = window.collectives
    step, of_class = np.array(calls.step, np.int64), np.array(calls.of_class, np.int64)
    many = max(len(calls.classes), 1)
    unique, of_row = np.unique((step - BEFORE_WINDOW) * many + of_class, return_inverse=True)
    steps: list[str | None] = [_BEFORE, None, *window.steps]
    numbers = []
    for code in unique.tolist():
        where, what = divmod(code, many)
        numbers.append(keys.setdefault(_key(steps[where], calls.classes[what], sized), len(keys)))
    key = np.array(numbers, np.intp)[of_row]
    order = np.argsort(key, kind="stable")
    first = np.concatenate(([True], np.diff(key[order]) > 0))[: len(order)]
    position = np.arange(len(order))
    number = np.empty(len(order), np.intp)
    number[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    columns = (calls.start_ns, calls.end_ns, calls.computed_at_start_ns, calls.computed_at_end_ns)
    times_ns = np.array(columns, np.int64)
    times_ns[:2] += window.base_time_ns
    return _Calls(key=key, number=number, times_ns=times_ns)


def _key(step: str | None, one: CollectiveClass, sized: set[CollectiveKind]) -> Key:
    return Key(
        step=step,
        group=one.group,
        kind=one.kind,
        message_bytes=one.message_bytes if one.kind in sized else None,
    )


def _mismatch(key: Key, counts: Int64) -> str:
    """Why collectives under a key cannot be matched; empty if they can."""
    if key.step == _BEFORE:
        return "launched before the window"
    if key.kind == "send_recv":
        return "the trace does not name the peers"
    of_some = counts[counts > 0]
    if len(of_some) < 2:
        return "on one rank only"
    return "" if (of_some == of_some[0]).all() else "not the same number on all ranks"
