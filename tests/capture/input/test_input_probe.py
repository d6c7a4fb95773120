"""How many batches go unmeasured, with a clock that the test moves."""

from __future__ import annotations

import pytest

from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.probe import Probe
from lightning_gpuprof.capture.input.slots import SlotWriter


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
    assert 1 <= measured_of(200, item_us=2.0, collate_us=10.0) <= 20
