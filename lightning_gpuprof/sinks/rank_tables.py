"""The ranks' table and the numbers of their heat map."""

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from lightning_gpuprof.model.curves import RankRow, Ranks
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.phases import PHASES, Phase, words_of
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import MS, SIGNIFICANT, Column, Table, name, phase_median

TITLE = "Ranks"
MAX_ROWS = 32
"""Of the heat map: one screen."""
LATEST = 12
"""Ranks in it before the hosts, where there are more ranks than rows."""


class HeatFigure(msgspec.Struct, kw_only=True, frozen=True):
    """Ranks by phases, or by what else their time goes to; rows are ranks."""

    ranks: list[str]
    columns: Sequence[str]
    """What people call the phases."""
    ms: list[list[float | None]]
    """Time, ms: a median per step, or the total of a window."""
    apart_ms: list[list[float | None]]
    """That minus the median of all ranks, ms."""
    others: dict[str, list[float | None]] = {}
    """What else is known of the rows, by title; the colour is the difference from the median row."""


def heat_figure(found: Ranks) -> HeatFigure:
    """Where a rank differs from the others; of many ranks the latest ones, then hosts as the median of their ranks."""
    phases = _phases(found)
    usual = {phase: statistics.median(row.phases_ms.get(phase, 0.0) for row in found.rows) for phase in phases}
    groups = {f"rank {row.rank}": [row] for row in found.rows}
    if len(groups) > MAX_ROWS:
        hosts = _by_host(found)
        room = MAX_ROWS - min(len(hosts), MAX_ROWS - LATEST)
        groups = {f"rank {row.rank}, {plain.name(row.host, 40)}": [row] for row in by_lateness(found)[:room]}
        groups |= {f"{plain.name(host, 40)}, {counted(len(of), 'rank')}": of for host, of in hosts[: MAX_ROWS - room]}
    rows = {
        title: {phase: statistics.median(row.phases_ms.get(phase, 0.0) for row in of) for phase in phases}
        for title, of in groups.items()
    }
    others = {
        title: [_rounded(_median(value(row) for row in of)) for of in groups.values()]
        for title, value in _OTHERS.items()
    }
    return HeatFigure(
        ranks=list(rows),
        columns=[words_of(phase) for phase in phases],
        ms=[[_rounded(times.get(phase)) for phase in phases] for times in rows.values()],
        apart_ms=[[_rounded(times.get(phase, 0.0) - usual[phase]) for phase in phases] for times in rows.values()],
        others={title: values for title, values in others.items() if any(value is not None for value in values)},
    )


_OTHERS: dict[str, Callable[[RankRow], float | None]] = {
    "samples/s": lambda row: row.samples_per_s,
    "peak memory GiB": lambda row: None if row.peak_memory_bytes is None else row.peak_memory_bytes / 2**30,
}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def by_lateness(found: Ranks) -> list[RankRow]:
    """The ranks, those first that take longest on their own."""
    return sorted(found.rows, key=lambda row: -row.excess_ms)


def _by_host(found: Ranks) -> list[tuple[str, list[RankRow]]]:
    """Hosts of several ranks; those first whose ranks take longest."""
    ranks: dict[str, list[RankRow]] = {}
    for row in found.rows:
        ranks.setdefault(row.host, []).append(row)
    several = {host: of for host, of in ranks.items() if len(of) > 1}
    late = sorted(several, key=lambda host: -statistics.median(row.excess_ms for row in several[host]))
    return [(host, several[host]) for host in late]


def rank_table(found: Ranks) -> Table:
    """Medians of each rank over the steps that all have steady."""
    phases = _phases(found)
    own = ", ".join(found.own_phases)
    beyond = f"its own time ({own}) minus the median of the other ranks; a late rank makes the others wait"
    return Table.of(
        TITLE,
        found.rows if len(found.rows) <= MAX_ROWS else by_lateness(found),
        Column("rank", lambda row: str(row.rank), help="index of the process in the job"),
        Column("host", lambda row: row.host, name(40), help="machine that the rank ran on"),
        Column("step time", lambda row: row.period_ms, MS, help="median"),
        Column("beyond the others", lambda row: row.excess_ms, SIGNIFICANT.in_unit("ms"), help=beyond),
        *(phase_median(phase) for phase in phases),
        absent="One rank.",
    )


def _phases(found: Ranks) -> list[Phase]:
    return [phase for phase in PHASES if any(row.phases_ms.get(phase) for row in found.rows)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
