"""Samples the input pipeline: the workers' slots and the lengths of the queues.

=====================  ============================================================================================
subject                values
=====================  ============================================================================================
``loader0.worker1``    a worker; ``loader0.process`` if batches are made in the main process. All since the start:
                       of all batches ``batches_count``, ``made_sum_s``, ``idle_sum_s``, ``idle_count`` (waits for
                       work); of those measured in detail, among which costly ones are too many: ``measured_count``,
                       ``items_count``, ``item_sum_s``, ``item_p95_s``, ``item_max_s``, ``collate_sum_s``,
                       ``collate_max_s``, ``own_s`` (our cost)
``loader0.queue``      now: ``depth_count`` (finished batches that wait), ``unpinned_count`` (of these, not in pinned
                       memory yet); and what is fixed: ``workers_count``, ``capacity_count``, ``batch_size_count``
``loader0.order:Shuffled (train.py:12)``
                       who gives the indices of each batch, in the main process, since the start:
                       ``calls_count``, ``sum_s``, ``max_s``, and ``median_s`` of the newest thousand
``loader0.padding:input_ids``
                       the few batches inspected: ``looks_count``; their rows of tokens ``rows_count``; over these, with
                       padding ``cells_count``, without ``real_count``, if each batch ended with its longest row
                       ``to_longest_count``; ``width_min_count`` and ``width_max_count`` of a row
``loader0.shapes:16x128, 16``
                       one of these batches, the shapes of its tensors: ``elements_count``, and how long ago it was
                       handed over, ``age_s``
``loader0.transform:Crop``, ``loader0.region:decode``
                       since the start, over all workers: ``calls_count``, ``sum_s``, ``max_s``
=====================  ============================================================================================
"""

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lightning_gpuprof.capture.call_sites import UserCode
from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.order import OrderSource, OrderTimes
from lightning_gpuprof.capture.input.padding import PaddingSums, Rows, Shapes
from lightning_gpuprof.capture.input.slots import Reading, Table
from lightning_gpuprof.capture.recorder import Reading as RecordedReading
from lightning_gpuprof.model.journal import Notice, Sample

SOURCE = "input"
TICKS_PER_SUM = 10
"""Lengths of queues are written at each tick, sums at every tenth and at the end."""

QueueLength = Callable[[], "int | None"]


def queue_length(queue: Any) -> QueueLength:
    """How to ask a queue for its length without keeping it."""
    found = weakref.ref(queue)

    def length() -> int | None:
        queue = found()
        try:
            return None if queue is None else max(0, int(queue.qsize()))
        except (NotImplementedError, OSError, ValueError):  # not on macOS; closed
            return None

    return length


class LiveIterator(msgspec.Struct, kw_only=True, eq=False):
    """An iterator of a loader that is measured."""

    loader: int
    table: Table
    workers: int
    """0: batches are made in the main process."""
    batch_size: int | None = None
    capacity: int | None = None
    """Batches that may be under way or finished at one time."""
    seed: int | None = None
    """What its workers were given; a slot with another one is somebody else's."""
    ready: QueueLength | None = None
    unpinned: QueueLength | None = None
    ended: Callable[[], bool] = bool
    """Whether nobody takes batches from it any more."""
    order: deque[int] | None = None
    """Times in ns that its sampler took for the indices of a batch, until somebody takes them out."""
    order_source: OrderSource | None = None
    rows: deque[Rows] | None = None
    """Looks at the padding of its batches, likewise."""
    shapes: deque[Shapes] | None = None
    """And at their shapes."""
    last: list[Reading | None] = []

    def read(self) -> None:
        """Look at the slots; what cannot be read now keeps its last reading."""
        found = self.table.read()
        before = self.last or [None] * len(found)
        self.last = [
            now if now is not None and self._is_own(now) else old for now, old in zip(found, before, strict=True)
        ]
        self.table.remove_file(at_once=False)

    def _is_own(self, reading: Reading) -> bool:
        return self.seed is None or reading.counters[slots.SEED] == self.seed


