"""What each rank does on its own in the steps that are steady on all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal_columns import Ints
from lightning_gpuprof.analyze.rank_notices import by_text
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.phases import PHASES, OutsidePart, Phase
from lightning_gpuprof.model.rank_summary import RankGpu, RankSummary
from lightning_gpuprof.model.rank_times import LateOutside, LateRanks, RankShare, RankTimes, RareRanks
from lightning_gpuprof.model.signals import MIN_STEPS

_OWN_OF_DEVICE: tuple[Phase, ...] = (
    "data_wait",
    "h2d",
    "forward",
    "optimizer",
    "zero_grad",
    "callbacks",
    "logging",
)
"""Phases in which a device waits for no other one under DDP, which reduces in the backward."""

_OUTSIDE_THE_MODEL: tuple[Phase, ...] = ("data_wait", "h2d", "callbacks", "logging")
"""The same where weights or layers are spread over ranks, which then meet in all that the model and optimizer do."""

_DDP = "DDPStrategy"
"""Ranks meet in the backward only."""

_GAP_RATIO = 0.5
"""Late ranks end at a gap of at least so much of the largest one. Heuristic."""

_LATE_RATIO = 0.1
"""Of the median step: ranks that take so much longer than the others are late. Heuristic."""

_THROTTLED_RATIO = 0.25
"""Of a GPU's busy samples: so much more often than those of the others its clocks are held down. Heuristic."""

_HOST_RATIO = 1.5
"""A host is late rather than one of its ranks where it loses so much more. Heuristic."""

_LEAST_LOST_RATIO = 0.05
"""Of the step: late ranks that cost less leave the question whether most ranks are late. Heuristic."""

_Table = tuple[Ints, Ints, dict[Phase, Ints]]
"""Batches, step times and times of the phases."""


