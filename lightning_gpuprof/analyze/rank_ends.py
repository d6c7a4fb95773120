"""How each rank ended: which stands still, failed first, still runs or is out of step."""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.model.device import xid_words
from lightning_gpuprof.model.numbers import listed, numbered, seconds
from lightning_gpuprof.model.phases import Phase, words_of
from lightning_gpuprof.model.rank_summary import RankSummary

FINISHED = "finished"
_INTERRUPTED = "interrupted: "
_STOPS = ("KeyboardInterrupt", "SIGTERMException")
"""Of Ctrl-C and SIGTERM, which come from outside."""
_WELL_BEFORE_NS = 10 * 10**9
"""A rank writes every 5 s: what ends so long before another rank failed had ended by then. Heuristic."""
_MOST_NAMED = 4
WAITING_PHASES = ("backward", "sync")
"""Phases in which ranks of DDP wait for each other."""


class RankEnds(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of a job ended, beside each other."""

    sentences: tuple[str, ...] = ()
    """Empty where all ended alike."""
    in_step: bool = True
    """False: epochs had different numbers of batches."""
    own_first: bool = False
    """The rank that is looked at failed first; what is said is how others ended."""


def rank_ends(own: RankSummary, others: Sequence[RankSummary], unread: Collection[int] = ()) -> RankEnds:
    """What the rank that is looked at cannot know of the others.

    Args:
        own: Of that rank.
        others: Whatever else lies in the run's folder.
        unread: Ranks whose journals cannot be read, as one is empty until it is first written to.

    Returns:
        Its sentences have no full stop; there are none if all ended alike.
    """
    same = [one for one in others if (one.job, one.stage, one.world_size) == (own.job, own.stage, own.world_size)]
    ends = _ends(own, same, unread)
    standing = _standing([own, *same])
    if any(_is_stuck(one) for one in [own, *same]):
        return replace(ends, sentences=(*standing, *ends.sentences))
    return replace(ends, sentences=(*ends.sentences, *standing))  # for a rank that failed, if one did


def hanging(ranks: Sequence[RankSummary]) -> frozenset[int]:
    """Ranks that make no progress, without those that compile or the like, and those that only wait for such a rank.

    Ranks whose processes are known to be gone are not to be among them.
    """
    standing = [one for one in ranks if one.stands_in is not None]
    goes_on = any(one.busy for one in standing) or _moving(ranks, standing)
    return frozenset(
        one.rank
        for one in standing
        if _is_stuck(one) or (waits(one) and (not goes_on or any(map(_is_stuck, standing))))
    )


def _is_stuck(one: RankSummary) -> bool:
    return one.stands_in is not None and not one.busy and not waits(one)


def _moving(ranks: Sequence[RankSummary], standing: Sequence[RankSummary]) -> bool:
    """Whether a rank that does not stand writes as late as those that do."""
    return bool(standing) and any(
        one.stands_in is None and not one.status and _ahead_ns(one, standing[0]) <= _WELL_BEFORE_NS for one in ranks
    )


def _standing(ranks: Sequence[RankSummary]) -> tuple[str, ...]:
    """Who does not move on, by place; a rank that is not where ranks wait for each other is named first."""
    groups: dict[tuple[bool, str, int, str], list[RankSummary]] = {}
    for one in ranks:
        if one.stands_in is not None:
            where = f"{stands_in_words(one.stands_in)}{f' ({one.stands_collective})' if one.stands_collective else ''}"
            at = f" at {one.stands_at}" if one.stands_at else ""
            key = (waits(one), one.busy, one.batches, f"in {where}{at} after {_batches(one.batches)}")
            groups.setdefault(key, []).append(one)
    if not groups:
        return ()
    one_is_late = sum(not in_wait for in_wait, *_ in groups) == 1
    ordered = sorted(groups.items(), key=lambda item: item[0])
    named = [
        f"{numbered('rank', (one.rank for one in of))} {'waiting ' if in_wait and one_is_late else ''}{where}"
        for (in_wait, *_, where), of in ordered
    ]
    if moving := [one.rank for one in ranks if one.stands_in is None and not one.status]:
        named.append(f"{numbered('rank', moving)} still running, or killed")
    lasted = seconds(min(one.stands_s for of in groups.values() for one in of))
    (_, busy, *_), _ = ordered[0]
    how = "no progress" if hanging(ranks) else busy or "waiting"
    return (f"{how} for {lasted}: {named[0]}", *named[1:_MOST_NAMED])


def stands_in_words(phase: Phase) -> str:
    """Where a rank stands: that it waits is said of ranks that wait for others."""
    return "the DataLoader" if phase == "data_wait" else phase if phase in WAITING_PHASES else words_of(phase)


def waits(one: RankSummary) -> bool:
    """Whether it stands where ranks wait for each other."""
    return not one.busy and (one.stands_in in WAITING_PHASES or bool(one.stands_collective))


def _ends(own: RankSummary, same: Sequence[RankSummary], unread: Collection[int]) -> RankEnds:
    open_ended = [one for one in same if not one.status]
    failed = first_to_last([one for one in same if has_failed(one)], own)
    if own.status.startswith(_INTERRUPTED):
        earlier = [one for one in failed if _ahead_ns(one, own) > 0]
        return _around(own, earlier[0] if earlier else own, open_ended, unread)
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


def _around(
    own: RankSummary, first: RankSummary, open_ended: Sequence[RankSummary], unread: Collection[int]
) -> RankEnds:
    """Which ranks ended before the one that failed first, else that one and which ended later."""
    unread = [rank for rank in unread if rank < own.world_size]
    of_first = f"the {_error(first)} of rank {first.rank}"
    before = [one for one in open_ended if may_be_why(one, first)]
    if before or (unread and first.left_collective):
        return RankEnds(sentences=_without_end(before, f"killed or crashed before {of_first}", unread))
    after = [one for one in open_ended if _ahead_ns(one, first) < 0]
    unknown = [one for one in open_ended if one not in after]
    sentences = (
        *(() if first is own else (_first(first, own),)),
        *_without_end(after, f"still running, or killed after {of_first}"),
        *_without_end(unknown, f"still running, or killed around {of_first}", unread),
    )
    return RankEnds(sentences=sentences, own_first=bool(sentences) and first is own)


def may_be_why(ended: RankSummary, failed: RankSummary) -> bool:
    """Whether a rank without an end may have been gone before another one failed, and be why.

    Args:
        ended: Without an end.
        failed: Interrupted by an exception.
    """
    ahead_ns = _ahead_ns(ended, failed)
    return ahead_ns > _WELL_BEFORE_NS or (ahead_ns >= 0 and failed.left_collective)


def has_failed(one: RankSummary) -> bool:
    """Whether an exception of its own ended it, and nobody from outside."""
    return one.status.startswith(_INTERRUPTED) and _error(one) not in _STOPS


def _first(one: RankSummary, own: RankSummary) -> str:
    """A rank that failed before the one that is looked at."""
    later = seconds(_ahead_ns(one, own) / 1e9)
    about = ""
    if one.host != own.host and (step_ns := _step_ns(own)):
        about = f" (±{seconds(step_ns / 1e9)}: host clocks are aligned by step)"
    return (
        f"rank {one.rank} on {one.host} failed first, with {failure(one)} after {_batches(one.batches)}; the "
        f"{_error(own)} of rank {own.rank} followed {later} later{about}"
    )


def _without_end(ranks: Sequence[RankSummary], why: str, unread: Collection[int] = ()) -> tuple[str, ...]:
    numbers = {*(one.rank for one in ranks), *unread}
    if not numbers:
        return ()
    said = f"{numbered('rank', numbers)} recorded no end ({why})"
    if not unread:
        shortest = _batches(min(one.batches for one in ranks))
        said += f"; {'its' if len(numbers) == 1 else 'the shortest'} journal holds {shortest}"
    if broken := next((one for one in ranks if one.xids), None):
        of = "its GPU" if len(numbers) == 1 else f"the GPU of rank {broken.rank}"
        said += f"; {of} reported {xid_words(broken.xids[-1])}"
    return (said,)


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
    """The exception that ended it, where that was raised, and the last error of its GPU."""
    xid = f" (its GPU reported Xid {one.xids[-1]})" if one.xids else ""
    return f"{_error(one)}{f' at {one.failed_at}' if one.failed_at else ''}{xid}"


def first_to_last(ended: Sequence[RankSummary], own: RankSummary) -> list[RankSummary]:
    """Ranks in the order in which they ended.

    Args:
        ended: Ranks that ended.
        own: The rank by whose steps and clock that is judged.

    Returns:
        A new list; the first to end comes first.
    """
    return sorted(ended, key=lambda one: _ahead_ns(one, own), reverse=True)


def _ahead_ns(one: RankSummary, own: RankSummary) -> int:
    """How long before another rank one ended.

    Clocks of two hosts may be seconds or days apart, so there both count from the last step, which ranks end together:
    within a step time of each other, as none begins the next one before all have reached its collective.
    """
    if one.host == own.host:
        return own.epoch_ns - own.start_ns + own.end_ns - (one.epoch_ns - one.start_ns + one.end_ns)
    more_ns = (own.batches - one.batches) * _step_ns(own)
    return own.end_ns - own.last_step_ns + more_ns - (one.end_ns - one.last_step_ns)


def _step_ns(one: RankSummary) -> int:
    """Its median step time; 0 if it has no steps."""
    _, period_ns, _ = one.steps.columns()
    return int(np.median(period_ns)) if len(period_ns) else 0


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"
