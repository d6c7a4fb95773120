"""Nesting and coverage against the slow and obvious way."""

import random

import numpy as np
import pytest
from tiny_traces import random_calls

from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.nesting import Nesting


def columns(spans: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    array = np.array(spans, np.int64).reshape(-1, 3)
    return array[:, 0], array[:, 1], array[:, 2].astype(np.int32)


def example(seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    return [(s, e, thread) for thread in range(3) for s, e in random_calls(rng, 0, 60)]


@pytest.mark.parametrize("seed", range(40))
def test_the_innermost_span_is_the_shortest_that_holds_the_moment(seed: int) -> None:
    spans = example(seed)
    starts, ends, threads = columns(spans)
    nesting = Nesting(starts, ends, threads)
    asked = [(time, thread) for time in range(-1, 63) for thread in range(4)]
    found = nesting.innermost(np.array([a for a, _ in asked]), np.array([b for _, b in asked], np.int32))
    for (time, thread), row in zip(asked, found.tolist(), strict=True):
        holding = [e - s for s, e, t in spans if t == thread and s <= time < e]
        if not holding:
            assert row == -1
        else:
            s, e, t = spans[row]
            assert (t, e - s) == (thread, min(holding))
            assert s <= time < e


@pytest.mark.parametrize("seed", range(40))
def test_the_parent_is_the_shortest_span_around(seed: int) -> None:
    spans = example(seed)
    nesting = Nesting(*columns(spans))
    for row, (s, e, t) in enumerate(spans):
        parent = int(nesting.parent[row])
        around = [
            (pe - ps)
            for other, (ps, pe, pt) in enumerate(spans)
            if other != row and pt == t and ps <= s and (e < pe or (e == pe and s < pe)) and (pe - ps) > (e - s)
        ]
        if parent == -1:
            assert not around
            assert nesting.depth[row] == 0
        else:
            ps, pe, pt = spans[parent]
            assert pt == t
            assert ps <= s
            assert e <= pe
            assert pe > ps
            assert nesting.depth[row] == nesting.depth[parent] + 1
            if (pe - ps) > (e - s):  # equal spans nest in one another
                assert pe - ps == min(around)


def test_equal_spans_lie_in_one_another_in_the_order_of_the_file() -> None:
    nesting = Nesting(*columns([(0, 5, 0), (0, 5, 0), (0, 5, 0)]))
    assert nesting.parent.tolist() == [-1, 0, 1]
    assert nesting.innermost(np.array([2]), np.array([0], np.int32)).tolist() == [2]


def test_nothing_nests_in_nothing() -> None:
    nesting = Nesting(*columns([]))
    assert nesting.innermost(np.array([1, 2]), np.array([0, 1], np.int32)).tolist() == [-1, -1]
    assert nesting.innermost(np.zeros(0, np.int64), np.zeros(0, np.int32)).tolist() == []


def random_coverage(rng: random.Random) -> tuple[Coverage, set[int]]:
    spans = [(s, s + rng.randint(0, 6)) for s in (rng.randint(0, 50) for _ in range(rng.randint(0, 9)))]
    return (
        Coverage(np.array([s for s, _ in spans], np.int64), np.array([e for _, e in spans], np.int64)),
        {tick for s, e in spans for tick in range(s, e)},
    )


def ticks(coverage: Coverage) -> set[int]:
    return {
        tick for s, e in zip(coverage.start_ns.tolist(), coverage.end_ns.tolist(), strict=True) for tick in range(s, e)
    }


@pytest.mark.parametrize("seed", range(60))
def test_coverage_is_set_algebra_on_ticks(seed: int) -> None:
    rng = random.Random(seed)
    (a, in_a), (b, in_b) = random_coverage(rng), random_coverage(rng)
    assert ticks(a) == in_a
    assert a.total_ns == len(in_a)
    assert ticks(a.without(b)) == in_a - in_b
    assert a.common_ns(b) == len(in_a & in_b)
    assert ticks(Coverage.union_of(a, b)) == in_a | in_b
    starts, ends = a.gaps(10, 40)
    assert {t for s, e in zip(starts, ends, strict=True) for t in range(s, e)} == set(range(10, 40)) - in_a
    edges = np.array([(s, e) for s in range(0, 60, 7) for e in range(s, 60, 5)], np.int64)
    assert a.overlap_ns(edges[:, 0], edges[:, 1]).tolist() == [len(in_a & set(range(s, e))) for s, e in edges]
    assert a.contains(np.arange(-2, 60)).tolist() == [t in in_a for t in range(-2, 60)]


CROSSING = [
    ([(0, 100), (10, 12), (11, 50), (20, 30)], [-1, 0, 1, 2]),
    ([(0, 15), (10, 100), (12, 90), (20, 30)], [-1, 0, 1, 2]),
    ([(0, 10), (5, 20), (12, 14), (30, 40)], [-1, 0, 1, -1]),
]


@pytest.mark.parametrize(("spans", "parents"), CROSSING)
def test_of_spans_that_cross_the_parent_is_the_last_that_began_and_is_open(
    spans: list[tuple[int, int]], parents: list[int]
) -> None:
    starts, ends = np.array(spans).T
    assert Nesting(starts, ends, np.zeros(len(spans), np.int32)).parent.tolist() == parents


@pytest.mark.parametrize("seed", range(60))
def test_the_parent_of_any_span_is_the_last_that_began_and_is_open(seed: int) -> None:
    rng = random.Random(seed)
    spans = sorted({(start, start + rng.randint(1, 30)) for start in (rng.randint(0, 60) for _ in range(25))})
    spans.sort(key=lambda one: (one[0], -one[1]))
    starts, ends = np.array(spans).T
    nesting = Nesting(starts, ends, np.zeros(len(spans), np.int32))
    for row, (start, _) in enumerate(spans):
        still_open = [other for other in range(row) if spans[other][1] > start]
        assert nesting.parent[row] == max(still_open, default=-1)
    asked = np.arange(95)
    for time, found in zip(asked.tolist(), nesting.innermost(asked, np.zeros(95, np.int32)).tolist(), strict=True):
        assert found == max((row for row, (start, end) in enumerate(spans) if start <= time < end), default=-1)
