"""The container of the module, a callback or the dataset that has gained most items during training."""

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from lightning_gpuprof.capture.conditions.reading import plain
from lightning_gpuprof.model.journal import Value

_KINDS = (list, deque, dict, defaultdict, set)
"""Exactly these: a subclass would run code of the user's."""
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
"""A model may have thousands of them."""
_MAX_INNER = 100
"""Values of a dictionary that are looked at: one may be a cache with an entry per sample."""


class KeptItems:
    """Counts items when made and again when asked. Looks into attributes, and into dictionaries of containers."""

    def __init__(self, owners: list[Any]) -> None:
        self._owners = owners
        self._before = {key: len(items) for key, _, items in self._containers()}

    def most(self) -> dict[str, Value]:
        """Conditions by name: which one gained most, how many items, and what they are; empty where none gained."""
        gained = [(len(items) - self._before.get(key, 0), name, items) for key, name, items in self._containers()]
        count, name, items = max(gained, key=lambda row: row[0], default=(0, "", ()))
        if count <= 0:
            return {}
        return {"kept.in": plain(name), "kept.items": count, "kept.kind": _kind(items)}

    def _containers(self) -> Iterator[tuple[tuple[int, str], str, Any]]:
        for number, owner in enumerate(self._owners):
            attributes = getattr(owner, "__dict__", {})
            for attribute in attributes.keys() - _OF_EVERY_MODULE:
                value = attributes.get(attribute)
                if type(value) not in _KINDS:
                    continue
                name = f"{type(owner).__qualname__.rpartition('<locals>.')[2]}.{attribute}"
                yield (number, attribute), name, value
                for key, inner in list(islice(value.items(), _MAX_INNER)) if isinstance(value, dict) else ():
                    if type(inner) in _KINDS and type(key) is str:
                        yield (number, f"{attribute}.{key}"), f"{name}[{key!r}]", inner


def _kind(items: Any) -> str:
    values = () if isinstance(items, set) else items.values() if isinstance(items, dict) else items
    last = next(reversed(values), None)
    if isinstance(last, torch.Tensor):
        return "tensors with their graphs" if last.requires_grad else "tensors"
    return "items"
