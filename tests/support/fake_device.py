"""A device for tests: it runs when the test says so, and writes down all that it is asked."""

import threading
import time
from collections import Counter
from dataclasses import dataclass

US = 1_000


@dataclass(eq=False)
class FakeEvent:
    device: "FakeDevice"
    recorded: int = 0
    """How often."""
    at_ns: int | None = None
    """When the device passed it; None while it is queued."""
    stream: int = 0

    def record(self) -> None:
        self.device.record(self)

    def query(self) -> bool:
        return self.device.is_done(self)

    def elapsed_time(self, end: "FakeEvent") -> float:
        return self.device.elapsed_ns(self, end) / 1e6


class FakeDevice:
    """A device with streams that pass their events at the word of the test; whatever would wait or be wrong, raises."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.clock_ns = 0
        self.stream = 0
        self.queues: dict[int, list[FakeEvent]] = {}
        self.capturing = False
        self.captured = 0
        self.broken = ""

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        self.threads.add(threading.get_ident())
        if self.broken == name:
            raise RuntimeError(f"device lost in {name}")

    def new_event(self) -> FakeEvent:
        self._called("new_event")
        return FakeEvent(self)

    def record(self, event: FakeEvent) -> None:
        self._called("record")
        if self.capturing:
            self.captured += 1
        for queue in self.queues.values():  # recorded anew: its old place does not count any more
            if event in queue:
                queue.remove(event)
        event.recorded += 1
        event.at_ns = None
        event.stream = self.stream
        self.queues.setdefault(self.stream, []).append(event)

    def is_done(self, event: FakeEvent) -> bool:
        self._called("is_done")
        if self.capturing:
            raise AssertionError("a query while capturing breaks the capture")
        return not event.recorded or event.at_ns is not None  # as torch answers for one that was never recorded

    def elapsed_ns(self, first: FakeEvent, second: FakeEvent) -> int:
        self._called("elapsed_ns")
        if first.at_ns is None or second.at_ns is None:
            raise AssertionError("time between events that are not done")
        return second.at_ns - first.at_ns

    def is_capturing(self) -> bool:
        self.calls["is_capturing"] += 1
        return self.capturing

    def synchronize(self) -> None:
        raise AssertionError("the profiler waited for the device")

    def pass_events(self, most: int | None = None, *, stream: int = 0, each_ns: int = 10 * US) -> None:
        """The device gets on: the next events are passed, one every ``each_ns``."""
        queue = self.queues.get(stream, [])
        for event in queue[:most]:
            self.clock_ns += each_ns
            event.at_ns = self.clock_ns
        del queue[:most]


class LaggingDevice(FakeDevice):
    """Passes each event a fixed time after it was recorded, as a device does that is kept a little behind the host."""

    def __init__(self, lag_ns: int) -> None:
        super().__init__()
        self.lag_ns = lag_ns

    def record(self, event: FakeEvent) -> None:
        self._called("record")
        event.recorded += 1
        event.at_ns = time.perf_counter_ns() + self.lag_ns

    def is_done(self, event: FakeEvent) -> bool:
        self._called("is_done")
        return event.at_ns is None or event.at_ns <= time.perf_counter_ns()
