"""Summaries of runs flow in, the list of runs as the tab shows it flows out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.tensorboard_plugin.summaries import Summary


class Cell(msgspec.Struct, frozen=True):
    """What is shown, and by what it is sorted; None comes last."""

    text: str
    key: float | str | None = None


class Row(msgspec.Struct, frozen=True):
    """A run."""

    name: str
    """As the other routes want it."""
    shown: str
    """As people are shown it."""
    state: str
    cells: tuple[Cell, ...]
    started_s: float
    """Unix time; 0 where it is not known."""


COLUMNS: tuple[tuple[str, bool], ...] = (
    ("state", False),
    ("verdict", False),
    ("samples/s", True),
    ("step time", True),
    ("steps", True),
    ("wall time", True),
    ("started", True),
)
"""Titles, and whether they hold numbers."""


def unreadable_summary(why: str) -> Summary:
    """The line of a run whose files cannot be read."""
    return Summary(state=f"cannot be read: {why}")


def listing(rows: Iterable[Row], note: str) -> dict[str, Any]:
    """The list, latest first.

    Args:
        rows: Of all runs.
        note: What to say above it; empty for nothing.
    """
    ordered = sorted(rows, key=lambda row: (-row.started_s, row.name))
    columns = [{"title": title, "numeric": numeric} for title, numeric in COLUMNS]
    return {"columns": columns, "rows": ordered, "note": note}


def version(listed: dict[str, Any]) -> str:
    """Another one when anything in the list changes."""
    return hashlib.sha256(msgspec.json.encode(listed)).hexdigest()[:20]


def row(name: str, run: Summary) -> Row:
    """The line of a run.

    Args:
        name: As the other routes want it.
        run: What is known of it.
    """
    state = plain.name(run.state)
    verdict = run.verdict or (numbers.ABSENT if run.state != "running" else "not yet")
    cells = (
        Cell(state, state),
        Cell(plain.name(verdict), verdict),
        Cell(numbers.significant(run.samples_per_s), run.samples_per_s),
        Cell(numbers.quantity("period_ms", run.period_ms), run.period_ms),
        Cell(numbers.ABSENT if run.steps is None else numbers.count(run.steps), run.steps),
        Cell(numbers.seconds(run.wall_s), run.wall_s),
        Cell("", run.started_s),
    )
    stage = f" ({run.stage})" if run.stage not in ("", "fit") else ""
    shown = plain.name(name, 200) + plain.name(stage)
    return Row(name=name, shown=shown, state=state, cells=cells, started_s=run.started_s or 0.0)