def rank_times(
    own: RankSummary, others: Sequence[RankSummary], unread: Mapping[int, str] | None = None
) -> RankTimes | Unmeasured:
    """Compare ranks by the time that they spend on their own; only durations are compared.

    Args:
        own: Of the rank that is looked at.
        others: Whatever else lies in the run's folder, in any order.
        unread: Rank -> why there is no summary of it.

    Returns:
        What could be compared, and which ranks could not; why, if fewer than two are left.
    """
    left_out = {rank: why for rank, why in (unread or {}).items() if rank < own.world_size}
    ranks = of_one_job(own, others, left_out)
    columns = {rank: one.steps.columns() for rank, one in sorted(ranks.items())}
    for rank in set(range(own.world_size)) - columns.keys() - left_out.keys():
        left_out[rank] = "no journal in the run's folder"
    for rank in [rank for rank, (batch, _, _) in columns.items() if len(batch) < MIN_STEPS]:
        left_out[rank] = f"fewer than {MIN_STEPS} steady steps"
        del columns[rank]
    common = max((batch for batch, _, _ in columns.values()), key=len, default=np.zeros(0, np.int64))
    for rank, (batch, _, _) in sorted(columns.items(), key=lambda item: -len(item[1][0])):
        shared = np.intersect1d(common, batch)
        if len(shared) < MIN_STEPS:
            left_out[rank] = f"fewer than {MIN_STEPS} of its steady steps are steady on the other ranks, too"
            del columns[rank]
        else:
            common = shared
    grouped = tuple(by_text((why, rank) for rank, why in sorted(left_out.items())))
    if len(columns) < 2:
        return Unmeasured(
            why=f"{counted(len(columns), 'rank')} of {own.world_size} can be compared ({'; '.join(grouped)})"
        )
    compared = [ranks[rank] for rank in columns]
    on_cpu = all(one.device == "cpu" for one in compared)
    rows = [np.searchsorted(batch, common) for batch, _, _ in columns.values()]
    own_phases = tuple(phase for phase in PHASES if all(phase in one.own_phases for one in compared))
    host = _beside(list(columns.values()), rows, own_phases)
    imbalance = statistics.share(_unequal_ns(host.own_ns), host.period_ns)
    numbers = np.array(list(columns))
    late, judged = _late_ranks(numbers, host), host
    device = None if on_cpu else _on_devices(compared)
    if device is not None and late is not None:
        by_device = _late_ranks(numbers, device)
        if by_device is not None and by_device.lost.lower_ratio > late.lost.lower_ratio:
            late, judged = by_device, device
    if late is not None:
        delays_ms = [
            None if one.run_delay_ratio is None else one.run_delay_ratio * float(period_ms)
            for one, period_ms in zip(compared, judged.periods_ms, strict=True)
        ]
        clocks_mhz = [one.gpu.sm_clock_mhz if one.gpu else None for one in compared]
        late = msgspec.structs.replace(
            late,
            run_delay_ms=_beside_the_others(late, compared, delays_ms),
            sm_clock_mhz=_beside_the_others(late, compared, clocks_mhz),
            throttled=_throttled(late, compared),
            batch_samples=_beside_the_others(late, compared, [one.batch_samples for one in compared]),
            batch_length=_beside_the_others(late, compared, [one.batch_length for one in compared]),
            workers=_beside_the_others(late, compared, [one.workers for one in compared]),
            read_bytes_per_s=_beside_the_others(late, compared, [one.read_bytes_per_s for one in compared]),
            site=_site(late, compared),
        )
    above_median_ns = np.maximum(judged.own_ns.max(axis=0) - np.median(judged.own_ns, axis=0), 0)
    above_median = statistics.share(above_median_ns, judged.period_ns)
    if imbalance is None or late is None or above_median is None:
        return Unmeasured(why="the step time was not measured")
    slowest = np.bincount(host.own_ns.argmax(axis=0), minlength=len(columns)) / len(common)
    return RankTimes(
        world_size=own.world_size,
        steps=judged.own_ns.shape[1],
        phases=judged.own_phases,
        imbalance=imbalance,
        above_median=above_median,
        late=late,
        rare=_rare_ranks(compared, host),
        outside=_late_outside(compared),
        left_out=grouped,
        ranks=tuple(
            RankShare(
                rank=one.rank,
                host=one.host,
                gpu=one.gpu.name if one.gpu is not None else "",
                gpu_number=_number(one.gpu) if one.gpu is not None else None,
                switch=one.switch,
                pipeline_stage=one.pipeline_stage,
                shard=_shard(one),
                excess_ms=float(judged.excess_ms[at]),
                slowest_ratio=float(slowest[at]),
                period_ms=float(host.periods_ms[at]),
                phases_ms={phase: float(medians[at]) for phase, medians in host.medians_ms.items()},
                batch_samples=one.batch_samples,
                peak_memory_bytes=one.gpu_need.needed_bytes if one.gpu_need else one.peak_rss_bytes,
            )
            for at, one in enumerate(compared)
        ),
    )


class _Beside(NamedTuple):
    """As many steps of each rank, beside each other."""

    own_phases: tuple[Phase, ...]
    own_ns: Ints
    """Shape (ranks, steps)."""
    own_by_phase_ns: dict[Phase, Ints]
    """Likewise; phases without time are left out."""
    excess_ms: Floats
    """Shape (ranks,): median of a rank's own time beyond the median of the others."""
    period_ns: Ints
    """Shape (steps,): the median of the ranks."""
    periods_ns: Ints
    """Shape (ranks, steps)."""
    periods_ms: Floats
    """Shape (ranks,): median."""
    medians_ms: dict[Phase, Floats]
    """Likewise; phases without time are left out."""


