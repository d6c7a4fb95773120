"""From the journals of all ranks to what each rank does on its own in the steps that all of them have steady."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.analyze import statistics, steady
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.model.metrics import RankShare, RankTimes
from lightning_gpuprof.model.phases import PHASES, Phase

_OWN_ON_CPU: tuple[Phase, ...] = ("data_wait", "h2d", "forward", "optimizer", "zero_grad", "callbacks", "logging")
"""Phases in which a rank waits for no other one; the backward holds DDP's reductions, ``sync`` is nothing but waiting.
"""

_OWN_ON_DEVICE: tuple[Phase, ...] = ("data_wait",)
"""On a device, the host may wait for the device in any other phase, and the device for other ranks."""

_MAX_APART_NS = 60_000_000_000
"""Steps of one number that began further apart are of different runs: more than what clocks of hosts are apart."""


def rank_times(journals: Sequence[Journal]) -> RankTimes | None:
    """Compare ranks by the time that they spend on their own; only durations are compared.

    Args:
        journals: Of one job, at most one of each rank; in any order.

    Returns:
        None if fewer than two journals are of one job and have steady steps in common.
    """
    ours = _same_job(journals)
    if len(ours) < 2:
        return None
    own = _OWN_ON_CPU if all(one.conditions.get("device.type") == "cpu" for one in ours) else _OWN_ON_DEVICE
    phases = [one.steps.phases(one.slots) for one in ours]
    rows = _common(ours, phases)
    if rows is None:
        return None
    period_ns = np.median([one.steps.period_ns[row] for one, row in zip(ours, rows, strict=True)], axis=0).astype(
        np.int64
    )
    own_ns = np.array([sum(of[p][row] for p in own) for of, row in zip(phases, rows, strict=True)])  # (ranks, steps)
    imbalance = statistics.share((own_ns.max(axis=0) - own_ns.mean(axis=0)).astype(np.int64), period_ns)
    if imbalance is None:
        return None
    taken = [phase for phase in PHASES if any(of[phase][row].any() for of, row in zip(phases, rows, strict=True))]
    slowest = np.bincount(own_ns.argmax(axis=0), minlength=len(ours))
    found = []
    for at, (one, of, row) in enumerate(zip(ours, phases, rows, strict=True)):
        others_ns = np.median(np.delete(own_ns, at, axis=0), axis=0)
        excess = statistics.share((own_ns[at] - others_ns).astype(np.int64), period_ns)
        if excess is None:
            return None
        others = [(other, other_row) for k, (other, other_row) in enumerate(zip(phases, rows, strict=True)) if k != at]
        by_phase = {
            phase: float(np.median(of[phase][row]) - np.median([np.median(o[phase][r]) for o, r in others])) / 1e6
            for phase in own
        }
        found.append(
            RankShare(
                rank=one.header.rank,
                host=one.header.host,
                excess=excess,
                excess_by_phase_ms=by_phase,
                slowest_ratio=float(slowest[at] / own_ns.shape[1]),
                period_ms=float(np.median(one.steps.period_ns[row])) / 1e6,
                phases_ms={phase: float(np.median(of[phase][row])) / 1e6 for phase in taken},
            )
        )
    return RankTimes(
        world_size=ours[0].header.world_size,
        steps=int(own_ns.shape[1]),
        phases=own,
        imbalance=imbalance,
        ranks=tuple(sorted(found, key=lambda one: one.rank)),
    )


def _same_job(journals: Sequence[Journal]) -> list[Journal]:
    if not journals:
        return []
    first = journals[0].header
    same = {
        one.header.rank: one
        for one in journals
        if (one.header.stage, one.header.world_size) == (first.stage, first.world_size)
    }
    return [same[rank] for rank in sorted(same)] if first.world_size > 1 else []


def _common(journals: Sequence[Journal], phases: Sequence[dict[Phase, Ints]]) -> list[Ints] | None:
    """Rows of the steps of one number that are steady on all ranks."""
    steady_rows = [
        np.flatnonzero(steady.select(one.steps, of).steady) for one, of in zip(journals, phases, strict=True)
    ]
    batches = [one.steps.batch[rows] for one, rows in zip(journals, steady_rows, strict=True)]
    common = batches[0]
    for other in batches[1:]:
        common = np.intersect1d(common, other)
    if not len(common):
        return None
    rows = [
        rows[np.searchsorted(batch, common)] if len(batch) else rows
        for rows, batch in zip(steady_rows, batches, strict=True)
    ]
    began = [
        one.steps.start_ns[row] - one.header.start_ns + one.header.epoch_ns
        for one, row in zip(journals, rows, strict=True)
    ]
    apart = max(float(np.abs(np.median(start - began[0]))) for start in began)
    return rows if apart <= _MAX_APART_NS else None
