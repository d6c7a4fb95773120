"""An allocator for tests: it counts, runs out of memory and records its history as torch's does."""

import copy
import sys
import threading
import time
from collections import Counter
from typing import Any

import torch

MIB = 1 << 20
SEGMENT_BYTES = 20 * MIB


class FakeAllocator:
    """A device's memory; :meth:`alloc` and :meth:`free` are what tensors would do.

    Args:
        total_bytes: Of the device.
        held: Bytes that are allocated before anything else.
    """

    name = "gpu0"
    device = "cuda:0"
    index = 0

    def __init__(self, total_bytes: int = 1 << 30, held: int = 0) -> None:
        self.total_bytes: int | None = total_bytes
        self.calls: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.broken = ""
        self.raised: BaseException | None = None
        self.users_history = False
        self.retries = 0
        self.allocations = 0
        self.device_allocs = 0
        self.device_frees = 0
        self._pieces: dict[int, tuple[int, list[dict[str, Any]]]] = {}
        self._next = 0x7F0000000000
        self._stats = {"allocated": 0, "allocated_peak": 0, "reserved": 0, "reserved_peak": 0}
        self._history: list[dict[str, Any]] | None = None
        if held:
            self.alloc(held)

    # What tensors do --------------------------------------------------------------------------------------------------

    def alloc(self, size: int) -> int:
        """Allocate; returns the address.

        Raises:
            torch.OutOfMemoryError: As torch words it.
        """
        stats = self._stats
        while stats["allocated"] + size > stats["reserved"]:
            if stats["reserved"] + SEGMENT_BYTES > (self.total_bytes or 0):
                self.retries += 1
                self._note("oom", None, size)
                self.raised = torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB. GPU 0 has a total capacity of "
                    f"{(self.total_bytes or 0) / 2**30:.2f} GiB of which "
                    f"{((self.total_bytes or 0) - stats['reserved']) / MIB:.2f} MiB is free. Of the allocated memory "
                    "it is not said here. If reserved but unallocated memory is large try setting "
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
                )
                raise self.raised
            stats["reserved"] += SEGMENT_BYTES
            self.device_allocs += 1
        stats["allocated"] += size
        self.allocations += 1
        for name in ("allocated", "reserved"):
            stats[f"{name}_peak"] = max(stats[f"{name}_peak"], stats[name])
        address, self._next = self._next, self._next + size
        self._pieces[address] = (size, _stack())
        self._note("alloc", address, size, self._pieces[address][1])
        return address

    def free(self, address: int) -> None:
        """Give an address back."""
        size, _ = self._pieces.pop(address)
        self._stats["allocated"] -= size
        self._note("free_requested", address, size)

    def empty_cache(self) -> None:
        """Give back the segments that hold nothing, as ``torch.cuda.empty_cache`` does."""
        unused = (self._stats["reserved"] - self._stats["allocated"]) // SEGMENT_BYTES
        self._stats["reserved"] -= unused * SEGMENT_BYTES
        self.device_frees += unused

    def statistics(self) -> dict[str, int]:
        """What the user sees of it; nothing of ours may change it."""
        return copy.copy(self._stats)

    # What the profiler reads ------------------------------------------------------------------------------------------

    def read(self) -> dict[str, Any]:
        self._called("read")
        stats = self._stats

        def of(current: int, peak: int) -> dict[str, Any]:
            return {"all": {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}}

        return {
            "allocated_bytes": of(stats["allocated"], stats["allocated_peak"]),
            "reserved_bytes": of(stats["reserved"], stats["reserved_peak"]),
            "active_bytes": of(stats["allocated"], stats["allocated_peak"]),
            "inactive_split_bytes": of(stats["reserved"] - stats["allocated"], 0),
            "segment": of(stats["reserved"] // SEGMENT_BYTES, 0),
            "allocation": {"all": {"current": len(self._pieces), "allocated": self.allocations}},
            "num_alloc_retries": self.retries,
            "num_ooms": 0,
            "num_device_alloc": self.device_allocs,
            "num_device_free": self.device_frees,
        }

    def records_history(self) -> bool:
        self._called("records_history")
        return self.users_history or self._history is not None

    def start_history(self) -> None:
        self._called("start_history")
        assert not self.users_history, "the user's history was taken over"
        self._history = []

    def stop_history(self) -> None:
        self._called("stop_history")
        assert not self.users_history, "the user's history was stopped"
        self._history = None

    def record_for_the_user(self) -> None:
        """As if the user had called ``_record_memory_history``."""
        self.users_history = True
        self._history = []

    def snapshot(self) -> dict[str, Any]:
        self._called("snapshot")
        blocks = [
            {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
            for address, (size, frames) in self._pieces.items()
        ]
        spare = self._stats["reserved"] - self._stats["allocated"]
        blocks += [
            {"address": 1, "size": part, "state": "inactive"} for part in (spare // 2, spare - spare // 2) if part
        ]
        segment = {"device": 0, "address": 0, "total_size": self._stats["reserved"], "blocks": blocks}
        return {"segments": [segment], "device_traces": [list(self._history or [])]}

    # ------------------------------------------------------------------------------------------------------------------

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        self.threads.add(threading.get_ident())
        if self.broken == name:
            raise RuntimeError(f"allocator lost in {name}")

    def _note(self, action: str, address: int | None, size: int, frames: list[dict[str, Any]] | None = None) -> None:
        if self._history is None:
            return
        entry: dict[str, Any] = {"action": action, "size": size, "stream": 0, "time_us": time.time_ns() // 1000}
        if address is None:
            entry["device_free"] = 0
        else:
            entry["addr"] = address
        if action == "alloc":
            entry["frames"] = frames
        self._history.append(entry)


def _stack() -> list[dict[str, Any]]:
    """The callers, innermost first, as torch gathers them."""
    frame, found = sys._getframe(2), []
    while frame is not None and len(found) < 60:
        found.append({"filename": frame.f_code.co_filename, "line": frame.f_lineno, "name": frame.f_code.co_name})
        frame = frame.f_back  # type: ignore[assignment]
    return [{"filename": "??", "line": 0, "name": "c10::Allocator::allocate"}, *found]
