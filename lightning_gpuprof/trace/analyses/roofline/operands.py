"""Shapes, sizes and values of an operator call's recorded arguments, by position."""

import re
from collections.abc import Mapping, Sequence
from math import prod

import msgspec

from lightning_gpuprof.model.trace.kernels import KernelDtype

Shape = tuple[int, ...]

ELEMENT_BYTES: Mapping[str, int] = {
    # as C++ names them, which is what the profiler records; the short integer names come from older versions
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
DTYPES: Mapping[str, KernelDtype] = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "signed char": "int8",
}


class Operands(msgspec.Struct, frozen=True):
    """The recorded arguments of one call, by position; a missing or unreadable one is None."""

    shapes: Sequence[object]
    types: Sequence[object]
    concrete: Sequence[object] | None

    def __len__(self) -> int:
        return len(self.shapes)

    def shape(self, position: int) -> Shape:
        """Shape of the tensor at a position among the arguments.

        Raises:
            UnknownError: The argument is no tensor, or its shape was not recorded.
        """
        shape = as_shape(self.shapes[position]) if position < len(self.shapes) else None
        if shape is None:
            raise UnknownError
        return shape

    def is_tensor(self, position: int) -> bool:
        """Whether an argument is a tensor; without types everything that has dimensions is one."""
        if position >= len(self.shapes) or as_shape(self.shapes[position]) is None:
            return False
        if self.types:
            return self.type_name(position) in ELEMENT_BYTES
        return self.shape(position) != ()

    def type_name(self, position: int) -> str:
        """The element type as the trace names it; empty if it was not recorded."""
        return str(self.types[position]) if position < len(self.types) else ""

    def element_bytes(self, position: int) -> int | None:
        """Bytes of one element, None if its type is not known."""
        return ELEMENT_BYTES.get(self.type_name(position))

    def dtype(self, position: int = 0) -> KernelDtype | None:
        """The type in the words of kernels, None for one that kernels of products do not have."""
        return DTYPES.get(self.type_name(position))

    def bytes_of(self, position: int) -> int | None:
        """Bytes of a tensor; 0 for an argument that is none (an optional one left out, a number).

        None: types were not recorded.
        """
        if not self.types:
            return None
        return prod(self.shape(position)) * ELEMENT_BYTES[self.type_name(position)] if self.is_tensor(position) else 0

    def text(self, position: int) -> str | None:
        """The recorded value of an argument; None if it was not recorded, as for a tensor."""
        if self.concrete is None or position >= len(self.concrete):
            return None
        value = self.concrete[position]
        return value if isinstance(value, str) and value else None

    def integers(self, position: int, count: int) -> Shape:
        """A recorded list of numbers, one per spatial dimension.

        Args:
            position: Of the argument.
            count: Spatial dimensions.

        Returns:
            As many numbers as spatial dimensions; a single one stands for all.

        Raises:
            UnknownError: The argument is no such list.
        """
        numbers = [int(number) for number in re.findall(r"-?\d+", self.text(position) or "")]
        if len(numbers) == 1:
            numbers *= count
        if len(numbers) != count:
            raise UnknownError
        return tuple(numbers)

    def flags(self, position: int) -> tuple[bool, ...] | None:
        """A recorded list of truth values, None if it was not recorded."""
        found = re.findall(r"True|False", self.text(position) or "")
        return tuple(flag == "True" for flag in found) or None


class UnknownError(Exception):
    """The recorded arguments do not suffice."""


def as_shape(recorded: object) -> Shape | None:
    """A recorded shape, None if it is none."""
    if not isinstance(recorded, list | tuple):
        return None
    if any(type(size) is not int or size < 0 for size in recorded):
        return None
    return tuple(recorded)
