"""Where each rank of a job is now, from a bounded part of what lies in the job's folder; no rank is asked."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

import msgspec

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_ends import (
    FINISHED,
    RankEnds,
    failure,
    first_to_last,
    hanging,
    has_failed,
    may_be_why,
    rank_ends,
    stands_in_words,
    waits,
)
from lightning_gpuprof.analyze.rank_summary import (
    MOST_BYTES_WHILE_RUNNING,
    OtherRanks,
    journals_in,
    left_by,
    summarise,
    summary_path,
)
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.curves import Ranks
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.job_ranks import GONE_S, RankState, State
from lightning_gpuprof.model.numbers import capital, decimal_size, numbered, seconds
from lightning_gpuprof.model.pid_space import is_running
from lightning_gpuprof.model.rank_summary import RankSummary

MOST_BYTES = 64 * 2**20
"""Of all journals together that are read, their beginnings and ends."""
SILENT_S = 60.0
"""A rank writes every 5 s while it lives. Heuristic."""
WORST = 5
_WRITES_NOTHING = "its process lives but writes nothing"
_STATES: tuple[State, ...] = get_args(State)
_OVER: frozenset[State] = frozenset({"killed", "failed", "unreadable", "missing", "stopped", "finished"})


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of one job."""

    own: Journal
    """The lowest readable rank's, or its ends."""
    others: OtherRanks
    ends: RankEnds
    first_failed: int | None
    """The rank that failed first; None if none did."""
    killed_first: tuple[int, ...]
    """Ranks that were killed, and not only after another one had failed."""
    states: tuple[RankState, ...]
    problems: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        """Whether no rank goes on."""
        return all(one.state in _OVER or (one.written_s or 0.0) > GONE_S for one in self.states)


