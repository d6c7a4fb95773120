"""The clock on a fake time: every nanosecond goes to exactly one slot."""

import itertools

import pytest

from lightning_gpuprof.capture.step_clock import (
    CPU_SAMPLES_AT_FIRST,
    CPU_SAMPLES_PER_AGE,
    NEVER,
    NULL_CONTEXT,
    ClosedSegment,
    ClosedStep,
    StepClock,
)
from lightning_gpuprof.model.journal import CPU_SAMPLED, FIRST_OF_EPOCH, LAST_OF_EPOCH, PROFILED


class FakeTime:
    """A clock that only moves when the test says so."""

    def __init__(self) -> None:
        self.wall = 1000
        self.cpu = 0

    def spend(self, wall: int, cpu: int | None = None) -> None:
        self.wall += wall
        self.cpu += wall if cpu is None else cpu

    def clock(self, cpu_every_ns: int = NEVER) -> StepClock:
        clock = StepClock(now=lambda: self.wall, cpu_now=lambda: self.cpu, cpu_every_ns=cpu_every_ns)
        clock.begin_training(-1, 0)
        return clock


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def clock(time: FakeTime) -> StepClock:
    return time.clock()


def drain(clock: StepClock) -> list[ClosedStep | ClosedSegment]:
    taken = list(clock.closed)
    clock.closed.clear()
    return taken


def drained_steps(clock: StepClock) -> list[ClosedStep]:
    return [piece for piece in drain(clock) if isinstance(piece, ClosedStep)]


def test_nested_contexts_are_charged_exclusively(time: FakeTime, clock: StepClock) -> None:
    outer = clock.context(clock.slot("outer", "optimizer"))
    inner = clock.context(clock.slot("inner", "forward"))
    clock.begin_step()
    with outer:
        time.spend(5)
        with inner:
            time.spend(7)
            with inner:  # the same action within itself
                time.spend(2)
        time.spend(3)
    time.spend(1)
    clock.begin_step()
    setup, step = drain(clock)
    assert isinstance(setup, ClosedSegment)
    assert isinstance(step, ClosedStep)
    assert step.charged[clock.slot("outer", "optimizer")] == 8
    assert step.charged[clock.slot("inner", "forward")] == 9
    assert step.charged[clock.loop_slot] == 1
    assert sum(step.charged) == step.end_ns - step.start_ns == 18


def test_segments_and_steps_follow_each_other_without_a_hole(time: FakeTime, clock: StepClock) -> None:
    time.spend(11)
    clock.begin_epoch(0, clock.counters()[0])
    for _ in range(3):
        clock.begin_step()
        time.spend(4)
    clock.end_epoch()
    time.spend(6)
    clock.begin_epoch(1, clock.counters()[0])
    clock.begin_step()
    time.spend(2)
    clock.end_epoch()
    clock.open_segment("teardown")
    time.spend(9)
    clock.open_segment(None)
    pieces = drain(clock)
    assert [p.kind if isinstance(p, ClosedSegment) else "step" for p in pieces] == [
        "setup",
        "step",
        "step",
        "step",
        "epoch_gap",
        "step",
        "epoch_gap",
        "teardown",
    ]
    assert pieces[0].start_ns == 1000
    assert pieces[-1].end_ns == time.wall
    for before, after in itertools.pairwise(pieces):
        assert before.end_ns == after.start_ns
    for piece in pieces:
        assert sum(piece.charged) == piece.end_ns - piece.start_ns
    steps = [p for p in pieces if isinstance(p, ClosedStep)]
    assert [s.batch for s in steps] == [0, 1, 2, 3]
    assert [s.epoch for s in steps] == [0, 0, 0, 1]
    assert [s.flags & ~CPU_SAMPLED for s in steps] == [FIRST_OF_EPOCH, 0, LAST_OF_EPOCH, FIRST_OF_EPOCH | LAST_OF_EPOCH]


def test_a_fetch_without_a_batch_is_no_step(time: FakeTime, clock: StepClock) -> None:
    clock.begin_step()
    time.spend(4)
    clock.begin_step()
    time.spend(3)
    clock.cancel_step()
    clock.end_epoch()
    clock.open_segment(None)
    _, step, gap = drain(clock)
    assert isinstance(step, ClosedStep)
    assert isinstance(gap, ClosedSegment)
    assert (gap.kind, gap.end_ns - gap.start_ns) == ("epoch_gap", 3)
    assert clock.counters() == (0, 0)


