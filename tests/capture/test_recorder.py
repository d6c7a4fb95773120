import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from lightning_gpuprof.capture.recorder import Reading, Recorder, Sampler, SourceUnavailableError, next_due_ns
from lightning_gpuprof.model.journal import Notice, Sample

PATIENCE_S = 30.0
"""How long a test waits for something that must happen; never what it measures."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(PATIENCE_S)
    assert not [thread.name for thread in left if thread.is_alive()]


class Sink:
    """Keeps readings and lets a test wait for them."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self._arrived = threading.Condition()

    def __call__(self, reading: Reading) -> None:
        with self._arrived:
            self.readings.append(reading)
            self._arrived.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(condition, PATIENCE_S)

    def wait_for_samples(self, source: str, count: int) -> None:
        self.wait_for(lambda: len(self.samples(source)) >= count)

    def samples(self, source: str) -> list[Sample]:
        return [each for each in self.readings if isinstance(each, Sample) and each.source == source]

    @property
    def notices(self) -> list[Notice]:
        return [each for each in self.readings if isinstance(each, Notice)]


@contextmanager
def recording(*samplers: Sampler) -> Iterator[Sink]:
    """Where the readings of the samplers go until the end of the context."""
    sink = Sink()
    recorder = Recorder(samplers, sink)
    recorder.start()
    yield sink
    recorder.stop(PATIENCE_S)


class Counting:
    """A well-behaved sampler; subclasses misbehave."""

    def __init__(self, name: str = "counting", interval_s: float = 0.001) -> None:
        self.name = name
        self.interval_s = interval_s
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.closed = threading.Event()

    def open(self) -> None:
        self._called("open")

    def sample(self, t_ns: int) -> Sequence[Reading]:
        self._called("sample")
        return [Sample(source=self.name, subject="x", t_ns=t_ns, values={"calls": float(len(self.calls))})]

    def close(self) -> Sequence[Reading]:
        self._called("close")
        self.closed.set()
        return [Sample(source=f"{self.name}: last", subject="x", t_ns=0, values={})]

    def _called(self, what: str) -> None:
        self.calls.append(what)
        self.threads.add(threading.current_thread())


class FailsToOpen(Counting):
    def open(self) -> None:
        super().open()
        raise OSError("no such library")


class NothingThere(Counting):
    def open(self) -> None:
        raise SourceUnavailableError("there is no such thing here")


class FailsAtThirdSample(Counting):
    def sample(self, t_ns: int) -> Sequence[Reading]:
        readings = super().sample(t_ns)
        if self.calls.count("sample") == 3:
            raise ValueError("three")
        return readings


class FailsToClose(FailsAtThirdSample):
    def close(self) -> Sequence[Reading]:
        super().close()
        raise ValueError("cannot close")


class Hanging(Counting):
    """Its second sample does not come back until it is let go."""

    def __init__(self, name: str = "hanging") -> None:
        super().__init__(name)
        self.hangs = threading.Event()
        self.let_go = threading.Event()

    def sample(self, t_ns: int) -> Sequence[Reading]:
        readings = super().sample(t_ns)
        if self.calls.count("sample") == 2:
            self.hangs.set()
            assert self.let_go.wait(PATIENCE_S)
        return readings


def test_a_sampler_is_opened_sampled_and_closed_in_one_thread_of_its_own() -> None:
    sampler = Counting()
    with recording(sampler) as sink:
        sink.wait_for_samples("counting", 5)
    assert sampler.calls[0] == "open"
    assert sampler.calls[-1] == "close"
    assert set(sampler.calls[1:-1]) == {"sample"}
    assert len(sampler.threads) == 1
    assert threading.current_thread() not in sampler.threads
    assert sink.notices == []


def test_what_close_hands_over_reaches_the_sink() -> None:
    with recording(Counting(interval_s=3600)) as sink:
        sink.wait_for_samples("counting", 1)
    assert len(sink.samples("counting: last")) == 1


def test_a_fit_that_ends_at_once_still_has_one_sample() -> None:
    sink, sampler = Sink(), Counting()
    recorder = Recorder([sampler], sink)
    recorder.ask_to_stop()
    recorder.start()
    recorder.stop(PATIENCE_S)
    assert len(sink.samples("counting")) == 1


def test_samples_carry_the_clock_that_was_passed_in() -> None:
    sink = Sink()
    ticks = iter(range(0, 10**9, 1000))
    recorder = Recorder([Counting(interval_s=1e-9)], sink, now=lambda: next(ticks))
    recorder.start()
    sink.wait_for_samples("counting", 3)
    recorder.stop(PATIENCE_S)
    times = [sample.t_ns for sample in sink.samples("counting")]
    assert times == sorted(set(times))
    assert all(time % 1000 == 0 and time < 10**9 for time in times)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (FailsToOpen("broken"), "switched off after a failure: OSError: no such library"),
        (FailsAtThirdSample("broken"), "switched off after a failure: ValueError: three"),
        (FailsToClose("broken"), "switched off after a failure: ValueError: three"),
        (NothingThere("broken"), "there is no such thing here"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Counting) else "",
)
def test_a_failing_sampler_is_switched_off_with_one_notice_and_others_go_on(broken: Counting, message: str) -> None:
    with recording(broken, Counting("healthy")) as sink:
        sink.wait_for(lambda: bool(sink.notices))
        calls = list(broken.calls)
        sink.wait_for_samples("healthy", len(sink.samples("healthy")) + 5)
    assert sink.notices == [Notice(part="broken", message=message)]
    assert broken.calls == calls
    assert calls[-1] == "close"


