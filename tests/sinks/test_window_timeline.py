"""Table and figure of the timeline: what a reader sees, also of names from outside."""

from typing import Any

import msgspec
import pytest
import sample_report
import window_samples

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.trace.timeline import LaneSum, Timeline, TimelineLane
from lightning_gpuprof.rules import claims
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.window_figures.timeline import moments, timeline_figure
from lightning_gpuprof.sinks.window_tables.timeline import lane_name, step_name, timeline_table


def found() -> Timeline:
    timeline = window_samples.analysis().timeline
    assert timeline is not None
    return timeline


def test_every_lane_has_rows_with_the_time_and_share_of_the_step() -> None:
    table = timeline_table(found())
    assert table.title == "One step, moment by moment: step 8, the median of 3 (1.00 ms on the host)"
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[3:]] for row in table.rows}
    assert rows["phases", "waiting for data"] == ["0.200", "20.0 %", "1"]
    assert rows["calls", "cudaLaunchKernel"] == ["0.0700", "7.0 %", "14"]
    assert rows["GPU 0 stream 8", "kernel13"] == ["0.0330", "3.3 %", "1"]
    assert {row[0].text for row in table.rows} == {
        "phases", "operators", "calls", "GPU 0 stream 7", "GPU 0 stream 8", "GPU 0 idle"
    }  # fmt: skip
    assert ("operators", "other operators") in rows


def test_bars_of_calls_and_of_idle_causes_have_colours_of_their_own() -> None:
    keys = {(row[0].text, row[1].text): row[2].key for row in timeline_table(found()).rows}
    assert keys["calls", "cudaLaunchKernel"] == "call_launch"
    assert keys["GPU 0 idle", "slow launches"] == "idle_launch"
    assert keys["phases", "waiting for data"] == "data_wait"


@pytest.mark.parametrize(
    ("timeline", "name"),
    [
        (Timeline(step="ProfilerStep#7", steps=1, duration_us=1.0), "step 7"),
        (Timeline(step="ProfilerStep#7", steps=1200, duration_us=1.0), "step 7, the median of 1,200"),
        (Timeline(step="whole window", steps=0, duration_us=1.0), "the whole window, which has no steps"),
    ],
)
def test_which_step_it_is(timeline: Timeline, name: str) -> None:
    assert step_name(timeline) == name


@pytest.mark.parametrize(
    ("lane", "name"),
    [
        (TimelineLane(kind="phases", thread="1/1", main=True), "phases"),
        (TimelineLane(kind="operators", thread="1/77"), "operators, thread 77"),
        (TimelineLane(kind="stream", device="1", stream=20), "GPU 1 stream 20"),
        (TimelineLane(kind="stream", device="xpu", stream=None), "xpu"),
        (TimelineLane(kind="idle", device="0"), "GPU 0 idle"),
    ],
)
def test_what_a_lane_is_called(lane: TimelineLane, name: str) -> None:
    assert lane_name(lane) == name


def test_the_figure_has_the_lanes_with_colours_and_readable_names() -> None:
    figure = timeline_figure(found())
    assert figure.duration_us == 1000
    assert [lane.title for lane in figure.lanes] == [
        "phases", "operators", "calls", "GPU 0 stream 7", "GPU 0 stream 8", "GPU 0 idle"
    ]  # fmt: skip
    idle = figure.lanes[-1]
    assert dict(zip(idle.names, idle.keys, strict=True))["slow launches"] == "idle_launch"
    for lane in figure.lanes:
        assert len(lane.start_us) == len(lane.length_us) == len(lane.name) == len(lane.count)
        assert all(0 <= name < len(lane.names) for name in lane.name)


def test_a_timeline_without_anything_has_no_figure_and_says_so_in_its_table() -> None:
    empty = Timeline(step="ProfilerStep#1", steps=1, duration_us=10.0)
    assert timeline_figure(empty) is None
    assert timeline_table(empty).rows == ()
    assert timeline_figure(Timeline(step="whole window", steps=0, duration_us=0.0, lanes=found().lanes)) is None


def test_names_from_outside_choose_no_colour_and_are_short_and_visible() -> None:
    name = sample_report.HOSTILE
    sums = (LaneSum(name=name, kind="phase", count=1, time_us=1.0), LaneSum(name=name, kind="idle", count=1, time_us=1))
    lane = TimelineLane(kind="phases", thread=name, names=(name,), kinds=("phase",), sums=sums)
    timeline = Timeline(step=name, steps=2, duration_us=10.0, lanes=(lane,))
    table = timeline_table(timeline)
    assert [row[2].key for row in table.rows] == ["loop", "idle_unexplained"]
    figure = timeline_figure(timeline)
    assert figure.lanes[0].keys == ("loop",)
    for text in (*figure.lanes[0].names, figure.lanes[0].title, table.title):
        assert text == plain.visible(text)
        assert len(text) < 200
    assert msgspec.json.encode(figure)


@pytest.mark.parametrize(
    ("claim", "where"),
    [
        (claims.FORWARD, (0.0, 4.0)),
        (claims.PADDING, (4.0, 6.0)),
        (claims.COMMUNICATION, (1.0, 1.0)),
        (claims.BATCH_COPIES, (2.0, 2.0)),
        (claims.COPIES_TO_HOST, (2.0, 2.0)),
        (claims.MATRIX_KERNELS, (5.0, 3.0)),
        (claims.LATE_LAUNCHES, (4.0, 1.0)),
        (claims.NO_CPU, None),
    ],
    ids=lambda given: given.name if isinstance(given, Claim) else "",
)
def test_a_finding_shows_at_the_longest_part_of_what_it_explains(
    claim: Claim, where: tuple[float, float] | None
) -> None:
    def lane(kind: Any, *parts: tuple[str, Any, float, float], device: str | None = None) -> TimelineLane:
        names, kinds, starts, lengths = zip(*parts, strict=True)
        places, ones = tuple(range(len(parts))), (1,) * len(parts)
        return TimelineLane(
            kind=kind, device=device, names=names, kinds=kinds, start_us=starts, length_us=lengths, time_us=lengths,
            name=places, count=ones,
        )  # fmt: skip

    timeline = Timeline(
        step="ProfilerStep#7",
        steps=1,
        duration_us=10.0,
        lanes=(
            lane("phases", ("forward", "phase", 0.0, 4.0), ("backward", "phase", 4.0, 6.0)),
            lane(
                "stream",
                ("AllReduce", "communication", 1.0, 1.0),
                ("Memcpy HtoD", "copy", 2.0, 2.0),
                ("gemm", "compute", 5.0, 3.0),
                device="0",
            ),
            lane("idle", ("launch", "idle", 4.0, 1.0), device="0"),
        ),
    )
    window = window_samples.window(msgspec.structs.replace(window_samples.analysis(), timeline=timeline))
    report = sample_report.full_report()
    finding = msgspec.structs.replace(report.findings[0], explains=claim)
    shown = moments(msgspec.structs.replace(report, findings=(finding,)), window)
    assert [(one.start_us, one.length_us) for one in shown] == ([] if where is None else [where])
