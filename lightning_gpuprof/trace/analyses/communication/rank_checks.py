"""Whether the traces of several ranks belong together, and what is missing among them."""

from collections.abc import Sequence

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.trace.ranks import RankTimes
from lightning_gpuprof.trace.analyses.communication.rank_matching import Matched
from lightning_gpuprof.trace.linked import LinkedTrace

_GIVE = "Give one trace for each rank of one window."


def named(traces: Sequence[LinkedTrace]) -> bool:
    """Whether the traces say which ranks they are."""
    return traces[0].trace.about.rank is not None


def ranks_of(traces: Sequence[LinkedTrace], names: Sequence[str]) -> list[int]:
    """The ranks of the traces; their numbers in the order given if none names its rank.

    Args:
        traces: One of each rank.
        names: Names of their files, for errors.

    Raises:
        TraceError: Fewer than two traces, a rank twice, traces of jobs of different sizes, or ranks that only some of
            the traces name.
    """
    if len(traces) < 2:
        given = names[0] if traces else "none"
        raise TraceError(f"Comparing ranks takes traces of at least two ranks, got {given}. {_GIVE}")
    found = [trace.trace.about.rank for trace in traces]
    known = [rank for rank in found if rank is not None]
    if not known:
        return list(range(len(traces)))
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
    sizes = {size: name for trace, name in zip(traces, names, strict=True) if (size := trace.trace.about.world_size)}
    if len(sizes) > 1:
        jobs = ", ".join(f"{name} is of {size}" for size, name in sorted(sizes.items()))
        raise TraceError(f"The traces come from jobs with different numbers of ranks: {jobs}. {_GIVE}")
    return known


def rank_caveats(
    traces: Sequence[LinkedTrace],
    names: Sequence[str],
    matched: Matched,
    missing: tuple[int, ...],
    world_size: int | None,
    agree: bool | None,
    times: Sequence[RankTimes],
) -> tuple[str, ...]:
    """What is missing and what to mind when the ranks are compared, in sentences.

    Args:
        traces: One of each rank.
        names: Names of their files.
        matched: Collectives that all ranks have.
        missing: Ranks without a trace.
        world_size: Ranks of the job; None is not known.
        agree: Whether the clocks agree; None is not known.
        times: Times of each rank.
    """
    notes = []
    waiting_us = sum(rank.waiting_us for rank in times)
    first_us = sum(rank.waiting_in_first_us for rank in times)
    if not named(traces):
        notes.append("The traces do not name their ranks: these are numbered in the order given.")
    if missing:
        notes.append(
            f"Only {len(traces)} of {world_size} ranks were given: a missing one may be the late one, and transfer may"
            " include waiting for it."
        )
    silent = [name for name, trace in zip(names, traces, strict=True) if not trace.is_communication.any()]
    if silent:
        notes.append(f"No NCCL or RCCL kernels in {', '.join(silent)}.")
    if not len(matched.key) and len(silent) < len(traces):
        notes.append("No collective appears in two traces in the same step and order: are these traces of one window?")
    unmatched = sum(matched.unmatched_of_rank)
    if unmatched and len(matched.key):
        notes.append(
            f"{unmatched} kernels have no match in other ranks, so their waiting is unknown:"
            f" {', '.join(sorted({one.why for one in matched.unmatched}))}."
        )
    if apart := _apart_s(traces):
        notes.append(f"By their clocks, the windows are {apart:.0f} s apart: are these traces of one run?")
    if agree is False:
        notes.append("The clocks of the ranks differ: waiting is computed from durations, not from start times.")
    if waiting_us and first_us > waiting_us / 2:
        notes.append(
            f"{first_us / 1000:,.3g} of {waiting_us / 1000:,.3g} ms of waiting are in the first collective only,"
            " because ranks entered the window at different times: ignore it."
        )
    steps = [set(trace.steps.names) for trace in traces]
    if any(one != steps[0] for one in steps):
        common = len(set.intersection(*steps))
        notes.append(f"The traces do not cover the same steps: {common} are in all of them.")
    return tuple(notes)


def _apart_s(traces: Sequence[LinkedTrace]) -> float:
    """Seconds between the earliest end and the latest start of the windows, 0 if they overlap."""
    begun, ended = [], []
    for linked in traces:
        if len(linked.work):
            base = linked.trace.base_time_ns or 0
            begun.append(base + int(linked.work.start_ns.min()))
            ended.append(base + int(linked.work.end_ns.max()))
    # clocks that NTP sets are at most seconds apart
    return apart if begun and (apart := (max(begun) - min(ended)) / 1e9) > 10 else 0.0