def test_time_after_an_action_can_be_given_a_name(time: FakeTime, clock: StepClock) -> None:
    tail = clock.slot("after logging", "logging")
    end = clock.context(clock.slot("hook", "callbacks"), then=tail)
    clock.begin_step()
    with end:
        time.spend(2)
    time.spend(5)
    clock.begin_step()
    step = drain(clock)[1]
    assert step.charged[tail] == 5
    assert step.charged[clock.slot("hook", "callbacks")] == 2


def test_a_marker_names_the_time_that_follows_and_has_no_inside(time: FakeTime, clock: StepClock) -> None:
    tail = clock.slot("after logging", "logging")
    mark = clock.mark(tail)
    clock.begin_step()
    time.spend(1)
    with mark:
        time.spend(2)
    time.spend(3)
    clock.begin_step()
    step = drain(clock)[1]
    assert step.charged[clock.loop_slot] == 1
    assert step.charged[tail] == 5


def test_optimizer_steps_are_counted_where_they_end_and_resumed_counters_go_on(
    time: FakeTime, clock: StepClock
) -> None:
    update = clock.context(clock.slot("update", "optimizer"), counts=True)
    clock.begin_training(9, 40)
    for stepping in (True, False, True):
        clock.begin_step()
        if stepping:
            with update:
                time.spend(1)
    clock.begin_step()
    steps = drained_steps(clock)
    assert [s.batch for s in steps] == [10, 11, 12]
    assert [s.global_step for s in steps] == [40, 41, 41]
    assert clock.counters() == (13, 42)


def test_cpu_time_is_read_in_sampled_steps_only() -> None:
    time = FakeTime()
    clock = time.clock(cpu_every_ns=100)
    slot = clock.slot("forward", "forward")
    plain, sampled = clock.context(slot), clock.context(slot, cpu=True)
    modes: list[bool] = []
    clock.set_cpu_mode_listener(modes.append)
    for _ in range(4):
        clock.begin_step()
        with sampled if modes and modes[-1] else plain:
            time.spend(60, cpu=20)
    clock.begin_step()
    steps = drained_steps(clock)
    assert [bool(s.flags & CPU_SAMPLED) for s in steps] == [True, False, True, False]
    for step in steps:
        assert step.charged[slot] == 60
        assert (step.cpu_charged is not None) == bool(step.flags & CPU_SAMPLED)
        if step.cpu_charged is not None:
            assert step.cpu_charged[slot] == 20
    assert modes == [True, False, True, False, True]
    rows = [step.cpu_charged for step in steps]
    clock.end_epoch()
    time.spend(500, cpu=500)
    with plain:
        time.spend(1)
    clock.open_segment(None)
    assert modes[-1] is False
    assert [step.cpu_charged for step in steps] == rows


