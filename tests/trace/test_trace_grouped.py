"""Groups and their statistics against the slow and obvious way."""

import random
import statistics
from collections import defaultdict

import numpy as np
import pytest

from lightning_gpuprof.trace.analyses.joins.grouped import groups_of, statistics_of


@pytest.mark.parametrize("widest", [3, 10**6, 2**62], ids=["small keys", "wide keys", "keys of 62 bits"])
def test_rows_are_in_one_group_if_all_their_columns_are_equal(widest: int) -> None:
    rng = random.Random(1)
    pool = [rng.randint(-1, widest) for _ in range(4)]
    rows = [(rng.choice(pool), rng.choice(pool), rng.randint(-1, 3)) for _ in range(200)]
    groups = groups_of(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    assert len(groups) == len(set(rows))
    assert {(row, rows[groups.first[group]]) for row, group in zip(rows, groups.of_row, strict=True)} == {
        (row, row) for row in rows
    }
    for group, first in enumerate(groups.first.tolist()):
        assert rows.index(rows[first]) == first
        assert groups.counts[group] == rows.count(rows[first])


@pytest.mark.parametrize("largest", [10, 2**40, 2**61], ids=["few values", "long times", "too long to be packed"])
def test_statistics_of_groups(largest: int) -> None:
    rng = random.Random(2)
    names = [rng.randint(0, 9) for _ in range(300)] + [99]
    values = [rng.randint(0, largest) for _ in names]
    groups = groups_of(np.array(names, np.int64))
    found = statistics_of(np.array(values, np.int64), groups)
    of_name = defaultdict(list)
    for name, value in zip(names, values, strict=True):
        of_name[name].append(value)
    for group, first in enumerate(groups.first.tolist()):
        expected = of_name[names[first]]
        assert found.count[group] == len(expected)
        assert found.min[group] == min(expected)
        assert found.max[group] == max(expected)
        assert found.median[group] == pytest.approx(statistics.median(expected))
        if largest < 2**60:  # or the sum does not fit
            assert found.total[group] == sum(expected)
            assert found.average[group] == pytest.approx(statistics.mean(expected))
            std = statistics.stdev(expected) if len(expected) > 1 else 0.0
            assert found.std[group] == pytest.approx(std)


def test_nothing_has_no_groups() -> None:
    nothing = np.zeros(0, np.int64)
    groups = groups_of(nothing, nothing)
    assert len(groups) == 0
    assert len(groups.counts) == 0
    assert len(statistics_of(nothing, groups).median) == 0
