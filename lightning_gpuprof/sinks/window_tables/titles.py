"""The title of a table and how many rows it has flow in, a title that says what is left out flows out."""

from __future__ import annotations

from lightning_gpuprof.sinks import numbers


def of_first_rows(title: str, rows: int, limit: int | None) -> str:
    """The title with "first 20 of 152" where rows are left out.

    Args:
        title: Of the whole table.
        rows: All there are.
        limit: Most that are shown; None shows all.
    """
    return title if limit is None or rows <= limit else f"{title} (first {limit} of {numbers.count(rows)})"
