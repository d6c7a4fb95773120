"""Recorded traces of many GPUs and versions, annotated: read alike, drawn whole, busy and idle add up."""

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from annotated_rows import OURS, differing, events_of, rows_of_events
from recorded_traces import NAMES, TRACES, recorded_trace

from lightning_gpuprof.model.trace.idle import IDLE_CAUSES
from lightning_gpuprof.trace.export.annotated import write_annotated
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


class Recorded(NamedTuple):
    linked: LinkedTrace
    annotated: Path
    events: list[dict[str, Any]]
    """Of the annotated file."""


def slow_if_large(name: str) -> Any:
    """Those of more than 1 MB take most of the time, and few of them have what no smaller one has."""
    large = (TRACES / name).is_file() and (TRACES / name).stat().st_size > 1e6
    return pytest.param(name, marks=pytest.mark.slow) if large else name


@pytest.fixture(params=[slow_if_large(name) for name in NAMES or ["none"]], scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    linked = recorded_trace(request.param)
    target = tmp_path_factory.mktemp("annotated") / request.param
    write_annotated(TRACES / request.param, target, linked)
    return Recorded(linked, target, events_of(target))


def test_a_recorded_trace_reads_alike_after_it_is_annotated(recorded: Recorded) -> None:
    again = Trace.read(recorded.annotated)
    assert set(differing(recorded.linked.trace, again)) <= {"categories", "events", "bytes_json"}
    assert set(again.categories) - set(recorded.linked.trace.categories) <= {OURS}
    assert again.events == len(recorded.events)


def as_perfetto_reads(time_us: float) -> int:
    """Whole nanoseconds, through float64 if the text is no integer."""
    if isinstance(time_us, int):
        return time_us * 1000
    return int(Decimal(time_us * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def test_perfetto_drops_no_stretch_of_a_recorded_trace(recorded: Recorded) -> None:
    """It drops what begins inside of a stretch and ends behind it."""
    by_row: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in recorded.events:
        if one.get("cat") == OURS and one["ph"] == "X":
            start, duration = as_perfetto_reads(one["ts"]), as_perfetto_reads(one["dur"])
            assert duration > 0
            by_row[one["tid"]].append((start, start + duration))
    for row in by_row.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(row))


def test_the_rows_of_a_recorded_trace_tell_busy_and_idle_time(recorded: Recorded) -> None:
    trace, rows = recorded.linked.trace, rows_of_events(recorded.events)
    for number, rows_of_device in recorded.linked.device_rows.items():
        work = trace.device_work.where(rows_of_device)
        window_us = (int(work.end_ns.max()) - int(work.start_ns.min())) / 1000
        told = {
            row: sum(end - start for _, start, end in rows.get(f"GPU {trace.devices[number]} {row}", ()))
            for row in ("compute", "idle", "exposed communication", "copies")
        }
        # copies may run beside kernels
        least, most = sum(told.values()) - told["copies"], sum(told.values())
        is_unix_time = int(work.start_ns.min()) > 2**53
        rounding_us = sum(map(len, rows.values())) * (0.5 if is_unix_time else 0.001)
        assert least - rounding_us <= window_us <= most + rounding_us
        causes = {name for name, _, _ in rows.get(f"GPU {trace.devices[number]} idle", ())}
        assert causes <= {f"idle: {cause}" for cause in IDLE_CAUSES}
