"""Shapes and types of operators' input tensors, as text and as numbers of distinct texts."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Inputs, Int64, Rows, distinct

_TORCH_NAMES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
"""What torch calls the types that the profiler records under their names in C++."""


def shape_labels(trace: Trace, rows: Rows) -> tuple[Int64, list[tuple[str, str]]]:
    """Number the shapes and types of operators' inputs: inputs that differ only in numbers and flags are one.

    Args:
        trace: The trace.
        rows: n rows of :attr:`Trace.cpu_op` with recorded inputs.

    Returns:
        n numbers, and for each number what :func:`shapes_and_types` says.
    """
    inputs = trace.cpu_op.inputs[rows]
    texts: dict[tuple[str, str], int] = {}
    of_inputs = np.zeros(len(trace.input_texts), np.int64)
    for number in distinct(inputs).tolist():
        of_inputs[number] = texts.setdefault(shapes_and_types(trace.inputs[number]), len(texts))
    return of_inputs[inputs], list(texts)


def shapes_and_types(inputs: Inputs) -> tuple[str, str]:
    """Shapes and types of the tensors among an operator's inputs; numbers, flags and the like are left out.

    Returns:
        For example ``32x3x224x224, 64x3x7x7`` and ``float32``; of types that differ each once, in order of the
        tensors. ``()`` is a tensor without dimensions; the types of tensors in a list are not recorded.
    """
    shapes: list[str] = []
    types: list[str] = []
    for position, shape in enumerate(inputs.shapes):
        recorded = inputs.types[position] if position < len(inputs.types) else ""
        if not isinstance(shape, list):
            continue
        if shape and all(isinstance(one, list) for one in shape):
            shapes.append(f"[{', '.join(map(_sizes, shape))}]")
        elif shape or _is_tensor(recorded):
            shapes.append(_sizes(shape))
            if recorded:
                types.append(_torch_name(recorded))
    return ", ".join(shapes), ", ".join(dict.fromkeys(types))


def _is_tensor(recorded: str) -> bool:
    # element types are spelled in lower case or with a namespace; Scalar, Bool, TensorList and the like are no tensors
    return bool(recorded) and (recorded[0].islower() or "::" in recorded)


def _sizes(shape: Sequence[object]) -> str:
    return "x".join(str(size) for size in shape) if shape else "()"


def _torch_name(recorded: str) -> str:
    return _TORCH_NAMES.get(recorded) or recorded.removeprefix("c10::").lower()
