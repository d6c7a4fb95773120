"""Tables of where the host waits for the device, and what that costs."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.sync_points import SyncPoints, SyncSite
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, SIGNIFICANT, US_AS_MS, Column, Table
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.short_names import ms

MAX_SITES = 15
"""Rows of the table of places."""

_OPERATION_LIMIT = 40
_PLACE_LIMIT = 60

_COST = "GPU idle time caused by the wait: the idle time after it, at most as long as the host was blocked"
_IDLE_AFTER = "GPU idle time from when the GPU ran out of work during the wait until its next kernel"
_BLOCKED = "time inside the blocking calls; the GPU is mostly busy then, so this is not the cost"


def sync_site_table(points: SyncPoints) -> Table:
    """The places where the host waits for the device, costliest first."""
    lines = tuple(site.line for site in points.sites if site.line is not None)
    place = short_names.line_meaning(lines) if lines else "phase, named range and operator; the trace has no stacks"
    often: Column[SyncSite] = Column("count", lambda site: site.count, COUNT)
    if points.steps:
        often = Column("per step", lambda site: site.count_per_step, SIGNIFICANT, help="within steps")
    return Table.of(
        "Where the host waits for the device",
        points.sites[:MAX_SITES],
        Column(
            "operation",
            _operation,
            help="outermost aten operator, or else the call; what it copies",
            hover=lambda site: f"waits in {', '.join(map(plain.name, site.calls))}",
        ),
        Column("called from", lambda site: _place(site)[0], help=place, hover=lambda site: _place(site)[1]),
        often,
        Column("cost", lambda site: site.cost_us, US_AS_MS, help=_COST),
        Column("idle", lambda site: site.idle_after_us, US_AS_MS, help=_IDLE_AFTER),
        Column("blocked", lambda site: site.blocked_us, US_AS_MS, help=_BLOCKED),
        absent=_absent(points),
    )


def sync_total_table(points: SyncPoints) -> Table:
    """All waits of the window together, per step where there are steps, and the cost beside the idle time."""

    def of_idle(us: float) -> str:
        return numbers.exact_percent(us / points.idle_us) if points.idle_us > 0 else ""

    rows = (
        ("waits of the host", "", numbers.count(points.count), numbers.significant(points.count_per_step), ""),
        (
            "GPU idle time caused by the waits",
            _COST,
            ms(points.cost_us),
            ms(points.cost_us_per_step or 0.0),
            of_idle(points.cost_us),
        ),
        (
            "GPU idle time after the waits",
            _IDLE_AFTER,
            ms(points.idle_after_us),
            ms(points.idle_after_us_per_step or 0.0),
            of_idle(points.idle_after_us),
        ),
        ("host blocked in waits", _BLOCKED, ms(points.blocked_us), ms(points.blocked_us_per_step or 0.0), ""),
    )
    table = Table.of(
        "All host waits",
        rows if points.count else (),
        Column("what", lambda row: row[0], hover=lambda row: row[1]),
        Column("in the window", lambda row: row[2], FIGURE),
        Column("per step", lambda row: row[3], FIGURE, help="mean over the steps"),
        Column("of idle time", lambda row: row[4], FIGURE, help="of all idle time of the devices in the window"),
        absent=_absent(points),
    )
    return table if points.steps else table.without("per step")


def _absent(points: SyncPoints) -> str:
    if not points.devices:
        return "The window has no GPU work."
    if points.left_out_calls:
        return "The host waited for the GPU only before the first or after the last launch."
    return "The host never waited for the device."


def _operation(site: SyncSite) -> str:
    copy = site.copy or ""
    kinds = [word for word in ("HtoD", "DtoH") if word in copy]
    kinds += [word.lower() for word in ("Pageable", "Pinned") if word in copy]
    after = f" ({', '.join(kinds)})" if kinds else ""
    return plain.name(site.operation, _OPERATION_LIMIT - len(after)) + after


def _place(site: SyncSite) -> tuple[str, str]:
    """Where it is, and what explains that."""
    if site.line is not None:
        means = short_names.LINE_TERMS[site.line.means]
        inside = f"; in {plain.name(site.module)}" if site.module else ""
        return short_names.code_line(site.line, _PLACE_LIMIT), f"{means}{inside}"
    phase = None if site.phase == "h2d" else site.phase  # that is what it does, not where
    around = [one for one in (site.annotation, site.module, site.inside) if one] or [words_of(phase or numbers.ABSENT)]
    return plain.name(around[0], _PLACE_LIMIT), ", ".join(map(plain.name, around[1:]))
