"""A Report flows in, tables of where its time went and what its steps count as flow out."""

from __future__ import annotations

from lightning_gpuprof.model.phases import PHASE_TERMS, PHASES
from lightning_gpuprof.model.report import LABEL_TERMS, STEP_LABELS, LedgerRow, Report
from lightning_gpuprof.sinks import numbers, plain, wording
from lightning_gpuprof.sinks.tables import OF_WALL, PART_TERMS, Cell, Column, Table

LEAST_PHASE_RATIO = 0.02
"""Of a regime's median period: phases below it are left out of the table of regimes."""


def ledger_table(report: Report, limit: int, least_ratio: float = 0.0) -> Table:
    """Where every second went: the largest named rows, all others together, what is unexplained, and the sum.

    Args:
        report: The report.
        limit: Most rows that are named.
        least_ratio: Share of the wall time below which a row is not named.
    """
    named = [row for row in report.ledger if row.phase is not None]
    shown = [row for row in named[:limit] if row.share >= least_ratio]
    largest = max((row.share for row in shown), default=0.0)
    rows = [_ledger_row(row, row.share / largest if largest > 0 else 0.0) for row in shown]
    others = named[len(shown) :]
    if others:
        text = f"{numbers.count(len(others))} smaller"
        rows.append(_ledger_sum(text, sum(r.total_s for r in others), sum(r.share for r in others)))
    for row in report.ledger:
        if row.phase is None:
            rows.append(_ledger_sum("unexplained", row.total_s, row.share, exact=True))
    if report.ledger:
        rows.append(_ledger_sum("sum", sum(r.total_s for r in report.ledger), sum(r.share for r in report.ledger)))
    return Table(
        title="Where every second went",
        columns=(
            Column(title="what", term="a callback or module with its hook, or what Lightning did"),
            Column(title="part", term="of the wall time"),
            Column(title="phase", term="what the time is in its own loop"),
            Column(title="", bar=True),
            Column(title="times", term="steps, and stretches between steps, in which it took time", numeric=True),
            Column(title="total", unit="s", term="exclusive: no second is in two rows", numeric=True),
            Column(title=OF_WALL, term=f"of the wall time of {wording.stage(report)}", numeric=True),
        ),
        rows=tuple(rows),
        absent="The report has no ledger.",
        foot=len(rows) - len(shown),
    )


def _ledger_row(row: LedgerRow, bar: float) -> tuple[Cell, ...]:
    return (
        Cell(text=plain.name(f"{row.name}.{row.hook}" if row.hook else row.name, 60)),
        Cell(text=row.part, term=PART_TERMS[row.part]),
        Cell(text=row.phase or "", term=PHASE_TERMS[row.phase] if row.phase else ""),
        Cell(text="", ratio=bar, key=row.phase or ""),
        Cell(text="" if row.count is None else numbers.count(row.count)),
        Cell(text=numbers.fixed(row.total_s)),
        Cell(text=numbers.percent(row.share)),
    )


def _ledger_sum(what: str, total_s: float, share: float, *, exact: bool = False) -> tuple[Cell, ...]:
    shown = f"{share * 100:.2f} %" if exact else numbers.percent(share)
    empty = Cell(text="")
    return Cell(text=what), empty, empty, empty, empty, Cell(text=numbers.fixed(total_s)), Cell(text=shown)


def label_table(report: Report) -> Table:
    """How many steps count as what."""
    count = report.steps.count
    return Table(
        title="Steps by what they count as",
        columns=(
            Column(title="label"),
            Column(title="steps", numeric=True),
            Column(title="share", term="of all steps", numeric=True),
            Column(title="because"),
        ),
        rows=tuple(
            (
                Cell(text=label),
                Cell(text=numbers.count(number)),
                Cell(text=numbers.percent(number / count if count else None)),
                Cell(text=LABEL_TERMS[label]),
            )
            for label in STEP_LABELS
            if (number := report.steps.labels.get(label, 0))
        ),
        absent="The steps of this report have no labels.",
    )


def regime_table(report: Report) -> Table:
    """The levels of the period, where there is more than one, with the phases that take a part of any that counts."""
    regimes = report.steps.regimes if len(report.steps.regimes) > 1 else ()
    phases = [
        phase
        for phase in PHASES
        if any(r.phases_ms.get(phase, 0.0) > LEAST_PHASE_RATIO * r.period_ms.median for r in regimes)
    ]
    return Table(
        title="Regimes",
        columns=(
            Column(title="batches"),
            Column(title="steady steps", numeric=True),
            Column(title="median", unit="ms", term="of the period", numeric=True),
            Column(title="p95", unit="ms", term="of the period", numeric=True),
            *(Column(title=phase, unit="ms", term=f"median; {PHASE_TERMS[phase]}", numeric=True) for phase in phases),
        ),
        rows=tuple(
            (
                Cell(text=f"{numbers.count(regime.from_batch)} to {numbers.count(regime.to_batch)}"),
                Cell(text=numbers.count(regime.count)),
                Cell(text=numbers.significant(regime.period_ms.median)),
                Cell(text=numbers.significant(regime.period_ms.p95)),
                *(Cell(text=numbers.fixed(regime.phases_ms.get(phase))) for phase in phases),
            )
            for regime in regimes
        ),
        absent="The period kept one level.",
    )