@dataclass(eq=False, repr=False)
class InputSampler:
    """Reads all slots and queues once a second."""

    iterators: list[LiveIterator]
    """Grows on the main thread; ended ones are taken out here."""
    interval_s: float = 1.0
    """Seconds between two looks."""
    now: Callable[[], int] = time.perf_counter_ns
    """The run's clock in ns."""

    name = "input pipeline"

    def __post_init__(self) -> None:
        self._written: dict[str, Mapping[str, float | None]] = {}
        """The sums that were handed over last, by subject."""
        self._past: dict[tuple[int, str], Reading] = {}
        self._orders: dict[int, OrderTimes] = {}
        self._paddings: dict[int, PaddingSums] = {}
        self._user_code: UserCode | None = None
        self._ticks = 0
        self._reported = False

    def open(self) -> None:
        """Learn which files are the user's; it takes a millisecond, which is not for the main thread."""
        self._user_code = UserCode.of_this_process()

    def sample(self, t_ns: int) -> Sequence[RecordedReading]:
        """Lengths of queues, and sums from time to time."""
        self._ticks += 1
        readings: list[RecordedReading] = []
        for one in tuple(self.iterators):
            ended = one.ended()
            one.read()
            self._read_order(one)
            readings += _shape_samples(one, t_ns)
            if ended:
                self._retire(one)
            elif one.workers:
                readings.append(_queue_sample(one, t_ns))
        if self._ticks % TICKS_PER_SUM == 0:
            sums = self._sums(t_ns)
            self._written = {one.subject: one.values for one in sums if isinstance(one, Sample)}
            readings += sums
        return readings

    def close(self) -> Sequence[RecordedReading]:
        """The sums up to now; those that are as the last look wrote them are not written twice."""
        t_ns, readings = self.now(), []
        for one in self.iterators:
            one.read()
            self._read_order(one)
            readings += _shape_samples(one, t_ns)
        return readings + [
            one
            for one in self._sums(t_ns)
            if not isinstance(one, Sample) or self._written.get(one.subject) != one.values
        ]

    def _read_order(self, one: LiveIterator) -> None:
        while one.rows:
            self._paddings.setdefault(one.loader, PaddingSums()).take(one.rows.popleft())
        if one.order is None or one.order_source is None:
            return
        found = self._orders.get(one.loader)
        if found is None:
            if self._user_code is None:
                self.open()
            assert self._user_code is not None
            found = self._orders[one.loader] = OrderTimes(name=one.order_source.description(self._user_code))
        found.take(one.order)

    def _retire(self, one: LiveIterator) -> None:
        self.iterators.remove(one)
        for key, reading in _by_process(one):
            self._past.setdefault(key, Reading()).add(reading)
        one.table.close()

    def _sums(self, t_ns: int) -> list[RecordedReading]:
        sums: dict[tuple[int, str], Reading] = {}
        for key, reading in (
            *self._past.items(),
            *(pair for one in tuple(self.iterators) for pair in _by_process(one)),
        ):
            sums.setdefault(key, Reading()).add(reading)
        readings: list[RecordedReading] = []
        parts: dict[int, Reading] = {}
        for (loader, process), reading in sorted(sums.items()):
            readings.append(_sample(f"loader{loader}.{process}", t_ns, _process_values(reading)))
            parts.setdefault(loader, Reading()).add(reading)
            if reading.counters[slots.FAILED] and process != "process" and not self._reported:
                self._reported = True
                text = f"measuring failed in {process} of loader {loader}; its numbers end there"
                readings.append(Notice(part=self.name, message=text))
        for loader, order in self._orders.items():
            readings.append(_sample(f"loader{loader}.order:{order.name}", t_ns, order.values()))
        for loader, padding in self._paddings.items():
            readings.append(_sample(f"loader{loader}.padding:{padding.name}", t_ns, padding.values()))
        for loader, reading in parts.items():
            for part in reading.parts.values():
                kind = "transform" if part.kind == slots.TRANSFORM else "region"
                times = {"sum_s": part.sum_ns / 1e9, "max_s": part.max_ns / 1e9}
                values = {"calls_count": float(part.calls), **times}
                readings.append(_sample(f"loader{loader}.{kind}:{part.name}", t_ns, values))
        return readings


def _sample(subject: str, t_ns: int, values: Mapping[str, float | None]) -> Sample:
    return Sample(source=SOURCE, subject=subject, t_ns=t_ns, values=dict(values))


def _by_process(one: LiveIterator) -> list[tuple[tuple[int, str], Reading]]:
    return [
        ((one.loader, f"worker{number}" if one.workers else "process"), reading)
        for number, reading in enumerate(one.last)
        if reading is not None and reading.counters[slots.PID]
    ]


def _shape_samples(one: LiveIterator, t_ns: int) -> list[RecordedReading]:
    """Of each batch that was looked at since the last time."""
    readings: list[RecordedReading] = []
    while one.shapes:
        found = one.shapes.popleft()
        values = {"elements_count": float(found.elements), "age_s": (t_ns - found.at_ns) / 1e9}
        readings.append(_sample(f"loader{one.loader}.shapes:{found.text}", t_ns, values))
    return readings


def _queue_sample(one: LiveIterator, t_ns: int) -> Sample:
    ready = None if one.ready is None else one.ready()
    unpinned = None if one.unpinned is None else one.unpinned()
    values = {
        "depth_count": None if ready is None else float(ready + (unpinned or 0)),
        "unpinned_count": None if unpinned is None else float(unpinned),
        "workers_count": float(one.workers),
        "capacity_count": None if one.capacity is None else float(one.capacity),
        "batch_size_count": None if one.batch_size is None else float(one.batch_size),
    }
    return _sample(f"loader{one.loader}.queue", t_ns, values)


def _process_values(reading: Reading) -> dict[str, float | None]:
    of = reading.counters
    together = bool(of[slots.KIND])
    p95_ns = reading.item_quantile_ns(0.95)
    return {
        "batches_count": float(of[slots.BATCHES]),
        "made_sum_s": of[slots.MADE_NS] / 1e9,
        "measured_count": float(of[slots.MEASURED]),
        "items_count": None if together else float(of[slots.ITEMS]),
        "item_sum_s": of[slots.ITEM_NS] / 1e9,
        "item_p95_s": None if p95_ns is None else p95_ns / 1e9,
        "item_max_s": None if p95_ns is None else of[slots.ITEM_MAX_NS] / 1e9,
        "collate_sum_s": of[slots.COLLATE_NS] / 1e9,
        "collate_max_s": of[slots.COLLATE_MAX_NS] / 1e9,
        "cpu_sum_s": of[slots.CPU_NS] / 1e9,
        "idle_sum_s": of[slots.IDLE_NS] / 1e9,
        "idle_count": float(of[slots.IDLE_COUNT]),
        "own_s": of[slots.OWN_NS] / 1e9,
    }
