"""The window controller with a tracer that only writes down what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuprof.capture.step_clock import NEVER
from lightning_gpuprof.capture.windows import MAX_WINDOW_NS, WindowController
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import PlannedWindow, parse_windows
from lightning_gpuprof.model.journal import WindowRecord

MS = 1_000_000


class NotingTracer:
    """Notes calls; can be told to fail."""

    def __init__(self, fail_on_stop: bool = False) -> None:
        self.calls: list[str] = []
        self.fail_on_stop = fail_on_stop

    def prepare(self) -> None:
        self.calls.append("prepare")

    def start(self, batch: int) -> None:
        self.calls.append(f"start {batch}")

    def next_step(self, batch: int) -> None:
        self.calls.append(f"step {batch}")

    def end_step(self) -> None:
        self.calls.append("end step")

    def stop(self, keep: bool) -> Path | None:
        self.calls.append("stop" if keep else "discard")
        if self.fail_on_stop and keep:
            raise OSError(28, "No space left on device")
        return Path(__file__) if keep else None


class Run:
    """Training steps with one optimizer step per ``batches_per_step`` batches, each a period of 1 ms."""

    def __init__(
        self,
        planned: tuple[PlannedWindow, ...] | None,
        *,
        warmup: int = 2,
        max_windows: int = 10,
        every_n_steps: int | None = None,
        tracer: NotingTracer | None = None,
    ) -> None:
        self.tracer = tracer or NotingTracer()
        self.records: list[WindowRecord] = []
        self.profiled = False
        self.traced_batches: list[int] = []
        self.now = 0
        self.looked = 0
        self.controller = WindowController(
            planned,
            active=3,
            every_n_steps=every_n_steps,
            warmup=warmup,
            max_windows=max_windows,
            max_bytes=1_000_000,
            tracer=self.tracer,
            on_window=lambda record, path: self.records.append(record),
            on_profiled=self._set_profiled,
            now=lambda: self.now,
        )

    def _set_profiled(self, on: bool) -> None:
        self.profiled = on

    def train(self, batches: int, *, first_step: int = 0, batches_per_step: int = 1, period_ns: int = MS) -> None:
        wake = self.controller.begin(first_step)
        for batch in range(batches):
            step = first_step + batch // batches_per_step
            self.now += period_ns
            if step >= wake:
                self.looked += 1
                wake = self.controller.at_boundary(batch, step, self.now)
            if self.profiled:
                self.traced_batches.append(batch)
        self.controller.end("finished", first_step + batches // batches_per_step)


def spans(run: Run) -> list[tuple[int, int, str]]:
    return [(r.start_step, r.stop_step, r.problem) for r in run.records]


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


def test_a_single_number_opens_a_window_of_the_active_length() -> None:
    run = Run(parse_windows(5, 3))
    run.train(30)
    assert spans(run) == [(5, 7, "")]


def test_lists_open_several_windows_in_order() -> None:
    run = Run(parse_windows([20, (5, 6)], 3))
    run.train(40)
    assert spans(run) == [(5, 6, ""), (20, 22, "")]


def test_windows_next_to_each_other_both_open() -> None:
    run = Run(parse_windows([(5, 6), (7, 8)], 3))
    run.train(20)
    assert spans(run) == [(5, 6, ""), (7, 8, "")]


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


def test_resuming_forgets_windows_that_were_passed() -> None:
    run = Run(parse_windows([5, 100], 3))
    run.train(60, first_step=50)
    assert spans(run) == [(100, 102, "")]


def test_a_window_that_is_not_reached_is_told() -> None:
    unreached = Run(parse_windows((500, 501), 3))
    unreached.train(10)
    assert unreached.records[0].problem == "not reached: training ended after 10 optimizer steps (finished)"


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
    run.controller.at_epoch_end()
    assert run.tracer.calls[-1] == "stop"
    assert run.records[0].stop_ns == 77
    halfway = Run(parse_windows((4, 9), 3))
    wake = halfway.controller.begin(0)
    for step in range(6):
        if step >= wake:
            wake = halfway.controller.at_boundary(step, step, step + 1)
    halfway.controller.at_epoch_end()
    assert halfway.tracer.calls[-1] == "end step"


def test_a_tracer_that_fails_otherwise_leaves_no_step_marked() -> None:
    class Broken(NotingTracer):
        def stop(self, keep: bool) -> Path | None:
            raise RuntimeError("another profiler took over")

    run = Run(parse_windows((5, 6), 3), tracer=Broken())
    with pytest.raises(RuntimeError):
        run.train(20)
    assert not run.profiled


def test_training_that_ends_inside_a_window_keeps_it_and_says_so() -> None:
    run = Run(parse_windows((5, 50), 3))
    run.train(10)
    assert run.tracer.calls[-1] == "stop"
    assert run.records[0].problem == "ended early: finished"


def test_training_that_ends_in_the_warm_up_discards_it() -> None:
    run = Run(parse_windows((10, 11), 3))
    run.train(9)
    assert run.tracer.calls == ["prepare", "discard"]
    assert not run.profiled
    assert run.records[0].problem.startswith("not reached")


def test_a_steady_run_gets_one_window_of_its_own() -> None:
    run = Run(None)
    run.train(100)
    assert len(run.records) == 1
    start, stop, problem = spans(run)[0]
    assert stop - start == 2
    assert 20 <= start <= 40
    assert problem == ""


def test_a_run_too_short_to_be_steady_gets_none() -> None:
    run = Run(None)
    run.train(15)
    assert run.records == []


def test_at_most_so_many_windows_are_recorded() -> None:
    run = Run(parse_windows([5, 15, 25], 3), max_windows=2)
    run.train(50)
    assert [s for s in spans(run) if not s[2]] == [(5, 7, ""), (15, 17, "")]
    assert "trace.max_windows" in run.records[2].problem


def test_a_trace_that_is_too_large_is_the_last(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b"x" * 1_000_001)

    class LargeTracer(NotingTracer):
        def stop(self, keep: bool) -> Path | None:
            super().stop(keep)
            return large

    run = Run(parse_windows([5, 15], 3), tracer=LargeTracer())
    run.train(50)
    assert spans(run)[0] == (5, 7, "")
    assert "trace.max_mb" in run.records[1].problem


def test_windows_come_at_every_multiple_and_no_unreached_one_is_told() -> None:
    run = Run(parse_windows([], 3), every_n_steps=20)
    run.train(75)
    assert spans(run) == [(20, 22, ""), (40, 42, ""), (60, 62, "")]


def test_a_multiple_at_a_window_of_its_own_is_left_out() -> None:
    run = Run(parse_windows([(41, 45)], 3), every_n_steps=20)
    run.train(75)
    assert spans(run) == [(20, 22, ""), (41, 45, ""), (60, 62, "")]


def test_multiples_go_on_beside_the_window_of_a_steady_run() -> None:
    run = Run(None, every_n_steps=30)
    run.train(100)
    starts = [r.start_step for r in run.records]
    assert 20 <= starts[0] < 28
    assert starts[1:] == [30, 60, 90]
    assert all(r.problem == "" for r in run.records)


def test_resuming_goes_on_with_the_next_multiple() -> None:
    run = Run(parse_windows([], 3), every_n_steps=20)
    run.train(20, first_step=55)
    assert spans(run) == [(60, 62, "")]


def test_a_window_is_closed_after_its_longest_time() -> None:
    run = Run(parse_windows((1, 50), 3), warmup=0)
    run.train(20, period_ns=MAX_WINDOW_NS // 4)
    assert run.records[0].problem == "closed after 30 s"


def test_a_trace_that_cannot_be_written_is_told_and_training_goes_on() -> None:
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


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (-1, "windows must be optimizer steps of at least 0"),
        ((5, 3), "windows must have a stop not before its start"),
        ([5, (6, 9)], "windows must not overlap"),
        ((1, 2, 3), "windows must have a start and a stop"),
        (["x"], "windows must be optimizer steps"),
        (True, "windows must be optimizer steps"),
    ],
)
def test_windows_that_cannot_work_are_refused(windows: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_windows(windows, 3)  # type: ignore[arg-type]