def _beside(tables: Sequence[_Table], rows: Sequence[Ints], own_phases: tuple[Phase, ...]) -> _Beside:
    periods_ns = np.stack([period[row] for (_, period, _), row in zip(tables, rows, strict=True)])
    own_ns = np.zeros_like(periods_ns)
    medians_ms: dict[Phase, Floats] = {}
    own_by_phase_ns: dict[Phase, Ints] = {}
    for phase in PHASES:
        times_ns = np.zeros_like(periods_ns)
        for at, ((_, _, phases), row) in enumerate(zip(tables, rows, strict=True)):
            if phase in phases:
                times_ns[at] = phases[phase][row]
        if times_ns.any():
            medians_ms[phase] = np.median(times_ns, axis=1) / 1e6
            if phase in own_phases:
                own_ns += times_ns
                own_by_phase_ns[phase] = times_ns
    return _Beside(
        own_phases=own_phases,
        own_ns=own_ns,
        own_by_phase_ns=own_by_phase_ns,
        excess_ms=np.median(own_ns - _median_of_others(own_ns), axis=1) / 1e6,
        period_ns=np.median(periods_ns, axis=0).astype(np.int64),
        periods_ns=periods_ns,
        periods_ms=np.median(periods_ns, axis=1) / 1e6,
        medians_ms=medians_ms,
    )


def _on_devices(ranks: Sequence[RankSummary]) -> _Beside | None:
    """Steps by the devices' own clocks, of about the same moments of the run; None where they are too few.

    There, what a rank waits for others is where ranks meet, whatever phase its host waits in.
    """
    tables = [one.device_steps.columns() for one in ranks if one.device_steps is not None]
    count = min((len(batch) for batch, _, _ in tables), default=0)
    if len(tables) < len(ranks) or count < MIN_STEPS:
        return None
    rows = [np.linspace(0, len(batch) - 1, count).astype(np.int64) for batch, _, _ in tables]
    under_ddp = all(one.strategy == _DDP for one in ranks)
    return _beside(tables, rows, _OWN_OF_DEVICE if under_ddp else _OUTSIDE_THE_MODEL)


def _unequal_ns(own_ns: Ints) -> Ints:
    """What each step would be shorter if every rank's work were always its usual share, shape (steps,).

    Ranks that always have more to do have a larger share: they are late, and no sampler evens that out.
    """
    mean_ns = own_ns.mean(axis=0)
    largest_ns = (own_ns - mean_ns).mean(axis=1).max()
    found: Ints = np.maximum(own_ns.max(axis=0) - mean_ns - largest_ns, 0).astype(np.int64)
    return found


def of_one_job(own: RankSummary, others: Sequence[RankSummary], left_out: dict[int, str]) -> dict[int, RankSummary]:
    """Rank -> its summary, of the ranks that belong together.

    Args:
        own: Of the rank that is looked at.
        others: Whatever else lies in the run's folder.
        left_out: Rank -> why it is left out; those found here are added.

    Returns:
        A new mapping, the own rank first; without a rank that two journals claim, even the own one.
    """
    found = {own.rank: own}
    for one in others:
        if (one.job, one.stage, one.world_size) != (own.job, own.stage, own.world_size):
            left_out[one.rank] = "its journal is of another job"
        elif found.setdefault(one.rank, one) is not one:
            left_out[one.rank] = "two journals say that they are of this rank"
    for rank in left_out:
        found.pop(rank, None)
    return found


def _median_of_others(values: Ints) -> Floats:
    """Of each column the median of the other rows: shape (ranks, steps) to the same."""
    ranks = len(values)
    ordered = np.sort(values, axis=0)
    place = values.argsort(axis=0, kind="stable").argsort(axis=0)

    def without_own(at: int) -> Ints:
        """What stands at a place when the own value is taken out."""
        found: Ints = np.where(place <= at, ordered[min(at + 1, ranks - 1)], ordered[at])
        return found

    lower, upper = (ranks - 2) // 2, (ranks - 1) // 2
    medians: Floats = (without_own(lower) + without_own(upper)) / 2
    return medians