@pytest.mark.parametrize(("step", "after_setup"), [(20, 0), (20, 100_000), (40, 0), (110, 0)])
def test_only_short_steps_are_sampled_less_often_after_the_first(step: int, after_setup: int) -> None:
    """Of long ones each or every third: where gradients are accumulated, these must not become always the same."""
    time = FakeTime()
    clock = time.clock(cpu_every_ns=100)
    time.spend(after_setup)
    for _ in range(1000):
        clock.begin_step()
        time.spend(step)
    batches = [one.batch for one in drained_steps(clock) if one.flags & CPU_SAMPLED]
    apart = -(-100 // step)
    assert batches[:CPU_SAMPLES_AT_FIRST] == [apart * number for number in range(CPU_SAMPLES_AT_FIRST)]
    later = 20 if step == 20 else apart
    assert {after - before for before, after in itertools.pairwise(batches[CPU_SAMPLES_AT_FIRST:])} == {later}


def test_in_a_long_run_cpu_time_is_read_less_often() -> None:
    time = FakeTime()
    clock = time.clock(cpu_every_ns=100)
    for _ in range(60):
        clock.begin_step()
        time.spend(100_000)
    early = sum(bool(step.flags & CPU_SAMPLED) and step.start_ns < 1_000_000 for step in drained_steps(clock))
    time.wall += 100_000_000 * CPU_SAMPLES_PER_AGE
    for _ in range(60):
        clock.begin_step()
        time.spend(100_000)
    late = sum(bool(step.flags & CPU_SAMPLED) for step in drained_steps(clock))
    assert early == 10
    assert late <= 2 < early


def test_a_step_that_an_exception_cut_off_is_no_step(time: FakeTime, clock: StepClock) -> None:
    clock.begin_epoch(0, -1)
    clock.begin_step()
    time.spend(4)
    clock.begin_step()
    time.spend(900)
    clock.abort_step()
    clock.end_epoch()
    clock.open_segment(None)
    _, step, rest = drain(clock)
    assert isinstance(step, ClosedStep)
    assert isinstance(rest, ClosedSegment)
    assert (rest.kind, rest.end_ns - rest.start_ns) == ("teardown", 900)
    assert clock.counters()[0] == 0


def test_the_listener_is_called_only_from_the_step_it_asked_for_and_its_time_is_ours(
    time: FakeTime, clock: StepClock
) -> None:
    update = clock.context(clock.slot("update", "optimizer"), counts=True)
    calls: list[tuple[int, int]] = []

    def listener(batch: int, global_step: int, now_ns: int) -> int:
        calls.append((batch, global_step))
        time.spend(50)
        return global_step + 3

    clock.listen(listener, 2)
    for _ in range(7):
        clock.begin_step()
        with update:
            time.spend(1)
    clock.begin_step()
    assert calls == [(2, 2), (5, 5)]
    steps = drained_steps(clock)
    assert [s.charged[clock.own_slot] for s in steps] == [0, 0, 50, 0, 0, 50, 0]
    assert all(sum(s.charged) == s.end_ns - s.start_ns for s in steps)


def test_profiled_steps_are_those_that_begin_or_end_under_a_window(time: FakeTime, clock: StepClock) -> None:

    def listener(batch: int, global_step: int, now_ns: int) -> int:
        if batch == 1:
            clock.set_standing_flags(PROFILED)
        if batch == 3:
            clock.set_standing_flags(0)
        return 0

    clock.listen(listener, 0)
    for _ in range(6):
        clock.begin_step()
        time.spend(1)
    profiled = [bool(s.flags & PROFILED) for s in drained_steps(clock)]
    # Step 3 begins by stopping the trace, which costs it time.
    assert profiled == [False, True, True, True, False]


def test_a_level_left_open_by_an_exception_does_not_spoil_the_next_step(time: FakeTime, clock: StepClock) -> None:
    lost = clock.context(clock.slot("manual optimizer", "optimizer"))
    clock.begin_epoch(0, clock.counters()[0])
    clock.begin_step()
    lost.__enter__()
    time.spend(3)
    clock.begin_step()
    time.spend(4)
    clock.begin_step()
    steps = drained_steps(clock)
    assert steps[0].charged[clock.slot("manual optimizer", "optimizer")] == 3
    assert steps[1].charged[clock.loop_slot] == 4


def test_a_slot_made_within_a_step_has_its_place_at_once(time: FakeTime, clock: StepClock) -> None:
    clock.begin_step()
    late = clock.slot("late", "forward")
    with clock.context(late):
        time.spend(2)
    clock.begin_step()
    assert drain(clock)[1].charged[late] == 2
    assert clock.slot("late", "forward") == late
    assert [s.id for s in clock.slots] == list(range(len(clock.slots)))


def test_the_null_context_lets_exceptions_through() -> None:
    with pytest.raises(KeyError), NULL_CONTEXT:
        raise KeyError("x")


def test_steps_of_a_trial_before_training_belong_to_the_setup() -> None:
    time = FakeTime()
    clock = StepClock(now=lambda: time.wall, cpu_now=lambda: time.cpu)
    clock.begin_epoch(0, clock.counters()[0])
    for _ in range(3):
        clock.begin_step()
        time.spend(5)
    clock.cancel_step()
    clock.end_epoch()
    clock.begin_training(-1, 0)
    clock.begin_step()
    time.spend(2)
    clock.open_segment("teardown")
    clock.begin_step()
    clock.open_segment(None)
    setup, step, _ = drain(clock)
    assert (setup.end_ns - setup.start_ns, step.end_ns - step.start_ns) == (15, 2)


def test_measuring_the_cost_of_an_edge_charges_nothing() -> None:
    clock = StepClock()
    assert clock.measure_edge_ns(rounds=10) > 0
    assert not clock.closed
