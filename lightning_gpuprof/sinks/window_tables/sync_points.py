"""Sync points of a window flow in, tables of where the host waits for the device and what that costs flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.sync_points import SyncPoints, SyncSite
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table
from lightning_gpuprof.sinks.window_tables import source_line

MOST_SITES = 15
"""Rows of the table of places."""

_OPERATION_LIMIT = 30
_PLACE_LIMIT = 28

_COST = (
    "device idle time that the wait caused: of the idle time after it, not more than the host was blocked, since "
    "without the wait the host would have come to its next launch so much earlier"
)
_IDLE_AFTER = "device idle time from when the device ran dry in the wait until its next work, whatever the host did"
_BLOCKED = "the host was inside of the waiting calls; the device mostly works meanwhile, so this is not the cost"


def sync_site_table(points: SyncPoints) -> Table:
    """The places where the host waits for the device, costliest first."""
    lines = tuple(site.line for site in points.sites if site.line is not None)
    place = source_line.meaning(lines) if lines else "phase, named range and operator; the trace has no stacks"
    rows = tuple(
        (
            Cell(text=_operation(site), term=f"waits in {', '.join(map(plain.name, site.calls))}"),
            _place(site),
            Cell(text=numbers.significant(site.count_per_step) if points.steps else numbers.count(site.count)),
            Cell(text=numbers.fixed(site.cost_us / 1e3)),
            Cell(text=numbers.fixed(site.idle_after_us / 1e3)),
            Cell(text=numbers.fixed(site.blocked_us / 1e3)),
        )
        for site in points.sites[:MOST_SITES]
    )
    return Table(
        title="Where the host waits for the device",
        columns=(
            Column(title="operation", term="outermost aten operator, else the call; what it copies"),
            Column(title="called from", term=place),
            (
                Column(title="per step", term="occurrences inside of steps over the number of steps", numeric=True)
                if points.steps
                else Column(title="count", numeric=True)
            ),
            Column(title="cost", unit="ms", term=_COST, numeric=True),
            Column(title="idle", unit="ms", term=_IDLE_AFTER, numeric=True),
            Column(title="blocked", unit="ms", term=_BLOCKED, numeric=True),
        ),
        rows=rows,
        absent=_absent(points),
    )


def sync_total_table(points: SyncPoints) -> Table:
    """All waits of the window together, per step where there are steps, and the cost beside the idle time."""
    per_step = points.steps > 0
    shown = (
        (
            "device idle time that the waits caused",
            _COST,
            points.cost_us,
            points.cost_us_per_step,
        ),
        ("device idle time after the waits", _IDLE_AFTER, points.idle_after_us, points.idle_after_us_per_step),
        ("host blocked in waits", _BLOCKED, points.blocked_us, points.blocked_us_per_step),
    )
    rows = [
        (
            Cell(text="waits of the host"),
            Cell(text=numbers.count(points.count)),
            *([Cell(text=numbers.significant(points.count_per_step))] if per_step else []),
            Cell(text=""),
        )
    ]
    for text, term, total_us, of_step_us in shown:
        is_idle = term != _BLOCKED
        share = numbers.percent(total_us / points.idle_us) if is_idle and points.idle_us > 0 else ""
        rows.append(
            (
                Cell(text=text, term=term),
                Cell(text=f"{numbers.fixed(total_us / 1e3)} ms"),
                *([Cell(text=f"{numbers.fixed((of_step_us or 0.0) / 1e3)} ms")] if per_step else []),
                Cell(text=share),
            )
        )
    return Table(
        title="Host waits in all",
        columns=(
            Column(title="what"),
            Column(title="in the window", numeric=True),
            *(
                [Column(title="per step", term="of what lies in steps, over the number of steps", numeric=True)]
                if per_step
                else []
            ),
            Column(title="of idle time", term="of all idle time of the devices in the window", numeric=True),
        ),
        rows=tuple(rows) if points.count else (),
        absent=_absent(points),
    )


def _absent(points: SyncPoints) -> str:
    if not points.devices:
        return "The window holds no work of a device, so the host cannot have waited for one."
    if points.left_out_calls:
        return "The host waited for the device only before the first or after the last launch of the window."
    return "The host never waited for the device."


def _operation(site: SyncSite) -> str:
    copy = site.copy or ""
    told = [word for word in ("HtoD", "DtoH") if word in copy] + [
        word.lower() for word in ("Pageable", "Pinned") if word in copy
    ]
    after = f" ({', '.join(told)})" if told else ""
    return plain.name(site.operation, _OPERATION_LIMIT - len(after)) + after


def _place(site: SyncSite) -> Cell:
    if site.line is not None:
        cell = source_line.cell(site.line, _PLACE_LIMIT)
        return Cell(text=cell.text, term=f"{cell.term}; in {plain.name(site.module)}" if site.module else cell.term)
    told = [one for one in (site.annotation, site.module, site.inside) if one]
    phase = None if site.phase == "h2d" else site.phase  # that is what it does, not where
    text = told[0] if told else phase
    term = ", ".join(plain.name(one) for one in told[1:])
    return Cell(text=plain.name(text or numbers.ABSENT, _PLACE_LIMIT), term=term)
