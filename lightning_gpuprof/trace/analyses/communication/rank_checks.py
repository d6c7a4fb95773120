"""Whether the traces of several ranks belong together, and what is missing among them."""

from collections.abc import Sequence

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.trace.rank_window import RankWindow
from lightning_gpuprof.model.trace.ranks import RankTimes
from lightning_gpuprof.trace.analyses.communication.rank_matching import Matched

_GIVE = "Give one trace for each rank of one window."


def named(windows: Sequence[RankWindow]) -> bool:
    """Whether the traces say which ranks they are."""
    return windows[0].rank is not None


def ranks_of(windows: Sequence[RankWindow], names: Sequence[str]) -> list[int]:
    """The ranks of the traces.

    Args:
        windows: One of each rank.
        names: Names of their files, for errors.

    Returns:
        One for each trace, in the order given; numbered from 0 if none names its rank.

    Raises:
        TraceError: Fewer than two traces, a rank twice, traces of jobs of different sizes, or ranks that only some of
            the traces name.
    """
    if len(windows) < 2:
        given = names[0] if windows else "none"
        raise TraceError(f"Comparing ranks takes traces of at least two ranks, got {given}. {_GIVE}")
    found = [window.rank for window in windows]
    known = [rank for rank in found if rank is not None]
    if not known:
        return list(range(len(windows)))
    if len(known) < len(found):
        raise TraceError(
            f"{names[found.index(None)]}: does not name its rank, as the others do. Leave it out, or record it"
            " again after torch.distributed.init_process_group."
        )
    seen: dict[int, str] = {}
    for rank, name in zip(known, names, strict=True):
        if rank in seen:
            raise TraceError(f"{seen[rank]} and {name}: both are rank {rank}. {_GIVE}")
        seen[rank] = name
    sizes = {window.world_size: name for window, name in zip(windows, names, strict=True) if window.world_size}
    if len(sizes) > 1:
        jobs = ", ".join(f"{name} is of {size}" for size, name in sorted(sizes.items()))
        raise TraceError(f"The traces come from jobs with different numbers of ranks: {jobs}. {_GIVE}")
    return known


def rank_caveats(
    windows: Sequence[RankWindow],
    names: Sequence[str],
    matched: Matched,
    missing: tuple[int, ...],
    world_size: int | None,
    agree: bool | None,
    times: Sequence[RankTimes],
) -> tuple[str, ...]:
    """What is missing and what to mind when the ranks are compared.

    Args:
        windows: One of each rank.
        names: Names of their files.
        matched: Collectives that all ranks have.
        missing: Ranks without a trace.
        world_size: Ranks of the job; None is not known.
        agree: Whether the clocks agree; None is not known.
        times: Times of each rank.

    Returns:
        Sentences; empty if there is nothing to mind.
    """
    notes = []
    waiting_us = sum(rank.waiting_us or 0.0 for rank in times)
    first_us = sum(rank.waiting_in_first_us or 0.0 for rank in times)
    if not named(windows):
        notes.append("The traces do not name their ranks: these are numbered in the order given.")
    if missing:
        notes.append(
            f"Only {len(windows)} of {world_size} ranks were given: a missing one may be the late one, and transfer may"
            " include waiting for it."
        )
    silent = [name for name, window in zip(names, windows, strict=True) if not window.collectives.of_class]
    if silent:
        notes.append(f"No NCCL or RCCL kernels in {', '.join(silent)}.")
    if not len(matched.key) and len(silent) < len(windows):
        notes.append("No collective appears in two traces in the same step and order: are these traces of one window?")
    unmatched = sum(matched.unmatched_of_rank)
    if unmatched and len(matched.key):
        notes.append(
            f"{unmatched} kernels have no match in other ranks, so their waiting is unknown:"
            f" {', '.join(sorted({one.why for one in matched.unmatched}))}."
        )
    if apart := _apart_s(windows):
        notes.append(f"By their clocks, the windows are {apart:.0f} s apart: are these traces of one run?")
    if agree is False:
        notes.append("The clocks of the ranks differ: waiting is computed from durations, not from start times.")
    if waiting_us and first_us > waiting_us / 2:
        notes.append(
            f"{first_us / 1000:,.3g} of {waiting_us / 1000:,.3g} ms of waiting are in the first collective only,"
            " because ranks entered the window at different times: ignore it."
        )
    steps = [set(window.steps) for window in windows]
    if any(one != steps[0] for one in steps):
        common = len(set.intersection(*steps))
        notes.append(f"The traces do not cover the same steps: {common} are in all of them.")
    return tuple(notes)


def _apart_s(windows: Sequence[RankWindow]) -> float:
    """Seconds between the earliest end and the latest start of the windows, 0 if they overlap."""
    worked = [(window.base_time_ns, window.work_ns) for window in windows if window.work_ns is not None]
    begun, ended = [base + work[0] for base, work in worked], [base + work[1] for base, work in worked]
    # clocks that NTP sets are at most seconds apart
    return apart if begun and (apart := (max(begun) - min(ended)) / 1e9) > 10 else 0.0