def _rare_ranks(ranks: Sequence[RankSummary], host: _Beside) -> RareRanks | None:
    """Who loses most now and then: in the steps drawn, or in the longest ones of a run of which few are drawn."""
    drawn = _late_alone(ranks, host, host.periods_ns.sum(axis=1), host.own_ns.shape[1])
    if any(one.longest is None for one in ranks):
        return drawn
    tables = [one.longest.columns() for one in ranks if one.longest is not None]
    common = reduce(np.intersect1d, [batch for batch, _, _ in tables])
    if not len(common):
        return drawn
    rows = [np.searchsorted(batch, common) for batch, _, _ in tables]
    steady_ns = np.array([one.steady_ns for one in ranks])
    longest = _late_alone(ranks, _beside(tables, rows, host.own_phases), steady_ns, ranks[0].steady_steps)
    found = [one for one in (longest, drawn) if one is not None]
    return max(found, key=lambda one: one.lower_ratio, default=None)


def _late_alone(ranks: Sequence[RankSummary], steps: _Beside, of_ns: Ints, count: int) -> RareRanks | None:
    """The rank, or the host, that loses most of the time in which it alone is late.

    Args:
        ranks: All.
        steps: Some of their steps.
        of_ns: Time of each rank that holds whatever these steps lose, shape (ranks,).
        count: Steps in that time.
    """
    hosts: dict[str, list[int]] = {}
    for at, one in enumerate(ranks):
        hosts.setdefault(one.host, []).append(at)
    groups = [[at] for at in range(len(ranks))]
    alone_ns = _alone_ns(groups, steps.own_ns)
    if 1 < len(hosts) < len(ranks):
        of_hosts_ns = _alone_ns(list(hosts.values()), steps.own_ns)
        if of_hosts_ns.sum(axis=1).max() > _HOST_RATIO * alone_ns.sum(axis=1).max():
            groups, alone_ns = list(hosts.values()), of_hosts_ns
    at = int(alone_ns.sum(axis=1).argmax())
    late = groups[at]
    ordered = np.sort(alone_ns[at])
    usual_ns = ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)]  # half is lost in larger pieces
    stalls_ns = np.where(alone_ns >= max(_LATE_RATIO * of_ns[late[0]] / count, usual_ns / 2), alone_ns, 0)
    lost = statistics.share(stalls_ns[at], steps.periods_ns[late[0]])
    is_late = stalls_ns[at] > 0
    if lost is None or not is_late.any():
        return None
    apart_ns = {
        phase: float(np.median(np.median(ns[late], axis=0) - np.median(np.delete(ns, late, axis=0), axis=0)))
        for phase, times in steps.own_by_phase_ns.items()
        for ns in [times[:, is_late]]
    }
    of_time = float(steps.periods_ns[late[0]].sum() / of_ns[late[0]])
    return RareRanks(
        ranks=tuple(ranks[at].rank for at in late),
        steps=count,
        step_ms=float(of_ns[late[0]]) / count / 1e6,
        steps_ratio=float(is_late.sum()) / count,
        excess_ms=float(np.median(stalls_ns[at][is_late])) / 1e6,
        phase=max(apart_ns, key=lambda phase: apart_ns[phase]),
        lost_ratio=lost.total_ratio * of_time,
        lower_ratio=(lost.total_lower_ratio or 0.0) * of_time,
        of_all_ratio=float(stalls_ns[at].sum() / stalls_ns.sum()),
    )


def _alone_ns(groups: Sequence[list[int]], own_ns: Ints) -> Ints:
    """What each step is longer for one group alone, shape (groups, steps)."""
    slowest_ns = np.stack([own_ns[rows].max(axis=0) for rows in groups])
    first, second = np.sort(slowest_ns, axis=0)[::-1][:2]
    found: Ints = np.where(slowest_ns == first, first - second, 0)  # nobody's where two take as long
    return found


