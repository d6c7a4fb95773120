"""Parses the distinct texts of arguments in a trace, each once and only if it is asked for."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from lightning_gpuprof.trace.tables import Collective, Geometry, Inputs


def geometries_of(texts: Sequence[tuple[Any, ...]]) -> tuple[Geometry, ...]:
    """Launch geometries; what cannot be read is None."""
    return tuple(
        Geometry(
            grid=_three(grid),
            block=_three(block),
            registers_per_thread=_whole(registers),
            shared_memory_bytes=_whole(shared_memory),
            blocks_per_sm=_number(blocks_per_sm),
            warps_per_sm=_number(warps_per_sm),
            est_occupancy_ratio=(_number(occupancy) or 0.0) / 100 or None,
        )
        for grid, block, registers, shared_memory, blocks_per_sm, warps_per_sm, occupancy in texts
    )


def inputs_of(texts: Sequence[tuple[bytes, bytes, bytes]]) -> tuple[Inputs, ...]:
    """Arguments of operators; lists that cannot be read are empty."""
    return tuple(
        Inputs(
            shapes=_list(shapes),
            types=[one if isinstance(one, str) else "" for one in _list(types)],
            values=[_text(one) for one in _list(values)] if values else None,
        )
        for shapes, types, values in texts
    )


def collectives_of(texts: Sequence[tuple[Any, ...]]) -> tuple[Collective, ...]:
    """What torch wrote beside communication."""
    return tuple(
        Collective(
            name=str(name),
            dtype=dtype if isinstance(dtype, str) else None,
            elements_in=_whole(elements_in),
            elements_out=_whole(elements_out),
            group=None if group is None else str(group),
            group_size=_whole(group_size),
        )
        for name, dtype, elements_in, elements_out, group, group_size in texts
    )


def _list(text: bytes) -> list[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _three(text: bytes) -> tuple[int, int, int] | None:
    sizes = [one for one in _list(text) if isinstance(one, int) and one >= 0]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None or number < 0 else int(number)
