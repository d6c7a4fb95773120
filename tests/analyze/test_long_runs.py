"""Of more than half a million steps a part is looked at where that moves nothing: medians and quantiles, never sums."""

import numpy as np
import pytest

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.column_store import CHUNK_ROWS, ColumnStore
from lightning_gpuprof.analyze.statistics import MAX_WHOLE_STEPS, STRETCH_STEPS, THINNED_STEPS, thinned
from lightning_gpuprof.model.packing import pack, unpack

LONG = MAX_WHOLE_STEPS + 1


def test_up_to_half_a_million_steps_all_are_looked_at() -> None:
    assert thinned(LONG - 1) == slice(None)


@pytest.mark.parametrize("count", [LONG, 20 * THINNED_STEPS + 333])
def test_of_more_some_are_looked_at_in_stretches_from_the_first_step_to_the_last(count: int) -> None:
    few = thinned(count)
    assert not isinstance(few, slice)
    assert len(few) == THINNED_STEPS
    assert (few[0], few[-1]) == (0, count - 1)
    apart = np.diff(few)
    assert apart.min() == 1
    assert np.count_nonzero(apart > 1) == THINNED_STEPS // STRETCH_STEPS - 1


def test_quantiles_of_millions_are_those_of_all_within_a_thousandth_and_sums_are_exact() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(16, 0.3, LONG).astype(np.int64)
    values[rng.integers(0, LONG, 40)] *= 1000  # stalls
    found = statistics.distribution(values)
    assert (found.mean, found.min, found.max) == (values.mean(), values.min(), values.max())
    for name, probability in (("p05", 0.05), ("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert getattr(found, name) == pytest.approx(np.quantile(values, probability), rel=1e-2)
    part = values // 3
    share = statistics.share(part, values)
    assert share.total_ratio == part.sum() / values.sum()
    assert share.median_ratio == pytest.approx(1 / 3, rel=1e-4)


def test_columns_come_back_over_chunks_widths_and_bases() -> None:
    rng = np.random.default_rng(2)
    store, blocks = ColumnStore(1), []
    for number in range(60):
        rows = int(rng.integers(1, 2000))
        table = rng.integers(0, [[3], [256 ** rng.integers(1, 4)], [1 << 40]], (3, rows))
        table[1] += rng.choice([0, 1 << 33]) * (number % 7 == 0)
        table[2] *= number % 5 == 0  # else a column of zeros, which no group holds
        packed = pack(table)
        store.add(tuple(unpack(packed.widths, rows, packed.data)), rows)
        blocks.append(table)
    store.close()
    whole = np.concatenate(blocks, axis=1)
    assert whole.shape[1] > 2 * CHUNK_ROWS
    assert (store.column(0) == whole[0]).all()
    assert all((store.slots()[slot] == whole[slot + 1]).all() for slot in (0, 1))
    assert (store.slot_sums() == whole[1:].sum(axis=0)).all()
