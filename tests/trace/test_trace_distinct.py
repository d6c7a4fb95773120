"""Distinct values, their numbers and their median, beside what numpy says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gpuprof.trace.distinct import distinct, median, numbered

COLUMNS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=40)


@given(COLUMNS)
def test_distinct_values_and_their_numbers_are_those_of_numpy(values: list[int]) -> None:
    column = np.array(values, np.int64)
    expected, first, of_row, counts = np.unique(column, return_index=True, return_inverse=True, return_counts=True)
    assert distinct(column).tolist() == expected.tolist()
    found = numbered(column)
    assert found.values.tolist() == expected.tolist()
    assert found.first.tolist() == first.tolist()
    assert found.of_row.tolist() == of_row.tolist()
    assert found.counts.tolist() == counts.tolist()


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=40))
def test_the_median_is_that_of_numpy(values: list[int]) -> None:
    assert median(np.array(values, np.int64)) == float(np.median(values))


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])
