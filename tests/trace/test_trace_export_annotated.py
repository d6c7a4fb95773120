"""An annotated trace: what was recorded is unchanged, and the rows on top say what the analysis says."""

from pathlib import Path

import numpy as np
import pytest
from annotated_rows import COUNTS, OURS, differing, document_of, events_of, rows_of
from tiny_traces import Json, kineto_text, span, training_step, write

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.export.annotated import CounterTrack, write_annotated
from lightning_gpuprof.trace.export.event_text import Label
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

UNIX_US = 1_700_000_000_000_000


def annotated(path: Path, *counters: CounterTrack, name: str = "annotated.json") -> Path:
    target = path.with_name(name)
    write_annotated(path, target, LinkedTrace(Trace.read(path)), counters=counters)
    return target


def tiny(tmp_path: Path, events: list[Json], **tail: object) -> Path:
    return write(tmp_path / "a.pt.trace.json", kineto_text(events, **tail))


def counts_of(path: Path, name: str) -> list[tuple[float, dict[str, float]]]:
    return [(one["ts"], one["args"]) for one in events_of(path) if one["ph"] == "C" and one["name"] == name]


def test_findings_are_instants_at_the_begin_that_readers_do_not_take_for_spans(tmp_path: Path) -> None:
    path = tiny(tmp_path, training_step())
    linked = LinkedTrace(Trace.read(path))
    labels = [Label(name=f"rule-{at}: warning", notes={"what": "Slow.", "fix": "Change it."}) for at in (1, 2)]
    write_annotated(path, tmp_path / "b.json", linked, findings=labels)
    found = [one for one in events_of(tmp_path / "b.json") if one["ph"] == "i" and "rule" in one["name"]]
    assert [(one["name"], one["ts"], one["s"]) for one in found] == [
        ("rule-1: warning", 0, "p"),
        ("rule-2: warning", 1, "p"),
    ]
    assert found[0]["args"] == {"what": "Slow.", "fix": "Change it."}
    assert not set(differing(linked.trace, Trace.read(tmp_path / "b.json"))) - COUNTS


def test_the_rows_of_a_step(tmp_path: Path) -> None:
    rows = rows_of(annotated(tiny(tmp_path, training_step())))
    assert rows == {
        "phase": [("data_wait", 0, 30), ("forward", 30, 70)],
        "GPU 0 compute": [("compute", 5, 10), ("compute", 50, 80)],
        "GPU 0 copies": [("copies", 90, 95)],
        "GPU 0 idle": [
            ("idle: data", 10, 30),
            ("idle: launch", 30, 40),
            ("idle: launch_latency", 40, 50),
            ("idle: queued", 80, 90),
        ],
    }


def test_communication_is_a_row_and_what_no_computation_covers_is_another(tmp_path: Path) -> None:
    kernel = {"pid": 0, "device": 0}
    rows = rows_of(
        annotated(
            tiny(
                tmp_path,
                [
                    span("kernel", "gemm", 0, 30, tid=7, stream=7, **kernel),
                    span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 40, tid=9, stream=9, **kernel),
                    span("kernel", "relu", 45, 15, tid=7, stream=7, **kernel),
                ],
            )
        )
    )
    assert rows["GPU 0 compute"] == [("compute", 0, 30), ("compute", 45, 60)]
    assert rows["GPU 0 communication"] == [("communication", 10, 50)]
    assert rows["GPU 0 exposed communication"] == [("exposed communication", 30, 45)]
    assert "GPU 0 idle" not in rows  # a row without anything is left out


def test_phases_are_disjoint_and_the_innermost_counts(tmp_path: Path) -> None:
    events = [
        span("user_annotation", "Optimizer.step#SGD.step", 0, 100),
        span("user_annotation", "## forward ##", 20, 30),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 10, 200, tid=2),
        span("cpu_op", "aten::mm", 1, 2),
        span("cpu_op", "aten::mm", 3, 2),
    ]
    rows = rows_of(annotated(tiny(tmp_path, events)))
    assert rows == {"phase": [("optimizer", 0, 20), ("forward", 20, 50), ("optimizer", 50, 100)]}


def test_the_queue_holds_what_is_launched_and_not_done(tmp_path: Path) -> None:
    queue = counts_of(annotated(tiny(tmp_path, training_step())), "GPU 0 queue")
    depth = [(5, 1), (10, 0), (40, 1), (46, 2), (60, 3), (70, 2), (80, 1), (95, 0)]
    assert queue == [(time, {"works": number}) for time, number in depth]


def test_a_click_on_a_gap_tells_what_the_cause_means_and_what_came_next(tmp_path: Path) -> None:
    gap = next(one for one in events_of(annotated(tiny(tmp_path, training_step()))) if one["name"] == "idle: queued")
    assert gap["args"]["next work"] == "Memcpy HtoD"
    assert "another stream" in gap["args"]["why"]


def test_our_process_is_on_top_and_has_no_number_that_is_taken(tmp_path: Path) -> None:
    events = [*training_step(), span("cpu_op", "aten::mm", 1, 2, pid=1 << 22)]
    path = annotated(tiny(tmp_path, events))
    ours = {one["pid"] for one in events_of(path) if one.get("cat") == OURS}
    theirs = {one["pid"] for one in events}
    assert len(ours) == 1
    assert not ours & theirs
    (index,) = [one["args"]["sort_index"] for one in events_of(path) if one["name"] == "process_sort_index"]
    assert index < 0
    order = [one["args"] for one in events_of(path) if one["name"] == "thread_sort_index"]
    assert order == [{"sort_index": number} for number in range(1, len(order) + 1)]


