"""Sentences flow in, a table of one column flows out."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table


def sentence_table(title: str, sentences: Sequence[str], absent: str) -> Table:
    """One row per sentence.

    Args:
        title: Title of the table.
        sentences: In the order in which they are shown.
        absent: Stands there if there are none.
    """
    return Table(
        title=title,
        columns=(Column(title=""),),
        rows=tuple((Cell(text=plain.sentence(sentence)),) for sentence in sentences),
        absent=absent,
    )
