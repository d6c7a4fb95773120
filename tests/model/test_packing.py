"""Packed columns: what goes in comes out, and damage is an error, never a crash."""

import random

import numpy as np
import pytest

from lightning_gpuprof.model.packing import MAX_WIDTH, Ints, pack, unpack


def unpacked(widths: str, rows: int, data: bytes) -> Ints:
    """All columns, those of zeros too."""
    table = np.zeros((len(widths), rows), np.int64)
    for group in unpack(widths, rows, data):
        digits = np.zeros((*group.planes.shape[1:], 8), np.uint8)
        digits[:, :, : len(group.planes)] = group.planes.transpose(1, 2, 0)
        table[group.columns] = group.base[:, None] + digits.view("<i8")[:, :, 0]
    return table


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 1024])
@pytest.mark.parametrize("seed", range(20))
def test_a_table_comes_out_as_it_went_in(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.integers(0, MAX_WIDTH + 1, size=rng.integers(1, 60))
    table = np.stack([rng.integers(0, 256 ** int(width), size=rows) for width in widths])
    packed = pack(table)
    assert (unpacked(packed.widths, rows, packed.data) == table).all()
    assert len(packed.widths) == len(table)


def test_each_width_begins_and_ends_where_its_numbers_do() -> None:
    largest = [256**width - 1 for width in range(1, MAX_WIDTH + 1)]
    table = np.array([[0], [1], *([n] for n in largest), *([n + 1] for n in largest[:-1])])
    packed = pack(table)
    assert packed.widths == "01" + "1234567" + "234567"
    assert (unpacked(packed.widths, 1, packed.data) == table).all()


def test_numbers_of_32_bits_are_packed_as_those_of_64() -> None:
    table = np.array([range(40), [2**31 - 1 - n for n in range(40)], [0] * 40, [2**31 - 1, *range(39)]], np.int64)
    assert pack(table.astype(np.int32)) == pack(table)


def test_columns_of_zeros_take_no_room() -> None:
    few = pack(np.ones((1, 500), np.int64))
    many = pack(np.concatenate([np.ones((1, 500), np.int64), np.zeros((40, 500), np.int64)]))
    assert many.data == few.data
    assert many.widths == "1" + "0" * 40


@pytest.mark.parametrize("number", [-1, 256**MAX_WIDTH, 2**62])
def test_numbers_that_are_no_time_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        pack(np.array([[5, number]]))


def test_damage_is_a_value_error_or_gives_a_table_of_the_same_shape() -> None:
    rng = np.random.default_rng(0)
    packed = pack(rng.integers(0, 70_000, size=(5, 50)))
    chance = random.Random(0)
    refused = 0
    for _ in range(500):
        widths = list(packed.widths)
        data = bytearray(packed.data)
        if chance.random() < 0.3:
            widths[chance.randrange(5)] = chance.choice("0123456789x/:é")
        else:
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = bytes([chance.randrange(256)])
        try:
            table = unpacked("".join(widths), 50, bytes(data))
        except ValueError:
            refused += 1
        else:
            assert table.shape == (5, 50)
    assert refused > 300


def test_what_inflates_to_more_than_it_should_is_refused_before_it_is_there() -> None:
    bomb = pack(np.ones((60, 60_000), np.int64)).data
    with pytest.raises(ValueError, match="expected"):
        list(unpack("1", 10, bomb))