def look(folder: Path, most_bytes: int = MOST_BYTES) -> Job:
    """Read what the ranks of a job have left in its folder up to now.

    Args:
        folder: With the journals.
        most_bytes: Of all journals together that are read, but at least as much of each as its rank reads itself.

    Returns:
        One state per rank of the job in order, also of those without a readable journal.

    Raises:
        JournalError: None of the journals can be read.
    """
    files = journals_in(folder)
    most_bytes = max(MOST_BYTES_WHILE_RUNNING, most_bytes // max(1, len(files)))
    found: dict[int, RankSummary] = {}
    unread: dict[int, str] = {}
    for rank, path in sorted(files.items()):
        try:
            begun = summary_path(path).exists()  # those of the ranks beside it are of the ends, too
            most = MOST_BYTES_WHILE_RUNNING if begun else most_bytes
            found[rank] = left_by(path, of_ends=True) or summarise(read_journal(path, most))
        except JournalError as error:
            unread[rank] = str(error)
    if not found:
        raise JournalError(next(iter(unread.values()), f"{folder}: no journal (rank0.jsonl) in it"))
    of_job, left_out = _of_one_job(found)
    damaged = list(unread)
    unread |= left_out
    own = _first_readable(folder, [files[rank] for rank in of_job], most_bytes)
    world_size, first = own.header.world_size, own.header.rank
    summaries = list(of_job.values())
    hang = hanging([one for one in summaries if is_running(one) is not False])
    states = [_state(one, files[one.rank], hangs=one.rank in hang) for one in summaries]
    states += [
        RankState(rank=rank, state="unreadable", detail=why) for rank, why in unread.items() if rank < world_size
    ]
    missing = sorted(set(range(world_size)) - {one.rank for one in states})
    states += [RankState(rank=rank, state="missing", detail="no journal in the folder") for rank in missing]
    problems = [f"{numbered('rank', missing)}: no journal in the folder"] if missing else []
    ends, failed, killed = _ends(summaries, {one.rank: one.state for one in states}, damaged)
    return Job(
        own=own,
        others=OtherRanks(summaries=[one for rank, one in of_job.items() if rank != first], unread=unread),
        ends=ends,
        first_failed=failed.rank if failed else None,
        killed_first=tuple(one.rank for one in killed),
        states=tuple(sorted(states, key=lambda one: one.rank)),
        problems=(*problems, *(f"rank {rank}: {why}" for rank, why in sorted(unread.items()))),
    )


def answer(job: Job, findings: Sequence[Finding], *, compared: bool) -> str:
    """One sentence: the rank that matters most, or that none does.

    Args:
        job: The ranks.
        findings: What the rules on ranks say.
        compared: Whether they could say something.

    Returns:
        With its full stop; of late ranks it is the summary of the first finding.
    """
    of: dict[State, list[RankState]] = {state: [] for state in _STATES}
    for one in job.states:
        of[one.state].append(one)
    if killed := [one for one in of["killed"] if one.rank in job.killed_first]:
        if job.ends.sentences and all(one.state in ("killed", "missing", "unreadable") for one in job.states):
            return f"{capital(job.ends.sentences[0])}; then {'it was' if len(killed) == 1 else 'all were'} killed."
        gone = "its process is" if len(killed) == 1 else "their processes are"
        return f"{_named(killed, 'was', 'were')} killed{_after(killed)}: {gone} gone."
    if job.ends.sentences and not job.ends.own_first:
        return f"{capital(job.ends.sentences[0])}."
    if job.first_failed is not None:
        first = next(one for one in job.states if one.rank == job.first_failed)
        return f"Rank {first.rank} failed{' first' if len(of['failed']) > 1 else ''}{_after([first])}: {first.detail}."
    if silent := of["silent"]:
        since = seconds(min(one.written_s or 0.0 for one in silent))
        return f"{_named(silent, 'has', 'have')} written nothing for {since}{_after(silent)}: killed, or unreachable."
    if hanging := of["hanging"]:
        return f"{_named(hanging, 'makes', 'make')} no progress{_after(hanging)}: {_why(hanging)}."
    if stopped := of["stopped"]:
        return f"{_named(stopped, 'was', 'were')} stopped{_after(stopped)}, by {stopped[0].detail}."
    if findings:
        return findings[0].summary
    unjudged = [*of["unreadable"], *of["missing"]]
    return _all_well(of["running"] or of["finished"], len(job.states), unjudged, compared=compared)


def _why(hanging: Sequence[RankState]) -> str:
    if hanging[0].detail == _WRITES_NOTHING and len(hanging) > 1:
        return "their processes live but write nothing"
    return hanging[0].detail


def _all_well(ranks: Sequence[RankState], count: int, unjudged: Sequence[RankState], *, compared: bool) -> str:
    """All that can be judged run or finished, and none of these is known to be late."""
    known = len(ranks)
    who = {1: "The only rank", 2: "Both ranks"}.get(count, f"All {count:,} ranks")
    if known < count:
        who = f"{known:,} of {count:,} ranks"
    if ranks[0].state == "finished":
        said = f"{who} finished{_after(ranks)}"
    else:
        each = "it" if known == 1 else "each"
        said = f"{who} {'is' if known == 1 else 'are'} running; {each} has done {_batches(ranks) or 'no batch yet'}"
    if count > 1:
        said += "; none is late" if compared else "; who is late is not known"
    if unjudged:
        said += f"; {_named(unjudged, 'is', 'are').lower()} not judged"
    return f"{said}."


def _named(ranks: Sequence[RankState], one: str, several: str) -> str:
    return f"{capital(numbered('rank', (rank.rank for rank in ranks)))} {one if len(ranks) == 1 else several}"


def _after(ranks: Sequence[RankState]) -> str:
    done = _batches(ranks)
    return f" after {done}" if done else ""


def _batches(ranks: Sequence[RankState]) -> str:
    known = [one.batches for one in ranks if one.batches is not None]
    if not known:
        return ""
    last = f"{max(known):,}"
    return f"{last if min(known) == max(known) else f'{min(known):,} to {last}'} batch{'' if last == '1' else 'es'}"


def worst(job: Job, comparison: Ranks | None) -> tuple[int, ...]:
    """The five ranks to look at first: by what is wrong with them, then by how late they are.

    Args:
        job: The ranks.
        comparison: Their own times.

    Returns:
        Numbers of ranks, the worst first; all of a job of up to five.
    """
    ended_first = job.killed_first or (job.first_failed,)
    late_ms = {} if comparison is None else {row.rank: row.excess_ms for row in comparison.rows}

    def order(one: RankState) -> tuple[bool, int, bool, float]:
        return one.rank not in ended_first, _STATES.index(one.state), one.waits, -late_ms.get(one.rank, 0.0)

    return tuple(one.rank for one in sorted(job.states, key=order)[:WORST])


def _first_readable(folder: Path, journals: Sequence[Path], most_bytes: int) -> Journal:
    """That of a rank that left a summary may be damaged, or not be there."""
    for path in journals:
        with suppress(JournalError):
            return read_journal(path, most_bytes)
    raise JournalError(f"{folder}: summaries of ranks, but no journal: copy one rank's journal there, too")


def _of_one_job(found: Mapping[int, RankSummary]) -> tuple[dict[int, RankSummary], dict[int, str]]:
    """The ranks of the job of which there are most, and why others are none: by the number in the file's name."""
    jobs = Counter((one.job, one.stage, one.world_size) for one in found.values())
    (most, _), *_ = jobs.most_common(1)
    of_job: dict[int, RankSummary] = {}
    left_out: dict[int, str] = {}
    for rank, one in found.items():
        if (one.job, one.stage, one.world_size) != most:
            left_out[rank] = "its journal is of another job"
        elif one.rank != rank:
            left_out[rank] = f"its journal says that it is of rank {one.rank}"
        else:
            of_job[rank] = one
    return of_job, left_out


def _written_s(journal: Path) -> float | None:
    """Since the rank wrote: at an address, the journal may be older than the summary."""
    written: list[float] = []
    for path in (journal, summary_path(journal)):
        with suppress(OSError):
            written.append(path.stat().st_mtime)
    return max(0.0, time.time() - max(written)) if written else None


def _last_seen(one: RankSummary) -> str:
    """What a rank left that could not say why it ended: memory, its own and its host's; the line seen most."""
    held, left = one.memory.get("rss"), one.memory.get("available")
    _, _, times_ns = one.steps.columns()
    longest = max(one.sites, key=lambda phase: float(times_ns[phase].sum()) if phase in times_ns else 0.0, default=None)
    said = "" if held is None else f"; held {decimal_size(held)}"
    said += "" if left is None else f", {decimal_size(left)} free on the host"
    return f"{said}; mostly in {longest} at {one.sites[longest]}" if longest is not None else said


def _state(one: RankSummary, journal: Path, *, hangs: bool) -> RankState:
    written_s = _written_s(journal)
    lives = is_running(one)
    silent = written_s is not None and written_s > SILENT_S
    at = f" at {one.stands_at}" if one.stands_at else ""
    stands = "" if one.stands_in is None else f"{one.busy} in {stands_in_words(one.stands_in)}{at}".strip()
    state: State = "running"
    detail = ""
    if one.status == FINISHED:
        state = "finished"
    elif one.status:
        state, detail = "failed" if has_failed(one) else "stopped", failure(one)
    elif lives is False:
        stood = f"; no progress {stands}" if stands else ""
        state, detail = "killed", f"no process {one.pid} on its host{stood}{_last_seen(one)}"
    elif silent and not lives:
        state = "silent"
    elif stands:
        state, detail = "hanging" if hangs else "running", stands
    elif silent:
        state, detail = "hanging", _WRITES_NOTHING
    return RankState(
        rank=one.rank,
        state=state,
        host=one.host,
        batches=one.batches,
        written_s=written_s,
        waits=waits(one) and state in ("hanging", "running", "killed"),
        has_journal=journal.is_file(),
        has_stacks=journal.with_suffix(".stacks.txt").is_file(),
        detail=detail,
    )


def _ends(
    ranks: Sequence[RankSummary], states: Mapping[int, State], damaged: Collection[int]
) -> tuple[RankEnds, RankSummary | None, list[RankSummary]]:
    """How they ended, who failed first, and who was killed but not after that.

    Seen by a rank that goes on, else by the last one that failed.
    """
    first = ranks[0]
    failed = first_to_last([one for one in ranks if states[one.rank] == "failed"], first)
    killed = [one for one in ranks if states[one.rank] == "killed" and (not failed or may_be_why(one, failed[0]))]
    going_on = [one for one in ranks if states[one.rank] in ("running", "hanging")]
    own = (going_on or failed[-1:] or [first])[0]
    ends = rank_ends(own, [one for one in ranks if one is not own], damaged)
    return ends, failed[0] if failed else None, killed
