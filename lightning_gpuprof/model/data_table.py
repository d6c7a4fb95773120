"""A table of raw values by column, as exports write it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[Any] | list[Any]
"""Numbers as an array, or a list of numbers, texts or truth values with None for what was not measured."""


class DataTable(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of one length; names of columns end in their unit."""

    name: str
    """What its file is called, without the ending."""
    columns: Mapping[str, Values]

    def __len__(self) -> int:
        return min((len(values) for values in self.columns.values()), default=0)
