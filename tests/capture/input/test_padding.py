"""What a look at a batch makes of its rows."""

import time
from collections import UserDict
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from probed_loaders import Measured
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_gpuprof.capture.input.padding import MAX_CELLS, Looks, Rows, Shapes, rows_of, shapes_of

LENGTHS = (20, 30, 25, 22)
WIDTH = 64


def tokens(pad: int = 0, *, left: bool = False) -> torch.Tensor:
    """Rows of these lengths, in which no token repeats."""
    rows = torch.full((len(LENGTHS), WIDTH), pad)
    for row, length in zip(rows, LENGTHS, strict=True):
        row[WIDTH - length if left else 0 :][:length] = torch.arange(1, length + 1)
    return rows


IDS = tokens()
MASK = (IDS != 0).long()
FULL = torch.arange(1, 4 * WIDTH + 1).reshape(4, WIDTH)
PADDED: dict[str, Any] = {
    "tuple": (IDS, torch.zeros(4)),
    "dict": {"labels": torch.zeros(4), "input_ids": IDS},
    "of a tokenizer": UserDict({"input_ids": IDS}),
    "inside": [{"text": {"input_ids": IDS}}, torch.zeros(4)],
    "at the beginning": tokens(left=True),
    "negative": tokens(-100),
    "32 bits": IDS.int(),
    "with targets": {"input_ids": IDS, "labels": tokens(-100)},
    "by its mask": {"position_ids": FULL, "attention_mask": MASK, "input_ids": IDS},
    "by a mask of booleans": {"attention_mask": MASK.bool()},
    "beside a list of names": {"id": ["a"] * 32, "input_ids": IDS},
    "beside 33 other columns": {**{f"column {n}": torch.zeros(4) for n in range(33)}, "input_ids": IDS},
    "many tensors": [IDS] * 100,
}


@pytest.mark.parametrize("kind", PADDED)
def test_the_real_lengths_of_rows_are_seen(kind: str) -> None:
    found = rows_of(PADDED[kind])
    assert (found.rows, found.width, found.real, found.longest) == (4, WIDTH, sum(LENGTHS), max(LENGTHS))


def many_rows(width: int) -> torch.Tensor:
    """512 rows of which most have 20 to 60 tokens, and one in the middle 200."""
    rows = torch.zeros(512, width, dtype=torch.long)
    lengths = np.random.default_rng(0).integers(20, 60, 512)
    lengths[301] = 200
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.arange(1, length + 1)
    return rows


@pytest.mark.parametrize("width", [200, 512])
@pytest.mark.parametrize("kind", ["tokens", "at the beginning", "by a mask"])
def test_the_longest_of_all_rows_is_found(kind: str, width: int) -> None:
    rows = many_rows(width)
    batch = {"tokens": rows, "at the beginning": rows.flip(1), "by a mask": {"attention_mask": (rows != 0).long()}}
    found = rows_of(batch[kind])
    assert (found.width, found.longest) == (width, 200)
    assert found.real / found.rows == pytest.approx(40, abs=3)


