"""The window controller with a tracer that only writes down its calls."""

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from noting_tracer import MAX_NS, MS, NotingTracer, Run, spans

from lightning_gpuprof.capture.step_clock import NEVER
from lightning_gpuprof.capture.windows import STEADY_AT_THE_LATEST
from lightning_gpuprof.model.config import parse_windows


def test_a_window_holds_both_of_its_ends_after_a_warm_up() -> None:
    run = Run(parse_windows((10, 12), 3))
    run.train(30)
    assert run.tracer.calls == ["prepare", "start 10", "step 11", "step 12", "stop"]
    assert run.traced_batches == [8, 9, 10, 11, 12]
    assert spans(run) == [(10, 12, "")]


def test_nothing_looks_at_steps_that_are_far_from_a_window() -> None:
    run = Run(parse_windows((100, 101), 3))
    run.train(200)
    assert run.looked <= 6


BY_VALIDATION = "closed: validation began"


@pytest.mark.parametrize(
    ("windows", "options", "training", "expected"),
    [
        pytest.param(5, {}, {}, [(5, 7, "")], id="a single number opens one of the active length"),
        pytest.param([20, (5, 6)], {}, {}, [(5, 6, ""), (20, 22, "")], id="several, in order"),
        pytest.param([(5, 6), (7, 8)], {}, {}, [(5, 6, ""), (7, 8, "")], id="next to each other"),
        pytest.param(
            [5, 60],
            {},
            {"first_step": 50},
            [(5, 7, "passed before this run began, at optimizer step 50"), (60, 62, "")],
            id="resuming notes what was passed and records the others",
        ),
        pytest.param((48, 52), {}, {"first_step": 50}, [(50, 52, "")], id="resuming inside of one records its rest"),
        pytest.param(
            (35, 50), {}, {}, [(35, 39, "ended early: finished")], id="what training ends inside of is kept and says so"
        ),
        pytest.param(
            [(4, 9), (14, 21)],
            {"every_n_steps": 30},
            {"validates_after": (6, 31), "epoch_batches": 20},
            [(4, 6, BY_VALIDATION), (14, 19, "closed: the epoch ended"), (30, 31, BY_VALIDATION)],
            id="it goes on neither through validation nor into the next epoch",
        ),
        pytest.param(
            (4, 6),
            {},
            {"validates_after": (6,), "epoch_batches": 7},
            [(4, 6, "")],
            id="one that ends where validation begins is whole",
        ),
        pytest.param((3, 3), {}, {"period_ns": 2 * MAX_NS}, [(3, 3, "")], id="long steps do not end a warm-up"),
        pytest.param(
            (1, 50),
            {"warmup": 0},
            {"period_ns": MAX_NS // 4},
            [(1, 5, "closed after 30 s (trace.max_s)")],
            id="the longest time closes it",
        ),
    ],
)
def test_which_windows_are_recorded_in_forty_batches(
    windows: Any, options: dict[str, Any], training: dict[str, Any], expected: list[tuple[int, int, str]]
) -> None:
    run = Run(parse_windows(windows, 3), **options)
    run.train(40, **training)
    assert spans(run) == expected


def test_a_window_that_is_not_reached_says_so() -> None:
    run = Run(parse_windows((500, 501), 3))
    run.train(10)
    assert run.records[0].problem == "not reached: training ended after 10 optimizer steps (finished)"


def test_no_windows_never_look() -> None:
    run = Run(parse_windows([], 3))
    run.train(50)
    assert (run.looked, run.records) == (0, [])


def test_with_accumulation_all_batches_of_an_optimizer_step_are_traced() -> None:
    run = Run(parse_windows((3, 4), 3), warmup=1)
    run.train(40, batches_per_step=4)
    assert run.traced_batches == list(range(8, 20))
    assert [c for c in run.tracer.calls if c.startswith("start")] == ["start 12"]


def test_a_window_at_the_very_start_opens_without_warm_up() -> None:
    run = Run(parse_windows((0, 1), 3))
    run.train(10)
    assert run.tracer.calls == ["prepare", "start 0", "step 1", "stop"]


def test_a_window_whose_optimizer_step_never_comes_is_given_up() -> None:
    run = Run(parse_windows([(3, 4), (9, 9)], 3))
    run.train(1000, first_step=1, batches_per_step=1000)
    assert len(run.traced_batches) < 200
    assert all("advanced too rarely" in r.problem for r in run.records)
    assert len(run.records) == 2
    assert run.tracer.calls == ["prepare", "discard"]


def test_a_window_that_ends_with_its_epoch_is_closed_there_and_not_after_what_follows() -> None:
    run = Run(parse_windows((4, 5), 3))
    wake = run.controller.begin(0)
    for step in range(6):
        if step >= wake:
            wake = run.controller.at_boundary(step, step, step + 1)
    run.now = 77
    run.controller.interrupt("the epoch ended")
    assert run.tracer.calls[-1] == "stop"
    assert run.records[0].stop_ns == 77
    assert spans(run) == [(4, 5, "")]


def test_a_warm_up_that_validation_falls_into_begins_again_and_the_window_is_not_lost() -> None:
    run = Run(parse_windows([(10, 11), (20, 21), (30, 31)], 3), warmup=3)
    run.train(40, validates_after=(8, 19), epoch_batches=28)
    assert spans(run) == [(10, 11, ""), (20, 21, ""), (30, 31, "")]
    again = ["prepare", "discard", "prepare"]
    assert run.tracer.calls == [
        *(*again, "start 10", "step 11", "stop"),
        *(*again, "start 20", "step 21", "stop"),
        *(*again, "start 30", "step 31", "stop"),
    ]
    assert run.traced_batches == [7, 8, 9, 10, 11, 17, 18, 19, 20, 21, 27, 28, 29, 30, 31]


def test_a_run_that_validates_after_every_step_gets_all_its_windows() -> None:
    run = Run(parse_windows([5, 15], 3), every_n_steps=10)
    run.train(40, validates_after=tuple(range(40)), asked_at={22: "asked"})
    assert [r.start_step for r in run.records] == [5, 10, 15, 20, 24, 30]
    assert {r.problem for r in run.records} == {"closed: validation began"}


def test_a_warm_up_that_leads_nowhere_is_given_up_also_beside_validations() -> None:
    run = Run(parse_windows((3, 4), 3))
    run.train(1000, first_step=1, batches_per_step=1000, validates_after=tuple(range(0, 1000, 10)))
    assert len(run.traced_batches) < 200
    assert ["advanced too rarely" in r.problem for r in run.records] == [True]


def test_a_tracer_that_fails_otherwise_leaves_no_step_marked() -> None:
    class Broken(NotingTracer):
        def stop(self, keep: bool) -> Future[Path] | None:
            raise RuntimeError("another profiler took over")

    run = Run(parse_windows((5, 6), 3), tracer=Broken())
    with pytest.raises(RuntimeError):
        run.train(20)
    assert not run.profiled


def test_training_that_ends_in_the_warm_up_discards_it() -> None:
    run = Run(parse_windows((10, 11), 3))
    run.train(9)
    assert run.tracer.calls == ["prepare", "discard"]
    assert not run.profiled
    assert run.records[0].problem.startswith("not reached")


def test_a_steady_run_gets_one_window_of_its_own() -> None:
    run = Run(None)
    run.train(100, period_ns=100 * MS)
    assert len(run.records) == 1
    start, stop, problem = spans(run)[0]
    assert stop - start == 2
    assert 20 <= start <= 40
    assert problem == ""


@pytest.mark.parametrize("batches", [15, 1900])
def test_a_run_of_less_than_two_seconds_gets_none_by_itself(batches: int) -> None:
    run = Run(None)
    run.train(batches)
    assert run.records == []


def test_a_run_of_two_seconds_gets_one_by_itself() -> None:
    longer = Run(None)
    longer.train(2600, period_ns=MS)
    assert [2000 <= start <= 2510 for start, _, _ in spans(longer)] == [True]
    assert longer.looked < 15


def test_many_optimizer_steps_a_batch_make_no_run_steady() -> None:
    run = Run(None)
    run.train(200, steps_per_batch=40, period_ns=1000 * MS)
    assert [start // 40 >= 20 for start, _, _ in spans(run)] == [True]


def test_short_batches_of_a_long_optimizer_step_are_not_looked_at_either() -> None:
    run = Run(None)
    run.train(5000, batches_per_step=32)
    assert len(run.records) == 1
    assert run.looked < 200


def test_steps_that_become_long_get_a_window_after_two_seconds_all_the_same() -> None:
    run = Run(None)
    wake = run.controller.begin(0)
    for step in range(150):
        run.now += MS if step < 20 else 100 * MS
        if step >= wake or run.controller.is_due:
            wake = run.controller.at_boundary(step, step, run.now)
    assert [2000 <= record.start_ns / MS <= 4500 for record in run.records] == [True]


@pytest.mark.parametrize("first_step", [0, 5000])
def test_a_run_that_never_gets_steady_is_called_so_late_also_after_a_resume(first_step: int) -> None:
    run = Run(None)
    wake = run.controller.begin(first_step)
    for step in range(first_step, first_step + 150):
        run.now += MS << (step - first_step) // 10  # ever slower
        if step >= wake or run.controller.is_due:
            wake = run.controller.at_boundary(step, step, run.now)
    assert [r.start_step for r in run.records] == [first_step + STEADY_AT_THE_LATEST + 2]


def test_at_most_so_many_windows_are_recorded() -> None:
    run = Run(parse_windows([5, 15, 25], 3), max_windows=2)
    run.train(50)
    assert [s for s in spans(run) if not s[2]] == [(5, 7, ""), (15, 17, "")]
    assert "trace.max_windows" in run.records[2].problem


def test_that_there_is_no_budget_for_requests_is_said_once() -> None:
    run = Run((), max_windows=1)
    run.controller.begin(0)
    for step in range(100):
        run.controller.request("requested by start()", by_person=True)
        run.now += MS
        run.controller.at_boundary(step, step, run.now)
    assert [bool(record.problem) for record in run.records] == [False, True]
    assert "trace.max_windows" in run.records[1].problem


def test_a_trace_that_is_too_large_is_the_last(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b"x" * 1_000_001)

    tracer = NotingTracer()
    tracer.file = large
    run = Run(parse_windows([5, 15], 3), tracer=tracer)
    run.train(50)
    assert spans(run)[0] == (5, 7, "")
    assert "trace.max_mb" in run.records[1].problem


def writing_later() -> NotingTracer:
    tracer = NotingTracer()
    tracer.writes_later = True
    return tracer


def test_a_trace_that_is_written_beside_the_steps_is_taken_at_a_boundary_once_it_is_there() -> None:
    run = Run(parse_windows([(5, 6)], 3), tracer=writing_later())
    controller = run.controller
    run.controller.begin(0)
    run.pass_boundaries(range(10))
    assert (run.profiled, run.records, controller.writing) == (False, [], True)
    run.tracer.writing.set_result(run.tracer.file)
    assert (run.noticed_written, run.records) == (1, [])  # noticed on any thread, taken on that of the training
    controller.at_boundary(10, 10, 10 * MS)
    assert (spans(run), controller.writing) == ([(5, 6, "")], False)


def test_a_window_waits_for_the_trace_before_it_to_be_written() -> None:
    run = Run(parse_windows([(5, 6), (12, 13)], 3), tracer=writing_later())
    controller = run.controller
    run.controller.begin(0)
    run.pass_boundaries(range(10))
    assert controller.writing
    first = run.tracer.writing
    threading.Timer(0.05, lambda: first.set_result(run.tracer.file)).start()
    controller.at_boundary(10, 10, 10 * MS)  # where the second begins to warm up
    assert first.done()
    assert run.tracer.calls[-2:] == ["stop", "prepare"]
    assert spans(run) == [(5, 6, "")]


def test_the_end_waits_for_the_trace_to_be_written() -> None:
    run = Run(parse_windows([(5, 50)], 3), tracer=writing_later())
    threading.Timer(0.05, lambda: run.tracer.writing.set_result(run.tracer.file)).start()
    run.train(10)
    assert spans(run) == [(5, 9, "ended early: finished")]


def test_a_trace_that_could_not_be_written_beside_the_steps_says_why() -> None:
    run = Run(parse_windows([(5, 6)], 3), tracer=writing_later())
    controller = run.controller
    run.controller.begin(0)
    run.pass_boundaries(range(10))
    run.tracer.writing.set_exception(OSError(28, "No space left on device"))
    controller.at_boundary(10, 10, 10 * MS)
    assert "No space left on device" in run.records[0].problem


def test_a_large_trace_that_is_written_late_still_closes_the_budget(tmp_path: Path) -> None:
    tracer = writing_later()
    tracer.file = tmp_path / "large.json"
    tracer.file.write_bytes(b"x" * 1_000_001)
    run = Run(parse_windows([(5, 6), (12, 13)], 3), tracer=tracer)
    controller = run.controller
    run.controller.begin(0)
    run.pass_boundaries(range(9))
    tracer.writing.set_result(tracer.file)
    run.pass_boundaries(range(9, 20))
    controller.end("finished", 20)
    assert tracer.calls.count("prepare") == 1
    assert [("trace.max_mb" in r.problem) for r in run.records] == [False, True]


def test_two_optimizers_that_both_step_in_a_batch_do_not_lose_windows() -> None:
    """With manual optimization ``global_step`` rises by two a batch, and passes every other number."""
    run = Run(parse_windows([(20, 25), (41, 41)], 3))
    run.train(40, steps_per_batch=2)
    assert spans(run) == [(20, 24, ""), (42, 42, "")]
    assert [c for c in run.tracer.calls if c.startswith("start")] == ["start 10", "start 21"]


def test_a_window_is_closed_after_its_most_batches() -> None:
    run = Run(parse_windows((3, 9), 3), warmup=0, max_batches=10)
    run.train(100, batches_per_step=8)
    assert spans(run) == [(3, 4, "closed after 10 batches (trace.max_steps)")]
    assert len(run.traced_batches) == 10


def test_a_trace_that_cannot_be_written_is_reported_and_training_goes_on() -> None:
    run = Run(parse_windows([5, 15], 3), tracer=NotingTracer(fail_on_stop=True))
    run.train(50)
    assert "No space left" in run.records[0].problem
    assert not run.profiled


def test_abandoning_stops_an_open_trace() -> None:
    run = Run(parse_windows((5, 50), 3), warmup=0)
    wake = run.controller.begin(0)
    assert wake == 5
    run.controller.at_boundary(5, 5, 1)
    run.controller.abandon()
    assert run.tracer.calls[-1] == "discard"
    assert run.controller.at_boundary(6, 6, 2) == NEVER
