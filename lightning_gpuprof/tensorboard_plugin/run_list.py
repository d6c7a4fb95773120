"""The list of runs as the tab shows it."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lightning_gpuprof.analyze.conditions import changes, obstacle
from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.sinks import gains, plain
from lightning_gpuprof.tensorboard_plugin.summaries import Summary


class Cell(msgspec.Struct, frozen=True):
    """What is shown, and by what it is sorted; None comes last."""

    text: str
    key: float | str | None = None
    why: str = ""
    """Said on hover."""


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
    step_ms: float | None = None
    """Mean step time."""
    stage: str = ""
    fixed: dict[str, Value] = {}
    """The conditions in which runs that are compared have to be alike."""


COLUMNS: tuple[tuple[str, bool], ...] = (
    ("state", False),
    ("verdict", False),
    ("top finding", False),
    ("gain", True),
    ("mean samples/s", True),
    ("mean step", True),
    ("trend", False),
    ("steps", True),
    ("wall time", True),
    ("started", True),
)
"""Titles, and whether they hold numbers."""
MAX_TREND = 8
"""Runs of a trend."""
_BARS = "▁▂▃▄▅▆▇█"


def unreadable_summary(why: str) -> Summary:
    """The line of a run whose files cannot be read."""
    return Summary(state=f"cannot be read: {why}")


def listing(rows: Iterable[Row], note: str) -> dict[str, Any]:
    """The list of runs.

    Args:
        rows: Of all runs.
        note: What to say above it; empty for nothing.

    Returns:
        ``columns`` with ``title`` and ``numeric``, ``rows`` with the latest first and their trends, and ``note``; to be
        encoded as JSON.
    """
    ordered = sorted(rows, key=lambda row: (-row.started_s, row.name))
    columns = [{"title": title, "numeric": numeric} for title, numeric in COLUMNS]
    return {"columns": columns, "rows": _with_trends(ordered), "note": note}


def version(listed: dict[str, Any]) -> str:
    """Another one when anything in the list changes."""
    return hashlib.sha256(msgspec.json.encode(listed)).hexdigest()[:20]


def row(name: str, run: Summary) -> Row:
    """The line of a run.

    Args:
        name: As the other routes want it.
        run: What is known of it.

    Returns:
        Cells in the order of :data:`COLUMNS`; that of the trend is filled in by :func:`listing`.
    """
    state = plain.name(run.state)
    verdict = run.verdict or (numbers.ABSENT if run.state != "running" else "not yet")
    cells = (
        Cell(state, state),
        Cell(plain.name(verdict), verdict),
        Cell(plain.name(run.finding or numbers.ABSENT), run.finding or None),
        Cell(_gain(run), run.speedup),
        Cell(numbers.significant(run.samples_per_s), run.samples_per_s),
        Cell(numbers.quantity("period_ms", run.period_ms), run.period_ms),
        Cell(numbers.ABSENT),
        Cell(numbers.ABSENT if run.steps is None else numbers.count(run.steps), run.steps),
        Cell(numbers.seconds(run.wall_s), run.wall_s),
        Cell("", run.started_s),
    )
    stage = f" ({run.stage})" if run.stage not in ("", "fit") else ""
    shown = plain.name(name.removesuffix("/gpuprof"), 200) + plain.name(stage)
    return Row(
        name=name,
        shown=shown,
        state=state,
        cells=cells,
        started_s=run.started_s or 0.0,
        step_ms=run.period_ms,
        stage=run.stage,
        fixed=run.fixed,
    )


def _gain(run: Summary) -> str:
    """``up to 1.5x``."""
    if run.speedup is None:
        return numbers.ABSENT
    return f"{run.sure} {gains.faster(run.speedup).removesuffix(' faster')}"


def _with_trends(ordered: list[Row]) -> list[Row]:
    """The list, latest run first, with the step times of the last runs of the same folder, this run's last.

    They begin again after a run that the next one cannot be compared with.
    """
    earlier: dict[tuple[str, str], list[Row]] = {}
    done: list[Row] = []
    for one in reversed(ordered):
        if one.step_ms is not None:
            known = earlier.setdefault((_experiment(one.name), one.stage), [])
            why = next(filter(None, (_unlike(before, one) for before in known[:-MAX_TREND:-1])), "")
            if why:
                known.clear()
            known.append(one)
            one = msgspec.structs.replace(one, cells=_with_trend(one.cells, known, why))
        done.append(one)
    return done[::-1]


def _with_trend(cells: Sequence[Cell], known: Sequence[Row], why: str) -> tuple[Cell, ...]:
    times_ms = [row.step_ms for row in known if row.step_ms is not None]
    trend = Cell(_trend(times_ms[-MAX_TREND:]), _change(times_ms), why)
    return tuple(trend if title == "trend" else cell for (title, _), cell in zip(COLUMNS, cells, strict=True))


def _unlike(before: Row, after: Row) -> str:
    """Why two runs cannot be compared; empty if they can."""
    why = obstacle(changes(before.fixed, after.fixed), allowed=())
    return plain.sentence(f"Not comparable with {before.shown}: {why}.") if why else ""


def _experiment(name: str) -> str:
    """The folder that has the versions of a run."""
    parts = [part for part in name.split("/") if part != "gpuprof"]
    return "/".join(parts[:-1])


def _change(times_ms: Sequence[float]) -> float | None:
    return times_ms[-1] / times_ms[-2] - 1 if len(times_ms) > 1 and times_ms[-2] > 0 else None


def _trend(times_ms: Sequence[float]) -> str:
    """Bars as high as the step times, and what the last run changed."""
    change = _change(times_ms)
    if change is None:
        return numbers.ABSENT
    most = max(times_ms)
    bars = "".join(_BARS[max(0, math.ceil(len(_BARS) * time / most) - 1)] for time in times_ms)
    return f"{bars} {change * 100:+.0f} %"
