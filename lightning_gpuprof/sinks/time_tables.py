"""The tables of where the time went and how the steps were counted."""

from collections.abc import Callable, Sequence

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PHASE_TERMS, PHASES, words_of
from lightning_gpuprof.model.report import LABEL_TERMS, STEP_LABELS, LedgerRow, Report
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    PART_TERMS,
    PERCENT,
    SIGNIFICANT,
    Column,
    R,
    S,
    Table,
    bar,
    name,
    phase_median,
    wall_share_column,
)

MIN_PHASE_RATIO = 0.02
"""Of a speed level's median step time: phases below it are left out of the table."""


def ledger_table(report: Report, limit: int, least_ratio: float = 0.0) -> Table:
    """Where every second went: the largest named rows, all others together, what is unexplained, and the sum.

    Args:
        report: The report.
        limit: Most rows that are named.
        least_ratio: Share of the wall time below which a row is not named.

    Returns:
        Largest first, in s; what follows the named rows is its foot.
    """
    named = [row for row in report.ledger if row.phase is not None]
    shown = [row for row in named[:limit] if row.share >= least_ratio]
    largest = max((row.share for row in shown), default=0.0)
    others = named[len(shown) :]
    unexplained = [row for row in report.ledger if row.phase is None]
    rows: list[LedgerRow | _Sum] = [
        *shown,
        *([_Sum(f"{numbers.count(len(others))} smaller", others)] if others else []),
        *(_Sum("unexplained", [row], exact=True) for row in unexplained),
        *([_Sum("sum", report.ledger)] if report.ledger else []),
    ]

    def of_row(value: Callable[[LedgerRow], R], other: R) -> Callable[[LedgerRow | _Sum], R]:
        return lambda row: other if isinstance(row, _Sum) else value(row)

    def share(row: LedgerRow | _Sum) -> str:
        return f"{row.share * 100:.2f} %" if isinstance(row, _Sum) and row.exact else numbers.exact_percent(row.share)

    return Table.of(
        "Where every second went",
        rows,
        Column(
            "what",
            lambda row: f"{row.name}.{row.hook}" if isinstance(row, LedgerRow) and row.hook else row.name,
            name(60),
            help="a callback or module with its hook, or what Lightning did",
        ),
        Column("part", of_row(lambda row: words_of(row.part), ""), hover=of_row(lambda row: PART_TERMS[row.part], "")),
        Column(
            "phase",
            of_row(lambda row: words_of(row.phase or ""), ""),
            help="in its own loop",
            hover=of_row(lambda row: PHASE_TERMS[row.phase] if row.phase else "", ""),
        ),
        bar(
            of_row(lambda row: row.share / largest if largest > 0 else 0.0, 0.0),
            of_row(lambda row: row.phase or "", ""),
        ),
        Column(
            "times",
            of_row(lambda row: "" if row.count is None else numbers.count(row.count), ""),
            FIGURE,
            help="number of steps, and of gaps between steps, in which it took time",
        ),
        Column("total", lambda row: row.total_s, S, help="self time: no second is in two rows"),
        wall_share_column(report, share, FIGURE),
        absent="The report has no ledger.",
        foot=len(rows) - len(shown),
    )


class _Sum:
    """A row that stands for others."""

    def __init__(self, name: str, rows: Sequence[LedgerRow], *, exact: bool = False) -> None:
        self.name = name
        self.total_s = sum(row.total_s for row in rows)
        self.share = sum(row.share for row in rows)
        self.exact = exact


def label_table(report: Report) -> Table:
    """How many steps count as what."""
    steps = report.steps
    return Table.of(
        "Which steps count",
        [(label, steps.labels[label]) for label in STEP_LABELS if steps.labels.get(label)],
        Column("label", lambda row: row[0]),
        Column("steps", lambda row: row[1], COUNT),
        Column("share", lambda row: row[1] / steps.count if steps.count else None, PERCENT, help="of all steps"),
        Column("because", lambda row: LABEL_TERMS[row[0]]),
        absent="The steps of this report have no labels.",
    )


def speed_level_table(report: Report) -> Table:
    """The speed levels, where there is more than one, with the phases that take a part of any that counts."""
    levels = report.steps.speed_levels if len(report.steps.speed_levels) > 1 else ()
    phases = [
        phase
        for phase in PHASES
        if any(level.phases_ms.get(phase, 0.0) > MIN_PHASE_RATIO * level.period_ms.median for level in levels)
    ]
    return Table.of(
        "Speed levels",
        levels,
        Column("batches", lambda row: f"{numbers.count(row.from_batch)} to {numbers.count(row.to_batch)}"),
        Column("steady steps", lambda row: row.count, COUNT),
        Column("median", lambda row: row.period_ms.median, SIGNIFICANT.in_unit("ms"), help="step time"),
        Column("p95", lambda row: row.period_ms.p95, SIGNIFICANT.in_unit("ms"), help="step time"),
        *(phase_median(phase) for phase in phases),
        absent="The step time stayed at one level.",
    )
