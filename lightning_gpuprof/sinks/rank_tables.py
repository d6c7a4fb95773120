"""The ranks of a Report flow in, their table and the numbers of the heat map flow out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from lightning_gpuprof.model.curves import Ranks
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.sinks.tables import MS, SIGNIFICANT, Column, Table, name, phase_median

TITLE = "Ranks"


class HeatFigure(msgspec.Struct, kw_only=True, frozen=True):
    """Ranks by phases, or by what else their time goes to; rows are ranks."""

    ranks: list[str]
    phases: Sequence[str]
    ms: list[list[float | None]]
    """Time, ms: a median per step, or the total of a window."""
    apart_ms: list[list[float | None]]
    """That minus the median of all ranks, ms."""


def heat_figure(found: Ranks) -> HeatFigure:
    """Where a rank differs from the others."""
    phases = _phases(found)
    usual = {phase: statistics.median(row.phases_ms.get(phase, 0.0) for row in found.rows) for phase in phases}
    return HeatFigure(
        ranks=[f"rank {row.rank}" for row in found.rows],
        phases=phases,
        ms=[[_rounded(row.phases_ms.get(phase)) for phase in phases] for row in found.rows],
        apart_ms=[[_rounded(row.phases_ms.get(phase, 0.0) - usual[phase]) for phase in phases] for row in found.rows],
    )


def rank_table(found: Ranks) -> Table:
    """Medians of each rank over the steps that all have steady."""
    phases = _phases(found)
    own = ", ".join(found.own_phases)
    beyond = f"its own time ({own}) minus the median of the other ranks; a late rank makes the others wait"
    return Table.of(
        TITLE,
        found.rows,
        Column("rank", lambda row: str(row.rank), help="number of the process in the job"),
        Column("host", lambda row: row.host, name(40), help="machine that the rank ran on"),
        Column("step time", lambda row: row.period_ms, MS, help="median"),
        Column("beyond the others", lambda row: row.excess_ms, SIGNIFICANT.in_unit("ms"), help=beyond),
        *(phase_median(phase) for phase in phases),
        absent="One rank.",
    )


def _phases(found: Ranks) -> list[Phase]:
    return [phase for phase in PHASES if any(row.phases_ms.get(phase) for row in found.rows)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
