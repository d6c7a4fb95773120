"""The nearest wanted span at or around each nested span."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.trace.tables import ABSENT, Mask, Rows


def nearest(parent: Rows, wanted: Mask) -> Rows:
    """The nearest wanted span: the span itself, else the innermost of those around it.

    Each round doubles the distance climbed, so that a stack of a hundred frames takes seven rounds.

    Args:
        parent: Row of the span directly around each one, :data:`ABSENT` if there is none.
        wanted: Which spans are looked for.

    Returns:
        A row for each span, :data:`ABSENT` where no wanted span is around it.
    """
    at: Rows = np.where(wanted, np.arange(len(parent)), parent)
    moving = np.flatnonzero(~wanted & (parent > ABSENT))
    while len(moving):
        moving = moving[~wanted[at[moving]]]
        at[moving] = at[at[moving]]  # what lies further up has climbed, too
        moving = moving[at[moving] > ABSENT]
    return at


def take_or_absent(column: Rows, row: Rows) -> Rows:
    """What a column of rows says for each row; :data:`ABSENT` for a row that is absent itself.

    Args:
        column: A value for each of n rows.
        row: Numbers of rows, or :data:`ABSENT`.

    Returns:
        As long as ``row``.
    """
    if not len(column):
        return np.full(len(row), ABSENT, np.intp)
    found: Rows = np.where(row > ABSENT, column[row], ABSENT)
    return found