def test_a_failure_to_close_is_reported_once() -> None:
    class FailsOnlyToClose(Counting):
        def close(self) -> Sequence[Reading]:
            raise ValueError("cannot close")

    with recording(FailsOnlyToClose()) as sink:
        sink.wait_for_samples("counting", 1)
    assert sink.notices == [Notice(part="counting", message="could not be closed: ValueError: cannot close")]


def test_a_hanging_sampler_hurts_only_itself() -> None:
    sink, hanging = Sink(), Hanging()
    recorder = Recorder([hanging, Counting("healthy")], sink)
    recorder.start()
    assert hanging.hangs.wait(PATIENCE_S)
    sink.wait_for_samples("healthy", len(sink.samples("healthy")) + 5)
    recorder.stop(timeout_s=1.0)
    after_stop = list(sink.readings)
    assert [notice.part for notice in sink.notices] == ["hanging"]
    assert "no answer for" in sink.notices[0].message

    hanging.let_go.set()
    (thread,) = hanging.threads
    thread.join(PATIENCE_S)
    assert hanging.calls[-1] == "close"
    assert sink.readings == after_stop


def test_a_thread_that_is_left_behind_does_not_keep_the_interpreter_alive() -> None:
    hanging = Hanging()
    recorder = Recorder([hanging], Sink())
    recorder.start()
    assert hanging.hangs.wait(PATIENCE_S)
    (thread,) = hanging.threads
    assert thread.daemon
    hanging.let_go.set()
    recorder.stop(PATIENCE_S)


def test_a_failing_sink_is_not_felt_by_the_caller() -> None:
    def broken(reading: Reading) -> None:
        raise OSError("disk full")

    sampler = Counting()
    recorder = Recorder([sampler], broken)
    recorder.start()
    assert sampler.closed.wait(PATIENCE_S)
    recorder.stop(PATIENCE_S)
    assert sampler.calls == ["open", "sample", "close"]


def test_a_hanging_sink_does_not_hold_up_stop() -> None:
    entered, let_go = threading.Event(), threading.Event()

    def stuck(reading: Reading) -> None:
        entered.set()
        assert let_go.wait(PATIENCE_S)

    recorder = Recorder([Counting()], stuck)
    recorder.start()
    assert entered.wait(PATIENCE_S)
    recorder.stop(timeout_s=0.01)
    let_go.set()


def test_the_sink_is_never_called_twice_at_once() -> None:
    inside = threading.Lock()
    overlaps: list[Reading] = []
    sink = Sink()

    def one_at_a_time(reading: Reading) -> None:
        if not inside.acquire(blocking=False):
            overlaps.append(reading)
            return
        threading.Event().wait(0.0005)
        inside.release()
        sink(reading)

    recorder = Recorder([Counting(f"sampler{n}", 0.0001) for n in range(4)], one_at_a_time)
    recorder.start()
    for n in range(4):
        sink.wait_for_samples(f"sampler{n}", 10)
    recorder.stop(PATIENCE_S)
    assert overlaps == []


def test_stop_without_start_and_twice_is_harmless() -> None:
    sampler = Counting()
    never_started = Recorder([sampler], Sink())
    never_started.stop()
    assert sampler.calls == []

    sink = Sink()
    recorder = Recorder([sampler], sink)
    recorder.start()
    recorder.start()
    sink.wait_for_samples("counting", 1)
    recorder.stop(PATIENCE_S)
    recorder.stop(PATIENCE_S)
    assert sampler.calls.count("open") == 1
    assert sampler.calls.count("close") == 1


def test_the_cpu_time_of_each_sampler_is_its_own() -> None:
    class Busy(Counting):
        def sample(self, t_ns: int) -> Sequence[Reading]:
            for _ in range(200_000):
                pass
            return super().sample(t_ns)

    sink = Sink()
    recorder = Recorder([Busy("busy"), Counting("idle", interval_s=3600)], sink)
    recorder.start()
    sink.wait_for_samples("busy", 5)
    sink.wait_for_samples("idle", 1)
    recorder.stop(PATIENCE_S)
    busy_s, idle_s = (worker.cpu_ns / 1e9 for worker in recorder._workers)
    assert busy_s > idle_s > 0
    assert recorder.cpu_s == pytest.approx(busy_s + idle_s)


def test_a_sampler_may_vary_its_interval() -> None:
    class Varying(Counting):
        def sample(self, t_ns: int) -> Sequence[Reading]:
            readings = super().sample(t_ns)
            self.interval_s = 0.001 if self.calls.count("sample") < 3 else 3600
            return readings

    sampler = Varying(interval_s=3600)
    with recording(sampler) as sink:
        sink.wait_for_samples("counting", 3)
    assert sampler.calls.count("sample") == 3


def test_slow_readings_do_not_make_the_schedule_drift() -> None:
    interval_ns, reading_ns = 1000, 300
    due_ns = now_ns = 0
    for _ in range(100):
        now_ns += reading_ns
        due_ns = next_due_ns(due_ns, interval_ns, now_ns)
        now_ns = due_ns
    assert due_ns == 100 * interval_ns


@pytest.mark.parametrize("late_ns", [0, 1, 999, 1000, 1001, 123_456])
def test_missed_ticks_are_left_out_and_the_grid_is_kept(late_ns: int) -> None:
    due_ns = next_due_ns(5000, 1000, 5000 + late_ns)
    assert due_ns % 1000 == 0
    assert 5000 + late_ns < due_ns <= 5000 + late_ns + 1000


def test_a_reading_before_its_time_waits_for_the_next_tick() -> None:
    assert next_due_ns(5000, 1000, 4990) == 6000