def test_given_counters_are_drawn_and_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    power = CounterTrack(
        name="GPU 0 power",
        unit="W",
        time_ns=np.array([1_500, 2_000_000, 3_000_000]),
        value=np.array([71.25, np.nan, 300.0]),
    )
    path = annotated(tiny(tmp_path, training_step()), power)
    assert counts_of(path, "GPU 0 power") == [(1.5, {"W": 71.25}), (3000, {"W": 300})]


def test_everything_around_the_events_stays(tmp_path: Path) -> None:
    source = tiny(tmp_path, training_step(), displayTimeUnit="ns", baseTimeNanoseconds=5, traceName="a ]")
    before, after = document_of(source), document_of(annotated(source))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert list(after) == list(before)
    assert {**after, "traceEvents": after["traceEvents"][: len(before["traceEvents"])]} == before


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
@pytest.mark.parametrize("source", ["in.json", "in.json.gz"])
def test_the_name_of_the_target_tells_whether_it_is_compressed(tmp_path: Path, source: str, name: str) -> None:
    path = write(tmp_path / source, kineto_text(training_step()))
    target = annotated(path, name=name)
    assert (target.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert differing(Trace.read(path), Trace.read(target)) == ["categories", "events", "bytes_json"]


def test_a_trace_may_be_annotated_in_place(tmp_path: Path) -> None:
    path = tiny(tmp_path, training_step())
    before = Trace.read(path)
    annotated(path, name=path.name)
    assert set(differing(before, Trace.read(path))) <= COUNTS
    assert "phase" in rows_of(path)


def test_a_bare_list_stays_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", training_step())
    assert isinstance(document_of(annotated(path)), list)
    assert set(differing(Trace.read(path), Trace.read(annotated(path)))) <= COUNTS


def test_without_anything_to_show_the_copy_is_equal(tmp_path: Path) -> None:
    path = tiny(tmp_path, [span("cuda_runtime", "cudaStreamSynchronize", 0, 5)])
    assert annotated(path).read_bytes() == path.read_bytes()


def test_text_that_is_no_json_is_copied_as_it_was_understood(tmp_path: Path) -> None:
    text = kineto_text(training_step()).replace('"gemm"', '"C:\\Users"').replace('"pid": ""', '"pid": N/A')
    path = write(tmp_path / "a.json", text)
    assert Trace.read(path).how == "repaired"
    target = annotated(path)
    assert document_of(target)  # which json can read
    assert set(differing(Trace.read(path), Trace.read(target))) <= COUNTS


def test_names_are_written_as_json(tmp_path: Path) -> None:
    events = training_step()
    for event in events:
        if event["name"] == "gemm":
            event["name"] = 'a "b" \\ \n ✓ ' + "x" * 500
    path = annotated(tiny(tmp_path, events))
    gap = next(one for one in events_of(path) if one["name"] == "idle: launch_latency")
    assert str(gap["args"]["next work"]).startswith('a "b" \\ \n ✓ xxx')
    assert len(str(gap["args"]["next work"])) < 200


def moved(events: list[Json], by_us: float) -> list[Json]:
    return [{**event, "ts": event["ts"] + by_us} for event in events]


def test_times_that_float64_cannot_hold_are_whole_microseconds(tmp_path: Path) -> None:
    events = moved(training_step(), UNIX_US)
    for number, event in enumerate(events):
        event["dur"] = float(event.get("dur", 0)) - 0.001 * number
    path = annotated(write(tmp_path / "a.json", kineto_text(events)))
    times = [one[key] for one in events_of(path) if one.get("cat") == OURS for key in ("ts", "dur") if key in one]
    assert len(times) > 10
    assert all(isinstance(time, int) for time in times)
    assert rows_of(path)["GPU 0 copies"] == [("copies", UNIX_US + 90, UNIX_US + 95)]


def test_times_before_zero_are_written_right(tmp_path: Path) -> None:
    path = annotated(tiny(tmp_path, moved(training_step(), -60.25)))
    assert rows_of(path)["GPU 0 compute"] == [("compute", -55.25, -50.25), ("compute", -10.25, 19.75)]


def test_an_annotated_trace_is_not_annotated_again(tmp_path: Path) -> None:
    target = annotated(tiny(tmp_path, training_step()))
    with pytest.raises(TraceError, match="already annotated"):
        annotated(target, name="again.json")
    assert not target.with_name("again.json").exists()


def test_a_source_that_changed_since_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tiny(tmp_path, training_step())
    linked = LinkedTrace(Trace.read(path))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(TraceError, match=r"a\.pt\.trace\.json: the trace is truncated"):
        write_annotated(path, tmp_path / "b.json", linked)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    path = tiny(tmp_path, training_step())
    linked = LinkedTrace(Trace.read(path))
    with pytest.raises(TraceError, match=r"cannot write .*b\.json from .*: No such file"):
        write_annotated(path, tmp_path / "missing" / "b.json", linked)
    with pytest.raises(TraceError, match=r"cannot write .* from .*gone\.json: No such file"):
        write_annotated(tmp_path / "gone.json", tmp_path / "b.json", linked)
