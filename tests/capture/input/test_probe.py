"""Which batches a probe measures, and what it counts of all, by a clock of the test."""

import pytest
from probed_loaders import (
    Images,
)

from lightning_gpuprof.analyze.input_pipeline import MIN_BATCHES
from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.probe import Probe
from lightning_gpuprof.capture.input.slots import SlotWriter


def test_the_search_for_transforms_counts_as_cost() -> None:
    clock = iter(range(0, 10**9, 100_000))
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    probe = Probe(slots.SlotWriter(memory), Images(), now=lambda: next(clock))
    probe.begin()  # 100 us
    probe.collate()
    probe.end(0, False)  # 100 us
    found = slots.read_slot(memory)
    assert found.counters[slots.OWN_NS] >= 200_000


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000

    def __call__(self) -> int:
        return self.ns


def measured_of(batches: int, *, item_us: float, collate_us: float) -> int:
    """How many batches are measured of so many."""
    clock = Clock()
    writer = SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    probe = Probe(writer, None, now=clock)
    for _ in range(batches):
        if probe.armed:
            probe.begin()
            for _ in range(16):
                probe.moment(clock.ns)
                clock.ns += int(item_us * 1e3)
            probe.collate()
            clock.ns += int(collate_us * 1e3)
        else:
            probe.start()
        probe.end(0, False)
    measured = writer.words[slots.MEASURED]
    assert writer.words[slots.BATCHES] == batches
    writer.release()
    return measured


@pytest.mark.parametrize(("item_us", "collate_us"), [(2000.0, 10.0), (2.0, 25_000.0)])
def test_batches_that_take_long_are_all_measured(item_us: float, collate_us: float) -> None:
    """Be it their items or their collation."""
    assert measured_of(50, item_us=item_us, collate_us=collate_us) == 50


def test_quick_batches_are_sampled() -> None:
    assert MIN_BATCHES <= measured_of(100, item_us=0.1, collate_us=2.0) <= 20
    assert measured_of(1000, item_us=2.0, collate_us=10.0) <= 50


def test_of_every_batch_the_time_is_known_although_few_are_measured() -> None:
    """Every tenth batch opens a file: 5 ms instead of 50 us."""
    clock = Clock()
    writer = SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    probe = Probe(writer, None, now=clock)
    spent_ns = 0
    for number in range(400):
        clock.ns += 30_000  # the step
        begun_ns = clock.ns
        if probe.armed:
            probe.begin()
            probe.moment(clock.ns)
            clock.ns += 50_000 if number % 10 else 5_000_000
            probe.collate()
        else:
            probe.start()
            clock.ns += 50_000 if number % 10 else 5_000_000
        probe.end(0, False)
        spent_ns += clock.ns - begun_ns
    words = writer.words
    assert (words[slots.BATCHES], words[slots.MADE_NS]) == (400, spent_ns)
    assert (words[slots.IDLE_COUNT], words[slots.IDLE_NS]) == (399, 399 * 30_000)
    assert words[slots.MEASURED] <= 80
    writer.release()
