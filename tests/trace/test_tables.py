"""Our own parts of numpy, against numpy's."""

import numpy as np
import pytest

from lightning_gpuprof.trace.tables import DeviceSpans, Spans, columns_of, distinct, is_in, joined


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [0, 1, 2, 500])
def test_distinct_and_is_in_are_numpy_s_unique_and_isin(dtype: type[np.signedinteger], size: int) -> None:
    rng = np.random.default_rng(size)
    for span in (1, 20, 1 << 30):
        values, others = (rng.integers(-span, span, n).astype(dtype) for n in (size, size // 2))
        before = values.copy()
        found = distinct(values)
        assert found.dtype == dtype
        assert found.tolist() == np.unique(values).tolist()
        assert is_in(values, others).tolist() == np.isin(values, others).tolist()
        assert (values == before).all()


def test_columns_are_those_of_the_table_and_of_what_it_extends_in_order() -> None:
    assert tuple(columns_of(DeviceSpans)) == DeviceSpans.__struct_fields__
    assert tuple(columns_of(Spans)) == ("start_ns", "end_ns", "name", "thread")
    empty = joined(DeviceSpans, ())
    assert {name: getattr(empty, name).dtype.name for name in ("start_ns", "name", "stream", "geometry")} == {
        "start_ns": "int64",
        "name": "int32",
        "stream": "int64",
        "geometry": "int32",
    }
