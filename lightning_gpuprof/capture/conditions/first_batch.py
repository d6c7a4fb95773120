"""Shapes and dtypes of the first batch, as text: nothing of it is kept, copied or computed with."""

import contextlib
import dataclasses
from collections import UserDict
from itertools import islice

import torch

from lightning_gpuprof.capture.conditions.reading import plain
from lightning_gpuprof.model.journal import Value

MAX_TENSORS = 64
MAX_LOOKS = 1000
"""Items of a batch that are looked at: one may be a list of a million numbers."""
SHOWN_TENSORS = 16

_as_plain_tensors = getattr(getattr(torch, "_C", None), "DisableTorchFunctionSubclass", contextlib.nullcontext)
"""A subclass of Tensor would answer for each attribute with code of its own. Private to torch (2.0 to 2.15)."""


def describe(batch: object) -> dict[str, Value]:
    """Facts of a batch: how many tensors and objects, and of tensors dtypes, shapes, bytes and devices.

    Args:
        batch: As the step gets it: tensors, or dictionaries, sequences and data classes of such. What else it holds is
            not looked into.
    """
    with _as_plain_tensors():
        tensors, objects = _tensors(batch)
        if not tensors:
            return {"batch.objects": objects}
        shown = tensors[:SHOWN_TENSORS]
        more = f", and {len(tensors) - SHOWN_TENSORS} more" if len(tensors) > SHOWN_TENSORS else ""
        found: dict[str, object] = {
            "batch.tensors": len(tensors),
            "batch.objects": objects,
            "batch.dtypes": ", ".join(str(t.dtype).removeprefix("torch.") for t in shown) + more,
            "batch.shapes": ", ".join(str(list(t.shape)) for t in shown) + more,
            "batch.bytes": sum(t.numel() * t.element_size() for t in tensors),
            "batch.device": ", ".join(sorted({str(t.device) for t in tensors})),
        }
    return {name: plain(value) for name, value in found.items()}


def _tensors(batch: object) -> tuple[list[torch.Tensor], int]:
    """In the order of the batch, at most so many, and how many items were looked at.

    A queue instead of recursion: a batch may hold itself.
    """
    waiting, looks = [batch], 0
    tensors: list[torch.Tensor] = []
    while waiting and looks < MAX_LOOKS:
        item = waiting.pop()
        looks += 1
        if isinstance(item, torch.Tensor):
            if len(tensors) < MAX_TENSORS:
                tensors.append(item)
        elif isinstance(item, (dict, list, tuple)):
            inner = item.values() if isinstance(item, dict) else item
            waiting += list(islice(inner, MAX_LOOKS))[::-1]
        elif isinstance(item, UserDict):
            waiting.append(item.data)
        elif isinstance(item, type):
            continue
        elif dataclasses.is_dataclass(item):
            waiting.append({field.name: getattr(item, field.name, None) for field in dataclasses.fields(item)})
        elif type(item).__module__.startswith("torch_geometric."):
            waiting.append(getattr(item, "__dict__", None))
    return tensors, looks
