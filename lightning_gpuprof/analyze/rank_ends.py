"""How each rank ended: which stands still, failed first, still runs or is out of step."""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.model.numbers import listed, numbered, seconds
from lightning_gpuprof.model.rank_summary import RankSummary

FINISHED = "finished"
_INTERRUPTED = "interrupted: "
_MOST_NAMED = 4
_WAITING = ("backward", "sync")
"""Phases in which ranks of DDP wait for each other."""


class RankEnds(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of a job ended, beside each other."""

    sentences: tuple[str, ...] = ()
    """Empty where all ended alike."""
    in_step: bool = True
    """False: epochs had different numbers of batches."""


def rank_ends(own: RankSummary, others: Sequence[RankSummary], unread: Collection[int] = ()) -> RankEnds:
    """What the rank that is looked at cannot know of the others.

    Args:
        own: Of that rank.
        others: Whatever else lies in the run's folder.
        unread: Ranks whose journals cannot be read, as one is empty until it is first written to.
    """
    same = [one for one in others if (one.job, one.stage, one.world_size) == (own.job, own.stage, own.world_size)]
    ends = _ends(own, same, unread)
    standing = _standing([own, *same])
    if all(one.stands_in is None or waits(one) for one in [own, *same]):  # for a rank that failed, if one did
        return replace(ends, sentences=(*ends.sentences, *standing))
    return replace(ends, sentences=(*standing, *ends.sentences))


def _standing(ranks: Sequence[RankSummary]) -> tuple[str, ...]:
    """Who does not move on, by place; a rank that is not where ranks wait for each other is named first."""
    groups: dict[tuple[bool, int, str], list[RankSummary]] = {}
    for one in ranks:
        if one.stands_in is not None:
            where = f"{one.stands_in}{f' ({one.stands_collective})' if one.stands_collective else ''}"
            at = f" at {one.stands_at}" if one.stands_at else ""
            key = (waits(one), one.batches, f"in {where}{at} after {_batches(one.batches)}")
            groups.setdefault(key, []).append(one)
    if not groups:
        return ()
    one_is_late = sum(not in_wait for in_wait, _, _ in groups) == 1
    named = [
        f"{numbered('rank', (one.rank for one in of))} {'waiting ' if in_wait and one_is_late else ''}{where}"
        for (in_wait, _, where), of in sorted(groups.items(), key=lambda item: item[0])
    ]
    if moving := [one.rank for one in ranks if one.stands_in is None and not one.status]:
        named.append(f"{numbered('rank', moving)} still running, or killed")
    lasted = seconds(min(one.stands_s for of in groups.values() for one in of))
    return (f"no progress for {lasted}: {named[0]}", *named[1:_MOST_NAMED])


def waits(one: RankSummary) -> bool:
    """Whether it stands where ranks wait for each other.

    Args:
        one: A rank.
    """
    return one.stands_in in _WAITING or bool(one.stands_collective)


def _ends(own: RankSummary, same: Sequence[RankSummary], unread: Collection[int]) -> RankEnds:
    open_ended = [one for one in same if not one.status]
    failed = first_to_last([one for one in same if one.status.startswith(_INTERRUPTED)], own)
    if own.status.startswith(_INTERRUPTED):
        unread = [rank for rank in unread if rank < own.world_size]
        if open_ended or unread:
            why = f"killed or crashed before the {_error(own)} of rank {own.rank}"
            return RankEnds(sentences=_without_end(open_ended, why, unread))
        earlier = [_first(one, own) for one in failed if _ahead_ns(one, own) > 0]
        return RankEnds(sentences=tuple(earlier[:1]))
    interrupted = tuple(
        f"rank {one.rank} on {one.host} was interrupted by {failure(one)} after {_batches(one.batches)}"
        for one in failed[:_MOST_NAMED]
    )
    if not own.status:
        return RankEnds(sentences=interrupted)
    finished = [one for one in (own, *same) if one.status == FINISHED and (one.epochs or not one.batches)]
    in_step = len({tuple(one.epochs) for one in finished}) <= 1
    return RankEnds(
        sentences=(
            *(() if in_step else (_out_of_step(finished),)),
            *interrupted,
            *_without_end(open_ended, "still running, or killed"),
        ),
        in_step=in_step,
    )


def _first(one: RankSummary, own: RankSummary) -> str:
    """A rank that failed before the one that is looked at."""
    later = seconds(_ahead_ns(one, own) / 1e9)
    return (
        f"rank {one.rank} on {one.host} failed first, with {failure(one)} after {_batches(one.batches)}; the "
        f"{_error(own)} of rank {own.rank} followed {later} later"
    )


def _without_end(ranks: Sequence[RankSummary], why: str, unread: Collection[int] = ()) -> tuple[str, ...]:
    numbers = {*(one.rank for one in ranks), *unread}
    if not numbers:
        return ()
    shortest = 0 if unread else min(one.batches for one in ranks)
    last = f"{'its' if len(numbers) == 1 else 'the shortest'} journal holds {_batches(shortest)}"
    return (f"{numbered('rank', numbers)} left no end ({why}); {last}",)


def _out_of_step(ranks: Sequence[RankSummary]) -> str:
    """The first epoch that does not have the same number of batches on all ranks."""
    longest = max(len(one.epochs) for one in ranks)
    for epoch in range(longest):
        by_batches: dict[int, list[int]] = {}
        for one in ranks:
            by_batches.setdefault(one.epochs[epoch] if epoch < len(one.epochs) else 0, []).append(one.rank)
        if len(by_batches) > 1:
            break
    shown = sorted(by_batches.items(), key=lambda item: -len(item[1]))[:4]
    had = listed([f"{_batches(batches)} on {numbered('rank', of)}" for batches, of in shown])
    return f"epoch {epoch} had {had}: the ranks are out of step"


def _error(one: RankSummary) -> str:
    return one.status.removeprefix(_INTERRUPTED)


def failure(one: RankSummary) -> str:
    """The exception that ended it, and where that was raised.

    Args:
        one: A rank that was interrupted.
    """
    return f"{_error(one)}{f' at {one.failed_at}' if one.failed_at else ''}"


def first_to_last(ended: Sequence[RankSummary], own: RankSummary) -> list[RankSummary]:
    """Ranks in the order in which they ended.

    Args:
        ended: Ranks that ended.
        own: The rank by whose steps and clock that is judged.
    """
    return sorted(ended, key=lambda one: _ahead_ns(one, own), reverse=True)


def _ahead_ns(one: RankSummary, own: RankSummary) -> int:
    """How long before another rank one ended.

    Clocks of two hosts may be seconds or days apart, so there both count from the last step, which ranks end together.
    """
    if one.host == own.host:
        return own.epoch_ns - own.start_ns + own.end_ns - (one.epoch_ns - one.start_ns + one.end_ns)
    _, period_ns, _ = own.steps.columns()
    step_ns = int(np.median(period_ns)) if len(period_ns) else 0
    more_ns = (own.batches - one.batches) * step_ns
    return own.end_ns - own.last_step_ns + more_ns - (one.end_ns - one.last_step_ns)


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"
