"""The conditions of a run flow in, one table by group flows out."""

from __future__ import annotations

from lightning_gpuprof.model.conditions import GROUPS, fact_of
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table


def condition_table(report: Report) -> Table:
    """All conditions of the run, those that name it last."""
    facts = sorted(report.run.items(), key=lambda item: GROUPS.index(fact_of(item[0]).group))
    return Table(
        title="Conditions",
        columns=(Column(title="about"), Column(title="condition"), Column(title="value")),
        rows=tuple(
            (Cell(text=fact_of(name).group), Cell(text=plain.name(name)), Cell(text=condition_value(value)))
            for name, value in facts
        ),
        absent="No condition of the run is known.",
    )


def condition_value(value: Value) -> str:
    """A condition's value; None is "not known"."""
    if value is None:
        return "not known"
    if value is True or value is False:
        return "yes" if value else "no"
    return plain.name(str(value), 200)