@pytest.mark.parametrize("width", [512, 8192, 65_536])
def test_few_numbers_of_a_large_batch_are_read(width: int) -> None:
    rows = torch.zeros(64, width, dtype=torch.long)
    rows[:, : width // 4] = torch.arange(1, width // 4 + 1)
    found = rows_of(rows)
    assert found.rows * found.width <= max(MAX_CELLS, width)
    assert (found.real, found.longest) == (found.rows * width // 4, width // 4)


UNPADDED: dict[str, Any] = {
    "rows that are full": FULL,
    "targets that are full": {"input_ids": IDS, "labels": FULL},
    "classes of which few apply": torch.eye(4, WIDTH, dtype=torch.long),
    "counts of words": torch.eye(4, WIDTH, dtype=torch.long) * 3 + torch.eye(4, WIDTH, dtype=torch.long).flip(1),
    "all the same": torch.zeros(4, WIDTH, dtype=torch.long),
}


@pytest.mark.parametrize("kind", UNPADDED)
def test_what_only_looks_like_padding_is_none(kind: str) -> None:
    found = rows_of(UNPADDED[kind])
    assert found.real >= found.rows * found.width - 1  # one row's last token may be taken for it


NO_ROWS: dict[str, Any] = {
    "floats": IDS.float(),
    "images": torch.zeros(4, 3, 32, 32, dtype=torch.uint8),
    "bytes": IDS.to(torch.uint8),
    "narrow": IDS[:, :8],
    "empty": IDS[:0],
    "labels": torch.arange(64),
    "not in host memory": IDS.to("meta"),
    "a number": 3,
    "lists of numbers": [[1] * 1000] * 1000,
}


@pytest.mark.parametrize("kind", NO_ROWS)
def test_other_batches_have_no_rows(kind: str) -> None:
    assert rows_of(NO_ROWS[kind]) == Rows()


class Rowwise(Dataset[torch.Tensor]):
    """The same rows again and again."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return IDS[index % 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_few_batches_are_looked_at_and_ever_more_seldom(workers: int) -> None:
    with Measured(DataLoader(Rowwise(), batch_size=4, num_workers=workers)) as found:
        iterator = iter(found.loaders[0])
        kinds = [type(iterator) for _ in iterator]
    (subject,) = (name for name in found.values if ".padding:" in name)
    assert subject == "loader0.padding:batch"
    assert 8 <= found.count(subject, "looks_count") <= 13
    cells = found.count(subject, "cells_count")
    assert found.count(subject, "real_count") / cells == pytest.approx(sum(LENGTHS) / (4 * WIDTH))
    assert found.count(subject, "to_longest_count") / cells == pytest.approx(max(LENGTHS) / WIDTH)
    assert found.count(subject, "width_min_count") == found.count(subject, "width_max_count") == WIDTH
    assert len(kinds) == 100
    assert len({kind.__qualname__ for kind in kinds}) == 1  # as torch's own
    assert found.errors == []


@pytest.mark.parametrize("workers", [0, 2])
def test_shapes_are_seen_of_the_same_batches_with_when_they_were_handed_over(workers: int) -> None:
    begin_ns, at = time.perf_counter_ns(), []
    with Measured(DataLoader(Rowwise(), batch_size=3, num_workers=workers)) as found:
        for _ in found.loaders[0]:
            at.append(time.perf_counter_ns())
    samples = [one for one in found.samples if ".shapes:" in one.subject]
    assert {one.subject for one in samples} <= {f"loader0.shapes:3x{WIDTH}", f"loader0.shapes:1x{WIDTH}"}
    assert {one.values["elements_count"] for one in samples} <= {3.0 * WIDTH, 1.0 * WIDTH}
    assert len(samples) == found.count("loader0.padding:batch", "looks_count")
    for one in samples:
        age_s = one.values["age_s"]
        assert age_s is not None
        assert begin_ns < one.t_ns - age_s * 1e9 < at[-1]


def test_a_batch_s_tensors_are_named_by_their_shapes() -> None:
    found = shapes_of({"x": torch.zeros(4, 8), "more": [torch.zeros(3), torch.tensor(1.0)], "names": ["a"]}, 7)
    assert found == Shapes(at_ns=7, text="4x8, 3, 1", elements=36)
    assert shapes_of(["a", 1], 7) is None
    many = shapes_of([torch.zeros(2)] * 30, 7)
    assert many is not None
    assert (many.text.count("2"), many.elements) == (8, 60)


def test_looks_become_rare_over_epochs_too() -> None:
    with Measured(DataLoader(Rowwise(), batch_size=20)) as found:
        for _ in range(20):
            list(found.loaders[0])
    assert 12 <= found.count("loader0.padding:batch", "looks_count") <= 18


class Endless(IterableDataset[torch.Tensor]):
    """The same without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([IDS[n % 4] for n in range(40)])


def test_batches_of_an_iterable_dataset_are_looked_at() -> None:
    with Measured(DataLoader(Endless(), batch_size=4)) as found:
        list(found.loaders[0])
    assert found.count("loader0.padding:batch", "looks_count") >= 5


class Wrapped:
    """A batch that fails whatever it is asked for."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        self.rows = rows

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class Unnamed:
    """A key that cannot be named."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("closed")


class Closed(dict[object, torch.Tensor]):
    """A batch that fails as soon as it is looked into."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        self[Unnamed()] = torch.stack(rows)


class Lazy(dict[str, torch.Tensor]):
    """A batch that is made where it is used, as with random augmentation."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        self["rows"] = torch.stack(rows)

    def items(self) -> NoReturn:
        raise AssertionError("not to be called by a look")


class LazyList(list[torch.Tensor]):
    """The same as a list."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        super().__init__([torch.stack(rows)])

    def __getitem__(self, place: object) -> NoReturn:
        raise AssertionError("not to be called by a look")

    def __iter__(self) -> NoReturn:
        raise AssertionError("not to be called by a look")


@pytest.mark.parametrize("kind", [Wrapped, Closed, Lazy, LazyList])
def test_a_batch_that_cannot_be_looked_into_ends_no_measuring(kind: type) -> None:
    with Measured(DataLoader(Rowwise(), batch_size=4, collate_fn=kind)) as found:
        for _ in range(2):
            assert len(list(found.loaders[0])) == 100
    assert found.measured_batches() == 200
    assert found.count("loader0.order:SequentialSampler", "calls_count") == 200
    assert found.errors == []
    seen = ["padding and shapes of batches are no longer measured: RuntimeError in a look at one"]
    assert found.notices == (seen if kind is Closed else [])


def test_a_worker_that_dies_during_a_look_ends_the_run() -> None:
    """Torch's handler of SIGCHLD raises wherever the main thread is."""

    class Dies:
        def __str__(self) -> str:
            raise RuntimeError("DataLoader worker (pid 4242) is killed by signal: Killed. ")

    failed: list[Exception] = []
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        Looks(failed.append).look({Dies(): torch.zeros(2)})
    assert failed == []
