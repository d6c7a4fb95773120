import gc
import itertools
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lightning_gpuprof.capture.host.gc_pauses import GcPauses, GcSampler, Pause
from lightning_gpuprof.model.journal import Sample


@pytest.fixture(autouse=True)
def no_other_collections() -> Iterator[None]:
    before = list(gc.callbacks)
    gc.disable()
    yield
    gc.enable()
    assert gc.callbacks == before


def collect(callbacks: list[Any], generation: int) -> None:
    """What the collector does in a collection."""
    info = {"generation": generation, "collected": 0, "uncollectable": 0}
    for phase in ("start", "stop"):
        for callback in callbacks:
            callback(phase, info)


def ticking(step: int = 1) -> Any:
    return itertools.count(0, step).__next__


def test_each_collection_has_its_start_length_and_generation() -> None:
    callbacks: list[Any] = []
    pauses = GcPauses(callbacks, ticking(10))
    pauses.begin()
    collect(callbacks, 0)
    collect(callbacks, 2)
    # Each call reads the clock twice.
    assert pauses.take() == [
        Pause(start_ns=0, duration_ns=20, generation=0),
        Pause(start_ns=40, duration_ns=20, generation=2),
    ]
    assert pauses.take() == []


def test_a_collection_that_is_under_way_is_reported_when_it_has_ended() -> None:
    callbacks: list[Any] = []
    pauses = GcPauses(callbacks, ticking())
    pauses.begin()
    collect(callbacks, 1)
    for callback in callbacks:
        callback("start", {"generation": 2})
    assert [pause.generation for pause in pauses.take()] == [1]
    for callback in callbacks:
        callback("stop", {"generation": 2})
    assert pauses.take() == [Pause(start_ns=4, duration_ns=2, generation=2)]


def test_nothing_grows_and_what_is_left_is_the_newest() -> None:
    callbacks: list[Any] = []
    pauses = GcPauses(callbacks, ticking(), most_marks=23)
    pauses.begin()
    for number in range(100):
        collect(callbacks, number % 3)
    found = pauses.take()
    assert [pause.start_ns for pause in found] == [384, 388, 392, 396]
    assert {pause.duration_ns for pause in found} == {2}


def test_callbacks_of_others_stay_and_the_end_may_come_twice() -> None:
    def theirs(phase: str, info: dict[str, int]) -> None: ...

    callbacks: list[Any] = [theirs]
    first, second = GcPauses(callbacks), GcPauses(callbacks)
    first.begin()
    second.begin()
    first.end()
    assert callbacks[0] is theirs
    assert len(callbacks) == 3
    callbacks.clear()  # somebody takes out all
    callbacks.append(theirs)
    second.end()
    second.end()
    assert callbacks == [theirs]


def test_a_real_collection_is_noted() -> None:
    pauses = GcPauses()
    pauses.begin()
    before_ns = time.perf_counter_ns()
    gc.collect()
    gc.collect(0)
    after_ns = time.perf_counter_ns()
    pauses.end()
    gc.collect()
    found = pauses.take()
    assert [pause.generation for pause in found] == [2, 0]
    assert all(before_ns <= p.start_ns <= p.start_ns + p.duration_ns <= after_ns for p in found)


def test_collections_in_the_midst_of_a_look_do_no_harm() -> None:
    before = gc.get_threshold()
    pauses = GcPauses(most_marks=64)
    pauses.begin()
    gc.enable()
    gc.set_threshold(1)  # nearly every container that is made sets one off
    try:
        found = [pause for _ in range(300) for pause in pauses.take()]
    finally:
        gc.set_threshold(*before)
        pauses.end()
    assert found
    assert all(pause.duration_ns >= 0 and pause.generation in (0, 1, 2) for pause in found)


def test_ctrl_c_during_a_collection_comes_through() -> None:
    gc.freeze()  # what other tests left would make a collection take a second
    others = gc.callbacks[:]
    gc.callbacks.clear()  # one of hypothesis would swallow what is raised in it
    many = [[number] for number in range(300_000)]
    pauses = GcPauses()
    pauses.begin()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = 0
    try:
        for _ in range(5):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)  # the interpreter is inside the first collection then
                for _ in range(20):
                    gc.collect()
                time.sleep(1)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        pauses.end()
        gc.callbacks[:] = others
    assert interrupted == 5
    assert many


# Samples ------------------------------------------------------------------------------------------------------------


class Collector:
    """A collector with a clock that the test sets, and a count of its own."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.now_ns = 0
        self.count = 100
        self.sampler = GcSampler(
            pauses=GcPauses(self.callbacks, lambda: self.now_ns), collections=lambda: [self.count, 0, 0]
        )
        self.sampler.open()
        self.sampler.sample(0)

    def pause(self, start_ns: int, duration_ns: int, generation: int) -> None:
        self.count += 1
        info = {"generation": generation}
        for phase, at_ns in (("start", start_ns), ("stop", start_ns + duration_ns)):
            self.now_ns = at_ns
            for callback in self.callbacks:
                callback(phase, info)

    def sample(self, t_ns: int) -> list[Sample]:
        return [reading for reading in self.sampler.sample(t_ns) if isinstance(reading, Sample)]


@pytest.fixture
def collector() -> Collector:
    return Collector()


def test_a_sample_sums_the_pauses_by_generation(collector: Collector) -> None:
    for start in range(3):
        collector.pause(start, 1_000_000, 0)
    collector.pause(10, 4_000_000, 2)
    (sample,) = collector.sample(10**9)
    assert (sample.subject, sample.t_ns) == ("gc", 10**9)
    assert sample.values == {
        "pause_ratio": 0.007,
        "longest_s": 0.004,
        "gen0_count": 3,
        "gen0_pause_s": 0.003,
        "gen0_longest_s": 0.001,
        "gen2_count": 1,
        "gen2_pause_s": 0.004,
        "gen2_longest_s": 0.004,
    }


def test_long_pauses_are_reported_one_by_one_at_their_start_the_longest_of_many(collector: Collector) -> None:
    for number in range(10):
        collector.pause(number * 10**8, (5 + number) * 10**6, 2)
    _, *long = collector.sample(10**9)
    assert [(sample.subject, sample.t_ns, sample.values) for sample in long] == [
        ("gc_pause", number * 10**8, {"pause_s": (5 + number) / 1e3, "generation": 2}) for number in (9, 8, 7, 6)
    ]


def test_collections_that_were_not_noted_are_counted(collector: Collector) -> None:
    collector.pause(0, 10, 0)
    collector.count += 50
    (sample,) = collector.sample(10**9)
    assert sample.values["lost_count"] == 50


def test_an_interval_without_collections_is_a_measured_nothing() -> None:
    (sample,) = Collector().sample(10**9)
    assert sample.values == {"pause_ratio": 0, "longest_s": 0}


def test_the_end_takes_the_callbacks_out(collector: Collector) -> None:
    assert collector.sampler.close() == ()
    assert collector.callbacks == []
