"""What a look at a batch makes of its rows."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from probed_loaders import Measured
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof.capture.input.padding import Rows, rows_of

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
}


@pytest.mark.parametrize("kind", PADDED)
def test_the_real_lengths_of_rows_are_seen(kind: str) -> None:
    found = rows_of(PADDED[kind])
    assert (found.rows, found.width, found.real, found.longest) == (4, WIDTH, sum(LENGTHS), max(LENGTHS))


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
    "many tensors": [IDS] * 100,
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


def test_a_look_that_fails_costs_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(batch: object) -> Rows:
        raise ValueError("no look")

    monkeypatch.setattr("lightning_gpuprof.capture.input.padding.rows_of", fail)
    with Measured(DataLoader(Rowwise(), batch_size=4)) as found:
        assert len(list(found.loaders[0])) == 100
    assert {str(error) for error in found.errors} == {"no look"}