def _late_outside(ranks: Sequence[RankSummary]) -> tuple[LateOutside, ...]:
    if not all(one.is_whole for one in ranks):
        return ()
    found = []
    for part in get_args(OutsidePart):
        times = sorted(((one.outside_s or {}).get(part, 0.0), one.rank, one.host) for one in ranks)
        (next_s, _, _), (total_s, rank, host) = times[-2:]
        found.append(LateOutside(part=part, rank=rank, host=host, total_s=total_s, excess_s=total_s - next_s))
    return tuple(found)


def _beside_the_others(
    late: LateRanks, ranks: Sequence[RankSummary], values: Sequence[float | None]
) -> tuple[float, float] | None:
    """Median of late ranks and of the others; None where none of either is known."""
    known: tuple[list[float], list[float]] = ([], [])
    for one, value in zip(ranks, values, strict=True):
        if value is not None:
            known[one.rank not in late.ranks].append(value)
    return (float(np.median(known[0])), float(np.median(known[1]))) if all(known) else None


def _shard(one: RankSummary) -> int | None:
    """Of ranks that have all of the model between them."""
    return one.rank // one.tensor_parallel if one.tensor_parallel > 1 and one.pipeline_stage is None else None


def _number(gpu: RankGpu) -> int | None:
    number = gpu.subject.removeprefix("gpu")
    return int(number) if number.isdecimal() else None


def _throttled(late: LateRanks, ranks: Sequence[RankSummary]) -> tuple[str, float, float] | None:
    """The reason that holds down the clocks of the late ranks' GPUs most, beyond those of the others."""
    found = [
        (reason, *both)
        for reason in {reason for one in ranks if one.gpu is not None for reason in one.gpu.throttled}
        for ratios in [[one.gpu.throttled.get(reason, 0.0) if one.gpu else None for one in ranks]]
        for both in [_beside_the_others(late, ranks, ratios)]
        if both is not None and both[0] >= _THROTTLED_RATIO + both[1]
    ]
    return max(found, key=lambda one: one[1] - one[2], default=None)


def _site(late: LateRanks, ranks: Sequence[RankSummary]) -> str:
    if not late.excess_by_phase_ms:
        return ""
    seen = Counter(one.sites[late.phase] for one in ranks if one.rank in late.ranks and late.phase in one.sites)
    return seen.most_common(1)[0][0] if seen else ""


def _late_ranks(numbers: Ints, steps: _Beside) -> LateRanks | None:
    """The ranks above the last large gap between one rank and the next quicker one.

    At most half of them, unless more than half are late and none is later than these.
    """
    order = np.argsort(-steps.excess_ms, kind="stable")
    gaps = -np.diff(steps.excess_ms[order])
    upper = gaps[: len(order) // 2]
    least = _apart(numbers, steps, order, int(np.flatnonzero(upper >= _GAP_RATIO * upper.max())[-1]) + 1)
    most = _apart(numbers, steps, order, int(gaps.argmax()) + 1)
    if least is None or most is None or least.lost.lower_ratio >= _LEAST_LOST_RATIO:
        return least
    return most if most.excess_ms >= _LATE_RATIO * float(np.median(steps.periods_ms)) else least


def _apart(numbers: Ints, steps: _Beside, order: Ints, count: int) -> LateRanks | None:
    """The latest so many ranks and what they cost."""
    own_ns, late, others = steps.own_ns, order[:count], order[count:]
    slowest_ns, without_ns = own_ns[late].max(axis=0), own_ns[others].max(axis=0)
    lost = statistics.share(np.maximum(slowest_ns - without_ns, 0), steps.period_ns)
    if lost is None:
        return None
    apart_ns = np.median(own_ns[late], axis=0) - np.median(own_ns[others], axis=0)
    return LateRanks(
        ranks=tuple(sorted(numbers[late].tolist())),
        excess_ms=float(np.median(apart_ns)) / 1e6,
        excess_by_phase_ms={
            phase: float(np.median(ms[late]) - np.median(ms[others]))
            for phase, ms in steps.medians_ms.items()
            if phase in steps.own_phases
        },
        slowest_ratio=float(np.mean(slowest_ns > without_ns)),
        lost=lost,
    )
