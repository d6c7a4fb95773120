"""Builds a run whose ranks wait for a late one."""

from collections.abc import Sequence
from typing import Any

from device_builder import collective, distributed
from metrics_builder import build, replace, share

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.phases import OutsidePart, Phase
from lightning_gpuprof.model.rank_memory import GpuNeed, RankMemory, RankNeed
from lightning_gpuprof.model.rank_times import LateOutside, LateRanks, RankShare, RankTimes, RareRanks

GIB = 2**30


def job(excess_ms: float, *, ranks: int = 4, **late: Any) -> Metrics:
    """A healthy run of several ranks; the arguments are those of :func:`with_ranks`."""
    return with_ranks(build(), excess_ms=excess_ms, ranks=ranks, **late)


def with_ranks(
    metrics: Metrics,
    *,
    excess_ms: float,
    slowest: float = 0.95,
    steps: int = 100,
    late: int | tuple[int, ...] = 1,
    ranks: int = 4,
    lower: float = 0.98,
    imbalance_ms: float = 0.0,
    alone: bool = False,
    run_delay_ms: tuple[float, float] | None = None,
    sm_clock_mhz: tuple[float, float] | None = None,
    throttled: tuple[str, float, float] | None = None,
    batch_length: tuple[float, float] | None = None,
    workers: tuple[float, float] | None = None,
    read_bytes_per_s: tuple[float, float] | None = None,
    phase: Phase = "forward",
    site: str = "",
    rare_ms: float = 0.0,
    alone_ratio: float = 0.95,
    outside_s: float = 0.0,
    outside: OutsidePart = "validation",
    logging_ms: Sequence[float] = (),
    sync_ms: Sequence[float] = (),
) -> Metrics:
    """Steps of 50 ms in which some ranks take so much longer in their forward than the median of the others.

    ``logging_ms`` is what logging takes on each rank, ``sync_ms`` how long each waits for others.
    """
    by_phase: dict[Phase, Sequence[float]] = {"logging": logging_ms, "sync": sync_ms}
    late = (late,) if isinstance(late, int) else late
    shares = tuple(
        RankShare(
            rank=rank,
            host=f"node{rank // 2}",
            excess_ms=excess_ms if rank in late else 0.0,
            slowest_ratio=slowest / len(late) if rank in late else (1 - slowest) / (ranks - len(late)),
            phases_ms={phase: of_ranks[rank] for phase, of_ranks in by_phase.items() if of_ranks},
        )
        for rank in range(ranks)
    )
    times = RankTimes(
        world_size=ranks,
        steps=steps,
        phases=("data_wait", "forward"),
        imbalance=share(imbalance_ms, 50.0, lower=lower),
        above_median=share(excess_ms, 50.0, lower=lower),
        late=LateRanks(
            ranks=late,
            excess_ms=excess_ms,
            excess_by_phase_ms={"data_wait": 0.1, "forward": 0.1, phase: excess_ms},
            slowest_ratio=slowest,
            lost=share(excess_ms, 50.0, lower=lower),
            run_delay_ms=run_delay_ms,
            sm_clock_mhz=sm_clock_mhz,
            throttled=throttled,
            batch_length=batch_length,
            workers=workers,
            read_bytes_per_s=read_bytes_per_s,
            site=site,
        ),
        rare=RareRanks(
            ranks=(1,),
            steps=steps,
            step_ms=50.0 + 0.02 * rare_ms,
            steps_ratio=0.02,
            excess_ms=rare_ms,
            phase="callbacks",
            lost_ratio=0.02 * rare_ms / (50.0 + 0.02 * rare_ms),
            lower_ratio=lower * 0.02 * rare_ms / (50.0 + 0.02 * rare_ms),
            of_all_ratio=alone_ratio,
        ),
        outside=(LateOutside(part=outside, rank=2, host="node1", total_s=outside_s, excess_s=outside_s / 2),),
        ranks=shares,
    )
    return replace(
        metrics,
        run={**metrics.run, "trainer.world_size": ranks},
        ranks=Unmeasured(why=f"1 rank of {ranks} can be compared") if alone else times,
    )


def with_rank_memory(
    metrics: Metrics,
    *,
    tensors_gib: Sequence[float],
    outside_gib: Sequence[float] | None = None,
    total_gib: float | None = 40.0,
    ranks: int = 4,
    device: str = "cuda",
) -> Metrics:
    """Ranks whose GPUs have these peaks, as far as they have the same part of the model and left one."""
    outside = [None] * len(tensors_gib) if outside_gib is None else [gib * GIB for gib in outside_gib]
    total = None if total_gib is None else total_gib * GIB
    needs = tuple(
        RankNeed(rank=rank, host="node0", gpu=GpuNeed(tensors_bytes=gib * GIB, outside_bytes=more, total_bytes=total))
        for rank, (gib, more) in enumerate(zip(tensors_gib, outside, strict=True))
    )
    return replace(
        metrics,
        run={**metrics.run, "trainer.world_size": ranks, "device.type": device},
        rank_memory=RankMemory(ranks=needs) if len(needs) > 1 else Unmeasured(why=f"1 rank of {ranks}"),
    )


def on_device(of: Metrics, exposed_ms: float) -> Metrics:
    """The same ranks on devices that are idle for 1 ms of 50 and do nothing but communicate for so long."""
    return replace(distributed([collective(exposed_ms / 2)]), ranks=of.ranks)
