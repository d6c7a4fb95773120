"""The one place that knows torch's allocator, its private names included, and which tensors lie inside of others.

Read in torch 2.4 to 2.13; without a GPU only the types of these calls could be checked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_LAZY = frozenset({torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer})

MAX_ENTRIES = 100_000
"""Events that a history keeps, the last ones; with its Python stack one takes about a kilobyte."""


class Allocator:
    """torch's caching allocator on a CUDA device that is in use.

    Nothing here waits for the device, and nothing changes a statistic of the user's.

    Args:
        index: The device's number for torch.
        name: As in the journal's samples: ``gpu0``.
    """

    def __init__(self, index: int, name: str = "gpu0") -> None:
        self.name = name
        self.index = index
        self.device = f"cuda:{index}"
        self.total_bytes: int | None = int(torch.cuda.get_device_properties(index).total_memory)
        # `torch.cuda.memory_stats` sorts and flattens what this gives, for 100 µs more.
        self._stats: Any = torch._C._cuda_memoryStats

    def read(self) -> Mapping[str, Any]:
        """Its counters as torch nests them: ``read()["allocated_bytes"]["all"]["peak"]``; no call of CUDA."""
        counters: Mapping[str, Any] = self._stats(self.index)
        return counters

    def records_history(self) -> bool:
        """Whether allocations are recorded, by whomever; also where this torch cannot say: it may be the user's."""
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        return True if enabled is None else bool(enabled())

    def start_history(self) -> None:
        """Record allocations with their Python stacks from now on; C++ frames take ten times as long to name."""
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MAX_ENTRIES)

    def stop_history(self) -> None:
        """End that; what was recorded is forgotten."""
        torch.cuda.memory._record_memory_history(None)

    def snapshot(self) -> Mapping[str, Any]:
        """Segments with their blocks, and what was recorded. Holds the interpreter meanwhile, about 10 µs an event."""
        taken: Mapping[str, Any] = torch.cuda.memory._snapshot()
        return taken


def allocator_for(device: torch.device) -> Allocator | None:
    """The allocator of the trainer's device, or None where there is none of this kind.

    Never initialises a device. With ``backend:cudaMallocAsync`` and with pluggable allocators there are no such
    counters.
    """
    cuda: Any = torch.cuda
    if device.type != "cuda" or not cuda.is_initialized():
        return None
    if torch.cuda.get_allocator_backend() != "native":
        return None
    return Allocator(torch.cuda.current_device() if device.index is None else device.index)


def inner_tensors(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The tensors that hold a tensor's memory in this process: itself, or what a wrapper holds.

    A DTensor gives its local part, a quantised tensor its data and scales: all that torch calls traceable wrappers.
    """
    if type(tensor) in _PLAIN:
        return (tensor,)
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return (tensor,)
    found: list[torch.Tensor] = []
    for name in flatten()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):
            found += inner_tensors(inner)
    return found


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return type(tensor) in _LAZY  # `isinstance` asks the metaclass of parameters, which takes its time


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the allocator of a device found no memory."""
    return isinstance(error, torch.cuda.OutOfMemoryError)  # the same class as torch.OutOfMemoryError, in older ones too


_SIZES = (
    ("allocated_bytes", "allocated_bytes", "current"),
    ("allocated_peak_bytes", "allocated_bytes", "peak"),
    ("reserved_bytes", "reserved_bytes", "current"),
    ("reserved_peak_bytes", "reserved_bytes", "peak"),
    ("active_bytes", "active_bytes", "current"),
    ("requested_bytes", "requested_bytes", "current"),
    ("inactive_split_bytes", "inactive_split_bytes", "current"),
    ("segments_count", "segment", "current"),
    ("allocations_count", "allocation", "current"),
    ("allocations_total_count", "allocation", "allocated"),
    ("allocated_total_bytes", "allocated_bytes", "allocated"),
)
"""Value, counter, which of its four numbers; over pools of all sizes."""

_COUNTS = (
    ("retries_count", "num_alloc_retries"),
    ("ooms_count", "num_ooms"),
    ("device_allocs_count", "num_device_alloc"),
    ("device_frees_count", "num_device_free"),
    ("stream_syncs_count", "num_sync_all_streams"),
)


def sample_values(counters: Mapping[str, Any]) -> dict[str, float | None]:
    """The counters that analyses read, by name; one that this torch does not have is left out."""
    values: dict[str, float | None] = {}
    for name, counter, number in _SIZES:
        found = counters.get(counter, {}).get("all", {}).get(number)
        if isinstance(found, int):
            values[name] = float(found)
    for name, counter in _COUNTS:
        found = counters.get(counter)
        if isinstance(found, int):
            values[name] = float(found)
    return values
