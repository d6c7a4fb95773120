"""People read where the host waits, what that costs, and what is not known."""

from empty_structs import empty

from lightning_gpuprof.model.trace.attribution import SourceLine
from lightning_gpuprof.model.trace.sync_points import SyncPoints, SyncSite
from lightning_gpuprof.sinks.window_tables.sync_points import sync_site_table, sync_total_table


def points(*sites: SyncSite, steps: int = 2, devices: int = 1, left_out: int = 0) -> SyncPoints:
    cost = sum(site.cost_us for site in sites)
    return SyncPoints(
        devices=devices,
        sites=sites,
        count=sum(site.count for site in sites),
        blocked_us=900.0,
        idle_after_us=500.0,
        cost_us=cost,
        idle_us=2000.0,
        cost_ratio=cost / 2000,
        steps=steps,
        count_per_step=1.0 if steps else None,
        blocked_us_per_step=450.0 if steps else None,
        idle_after_us_per_step=250.0 if steps else None,
        cost_us_per_step=cost / steps if steps else None,
        left_out_calls=left_out,
        synchronize_calls=2,
        synchronize_us=10.0,
        item_calls=2,
        item_us=900.0,
    )


def site(line: SourceLine | None = None, annotation: str | None = None) -> SyncSite:
    return empty(
        SyncSite,
        operation="aten::item",
        calls=("cudaMemcpyAsync", "cudaStreamSynchronize"),
        copy="Memcpy DtoH (Device -> Pageable)",
        line=line,
        annotation=annotation,
        count=2,
        count_per_step=1.0,
        blocked_us=900.0,
        idle_after_us=500.0,
        cost_us=200.0,
    )


def texts(row: tuple[object, ...]) -> list[str]:
    return [cell.text for cell in row]  # type: ignore[attr-defined]


def test_a_site_shows_operation_place_and_cost_before_what_the_host_waited() -> None:
    table = sync_site_table(points(site(SourceLine(frame="train.py(8): step", means="call"))))
    assert texts(table.rows[0]) == ["aten::item (DtoH, pageable)", "train.py(8): step", "1", "0.200", "0.500", "0.900"]
    assert [column.title for column in table.columns] == [
        "operation",
        "called from",
        "per step",
        "cost",
        "idle",
        "blocked",
    ]


def test_without_stacks_and_steps_a_site_shows_the_range_and_the_count() -> None:
    table = sync_site_table(points(site(annotation="my metrics"), steps=0))
    assert texts(table.rows[0])[:3] == ["aten::item (DtoH, pageable)", "my metrics", "2"]


def test_the_line_of_a_function_that_was_running_before_is_not_shown() -> None:
    frame = SourceLine(frame="train.py(161): main", means="when the recording began")
    cell = sync_site_table(points(site(frame))).rows[0][1]
    assert cell.text == "train.py: main"
    assert "does not show" in cell.help


def test_totals_stand_beside_the_idle_time() -> None:
    table = sync_total_table(points(site()))
    assert texts(table.rows[1]) == ["GPU idle time caused by the waits", "0.200 ms", "0.100 ms", "10.0 %"]
    assert texts(table.rows[3])[-1] == ""  # what the host was blocked is no part of the idle time


def test_absent_says_why() -> None:
    assert "never waited" in sync_site_table(points()).absent
    assert "before the first or after the last launch" in sync_site_table(points(left_out=1)).absent
    assert "no GPU work" in sync_total_table(points(devices=0)).absent
    assert sync_total_table(points()).rows == ()
