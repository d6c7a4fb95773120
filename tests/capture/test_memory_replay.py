"""An allocator's history is replayed: what was held at the peak, by which line, and each phase's peak."""

from typing import Any

import pytest

from lightning_gpuprof.capture.memory.replay import BEFORE, MAX_PLACES, OTHERS, Frames, Replayed, free_pieces, replay
from lightning_gpuprof.model.memory import NO_PYTHON


def place_of(frames: Frames) -> str:
    return str(frames[0]["name"]) if frames else ""


def event(action: str, addr: int | None, size: int, name: str = "", us: int = 0) -> dict[str, Any]:
    entry: dict[str, Any] = {"action": action, "size": size, "time_us": us}
    if addr is not None:
        entry["addr"] = addr
    if name:
        entry["frames"] = [{"name": name}]
    return entry


def snapshot(events: list[dict[str, Any]], active: dict[int, int]) -> dict[str, Any]:
    blocks = [
        {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
        for address, size in active.items()
    ]
    return {"segments": [{"device": 0, "address": 0, "blocks": blocks}], "device_traces": [events]}


def test_the_peak_and_what_held_it() -> None:
    events = [
        event("alloc", 1, 100, "forward"),
        event("alloc", 2, 50, "forward"),
        event("segment_alloc", 9, 4096),
        event("free_requested", 7, 30),  # allocated before the history began
        event("alloc", 3, 20),
        event("free_requested", 1, 100),
        event("free_completed", 1, 100),
        event("alloc", 4, 60, "backward"),
    ]
    found = replay(snapshot(events, {2: 50, 3: 20, 4: 60, 5: 1000}), 0, place_of)
    assert found.peak_bytes == 1000 + 30 + 150
    assert {row.place: (row.held_bytes, row.count) for row in found.at_peak} == {BEFORE: (1030, 2), "forward": (150, 2)}
    assert {row.place: row.held_bytes for row in found.at_end} == {
        BEFORE: 1000,
        "forward": 50,
        NO_PYTHON: 20,
        "backward": 60,
    }
    assert sum(row.held_bytes for row in found.at_peak) == found.peak_bytes


def test_an_address_that_is_used_again_counts_once() -> None:
    events = [event("alloc", 1, 10, "a"), event("free_requested", 1, 10), event("alloc", 1, 70, "b")]
    found = replay(snapshot(events, {1: 70}), 0, place_of)
    assert (found.peak_bytes, found.at_peak[0].place, found.before_bytes) == (70, "b", 0)


def test_after_an_out_of_memory_nothing_counts() -> None:
    events = [event("alloc", 1, 10, "a"), event("oom", None, 999), event("alloc", 2, 500, "afterwards")]
    found = replay(snapshot(events, {1: 10, 2: 500}), 0, place_of)
    assert found.peak_bytes == 10


def test_each_phase_has_its_peak_also_one_in_which_nothing_is_allocated() -> None:
    events = [
        event("alloc", 1, 100, "f", us=10),
        event("alloc", 2, 40, "b", us=25),
        event("free_requested", 1, 100, us=26),
    ]
    marks = [(0, "step"), (20_000, "forward"), (30_000, "backward"), (40_000, "optimizer"), (50_000, "step")]
    found = replay(snapshot(events, {2: 40}), 0, place_of, marks)
    assert found.peaks_by_phase == {"forward": 100, "backward": 140, "optimizer": 40, "step": 40}


def test_of_many_places_the_rest_stands_together() -> None:
    events = [event("alloc", n, 1000 - n, f"line{n}") for n in range(1, MAX_PLACES + 11)]
    found = replay(snapshot(events, {}), 0, place_of)
    assert len(found.at_peak) == MAX_PLACES + 1
    assert (found.at_peak[-1].place, found.at_peak[-1].count) == (OTHERS, 10)


@pytest.mark.parametrize("broken", [{}, {"device_traces": []}, {"segments": [], "device_traces": [[]]}])
def test_without_events_there_is_nothing(broken: dict[str, Any]) -> None:
    assert replay(broken, 0, place_of) == Replayed()


def test_free_pieces_of_a_device() -> None:
    blocks = [
        {"size": 10, "state": "inactive"},
        {"size": 30, "state": "inactive"},
        {"size": 5, "state": "active_allocated"},
    ]
    found = {"segments": [{"device": 0, "blocks": blocks}, {"device": 1, "blocks": blocks}]}
    assert free_pieces(found, 0) == (40, 30, 2)
