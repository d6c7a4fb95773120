"""The exact bytes that a module and its optimizers hold, by device and dtype.

Only metadata of tensors is read. Of parameters, buffers and states any thread may do that; gradients belong to the
main thread: autograd replaces them without the GIL, and a reader beside it ends the process.
Dictionaries that the main thread changes meanwhile are copied by one call into the interpreter's C code first;
where that is not enough, reading raises and is tried again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec
import torch

from lightning_gpuprof.capture.memory.backend import inner_tensors, is_lazy
from lightning_gpuprof.model.memory import HOLDERS, Held

_YIELD_EVERY = 64
"""Storages read before the interpreter is offered to the main thread."""


class HeldCounts(msgspec.Struct):
    """Bytes by device, dtype and holder; what has no memory."""

    bytes: dict[tuple[str, str], dict[str, int]] = {}
    skipped: dict[str, int] = {}
    """Why → how many tensors."""

    def rows(self) -> tuple[Held, ...]:
        """One row per device and dtype, the largest first; gradients are not known if there are none at all."""
        rows = [
            Held(device=device, dtype=dtype, **{f"{holder}_bytes": count for holder, count in found.items()})
            for (device, dtype), found in self.bytes.items()
        ]
        if not any(row.gradients_bytes for row in rows):
            rows = [msgspec.structs.replace(row, gradients_bytes=None) for row in rows]
        return tuple(sorted(rows, key=lambda row: -row.total_bytes))

    def merge(self, other: HeldCounts) -> None:
        """Keep the larger of two readings: gradients and states come and go."""
        for key, found in other.bytes.items():
            mine = self.bytes.setdefault(key, {})
            for holder, count in found.items():
                mine[holder] = max(count, mine.get(holder, 0))
        self.skipped.update(other.skipped)


def count(
    module: torch.nn.Module, optimizers: Iterable[Any] = (), holders: Collection[str] = HOLDERS, *, polite: bool = False
) -> HeldCounts:
    """Count what model and optimizers hold; gradients on the main thread only, where each takes some microseconds.

    Args:
        module: Has parameters, buffers and gradients.
        optimizers: Have states.
        holders: Those of :data:`HOLDERS` that are counted.
        polite: Offer the interpreter to other threads now and then.

    Returns:
        Bytes of whole storages; one that several tensors share counts once, for the first holder.

    Raises:
        RuntimeError: A tensor without what others have, or a dictionary that changed while it was read.
    """
    parameters = [parameter for _, parameter in module.named_parameters()]
    found: dict[str, Iterable[torch.Tensor]] = {
        "parameters": parameters,
        "buffers": (buffer for _, buffer in module.named_buffers()),
        "gradients": (each.grad for each in parameters if _has_gradient(each) and each.grad is not None),
        "optimizer_state": _states(optimizers),
    }
    tensors = ((holder, tensor) for holder in HOLDERS if holder in holders for tensor in found[holder])
    return _count_bytes(tensors, polite=polite)


def gradient_finder(module: torch.nn.Module) -> Callable[[], torch.nn.Parameter | None] | None:
    """How to find a parameter that has a gradient now; on the main thread only. None: no parameter has one.

    By its name: torch does not exchange tensors that somebody holds a weak reference to.
    """
    name = next((name for name, each in module.named_parameters() if _has_gradient(each)), None)
    return None if name is None else functools.partial(_named, module, name)


def _named(module: torch.nn.Module, name: str) -> torch.nn.Parameter | None:
    at: Any = module
    *path, last = name.split(".")
    for part in path:
        at = at._modules.get(part)
        if at is None:
            return None
    found: torch.nn.Parameter | None = at._parameters.get(last)
    return found


def _count_bytes(tensors: Iterable[tuple[str, torch.Tensor]], *, polite: bool) -> HeldCounts:
    counted = HeldCounts()
    seen: set[tuple[torch.device, int]] = set()
    sums: dict[tuple[torch.device, torch.dtype, str], int] = {}
    for looked, (holder, tensor) in enumerate(tensors, 1):
        if polite and looked % _YIELD_EVERY == 0:
            time.sleep(0)
        if is_lazy(tensor):
            counted.skipped["lazy"] = counted.skipped.get("lazy", 0) + 1
            continue
        for inner in inner_tensors(tensor):
            device = inner.device
            if why := _without_storage(inner, device):
                counted.skipped[why] = counted.skipped.get(why, 0) + 1
                continue
            storage = inner.untyped_storage()
            size = storage.nbytes()
            key = (device, storage.data_ptr())
            if size and key not in seen:
                seen.add(key)
                where = (device, inner.dtype, holder)
                sums[where] = sums.get(where, 0) + size
    for (device, dtype, holder), size in sums.items():
        counted.bytes.setdefault((str(device), str(dtype).removeprefix("torch.")), {})[holder] = size
    return counted


def _without_storage(tensor: torch.Tensor, device: torch.device) -> str:
    if device.type == "meta":
        return "meta"
    return "" if tensor.layout is torch.strided else "sparse"


def _has_gradient(parameter: torch.nn.Parameter) -> bool:
    return not is_lazy(parameter) and parameter.is_leaf and parameter.grad is not None


def _states(optimizers: Iterable[Any]) -> Iterator[torch.Tensor]:
    for optimizer in optimizers:
        for state in list(getattr(optimizer, "state", {}).values()):
            yield from _in_state(state)


def _in_state(state: object) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in list(state.values()):
            yield from _in_state(value)
    elif isinstance(state, (list, tuple)):
        for value in list(state):
            yield from _in_state(value)
