"""The algebra of intervals against the slow and obvious way."""

import random

import numpy as np
import pytest

from lightning_gpuprof.trace.intervals import covered_ns, union
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.tables import Int32, Int64


def arrays(*columns: list[int]) -> list[Int64]:
    return [np.array(column, np.int64) for column in columns]


def threads(of: list[int]) -> Int32:
    return np.array(of, np.int32)


@pytest.mark.parametrize("seed", range(30))
def test_union_covers_exactly_the_covered_ticks(seed: int) -> None:
    rng = random.Random(seed)
    intervals = [
        (start, start + rng.randint(0, 8)) for start in (rng.randint(0, 60) for _ in range(rng.randint(1, 20)))
    ]
    start, end = arrays([a for a, _ in intervals], [b for _, b in intervals])
    ticks = {tick for a, b in intervals for tick in range(a, b)}
    starts, ends = union(start, end)
    assert {tick for a, b in zip(starts, ends, strict=True) for tick in range(a, b)} == ticks
    assert covered_ns(start, end) == len(ticks)
    assert (starts[1:] > ends[:-1]).all(), "merged intervals neither overlap nor touch"


def test_nothing_covers_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    assert covered_ns(nothing, nothing) == 0
    assert len(Nesting(nothing, nothing, threads([])).exclusive_ns) == 0


def nested(rng: random.Random, start: int, end: int, depth: int) -> list[tuple[int, int]]:
    """A random call tree: children lie in their parent and do not overlap; some touch, some are empty."""
    ranges = [(start, end)]
    at = start
    while depth and at < end and rng.random() < 0.8:
        begin = rng.randint(at, end)
        at = rng.randint(begin, end)
        ranges += nested(rng, begin, at, depth - 1)
    return ranges


def exclusive_by_ticks(ranges: list[tuple[int, int]]) -> int:
    """Time of the whole tree: each tick belongs to one range."""
    return len({tick for a, b in ranges for tick in range(a, b)})


@pytest.mark.parametrize("seed", range(40))
def test_exclusive_times_sum_to_the_covered_time_of_each_thread(seed: int) -> None:
    rng = random.Random(seed)
    by_thread = [nested(rng, 0, 200, 4) + nested(rng, 200, 300, 3) for _ in range(3)]
    rows = [(a, b, thread) for thread, ranges in enumerate(by_thread) for a, b in ranges]
    rng.shuffle(rows)
    start, end = arrays([a for a, _, _ in rows], [b for _, b, _ in rows])
    thread = threads([t for _, _, t in rows])
    exclusive = Nesting(start, end, thread).exclusive_ns
    assert (exclusive >= 0).all()
    assert (exclusive <= end - start).all()
    for number, ranges in enumerate(by_thread):
        assert exclusive[thread == number].sum() == exclusive_by_ticks(ranges)


@pytest.mark.parametrize(
    ("start", "end", "exclusive"),
    [
        # outer [0,100) > middle [10,60) > inner [20,30); sibling [60,70) touches
        pytest.param([0, 10, 20, 60], [100, 60, 30, 70], [40, 40, 10, 10], id="without direct children"),
        pytest.param([5, 5], [9, 9], [0, 4], id="of two equal ranges one is inside the other"),
        pytest.param([0, 5, 5, 5], [10, 5, 5, 7], [8, 0, 0, 2], id="empty ranges take no time from their parent"),
        pytest.param([0, 6], [10, 12], [6, 6], id="a range that outlasts its parent takes only the common part"),
    ],
)
def test_exclusive_times_by_hand(start: list[int], end: list[int], exclusive: list[int]) -> None:
    """And the first of them once more on another thread, which is apart."""
    found = Nesting(*arrays([*start, start[0]], [*end, end[0]]), threads([0] * len(start) + [1])).exclusive_ns
    assert found.tolist() == [*exclusive, end[0] - start[0]]
