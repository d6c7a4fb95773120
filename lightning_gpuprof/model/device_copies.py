"""Copies between host and device in a traced step: how many, how large, what no kernel covers."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.missing import NOT_COMPUTED, MissingSignal, Unmeasured
from lightning_gpuprof.model.numbers import decimal_size
from lightning_gpuprof.model.trace.operators import OperatorShapes

Direction = Literal["HtoD", "DtoH"]

LEAST_BYTES = 1 << 20
"""Bytes per step from which copies are about a batch rather than about single values. Heuristic."""


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of some kinds, per traced step."""

    count: float
    total_ms: float
    """Sum of their durations, which tracing does not change."""
    total_bytes: float
    names: frozenset[str]
    """Of their kinds, as the trace has them."""
    exposed_ms: float
    """What certainly no kernel covers: all exposed copies without those of other kinds."""

    @property
    def bytes_per_s(self) -> float | None:
        """None if they took no time, or have no size."""
        return self.total_bytes / (self.total_ms / 1e3) if self.total_ms > 0 and self.total_bytes > 0 else None

    def __str__(self) -> str:
        rate = "" if self.bytes_per_s is None else f" at {decimal_size(self.bytes_per_s)}/s"
        return decimal_size(self.total_bytes) + rate


class CopyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one kind, per traced step."""

    name: str
    """As ``Memcpy HtoD (Pageable -> Device)``."""
    count: float
    total_ms: float
    total_bytes: float
    median_bytes: float
    """Infinite where it is not known."""

    @property
    def is_pageable(self) -> bool | None:
        """Whether the host's memory is pageable; None: the trace does not distinguish it from pinned memory."""
        return "Pageable" in self.name if "Pageable" in self.name or "Pinned" in self.name else None


class CopiesWithin(msgspec.Struct, frozen=True, kw_only=True):
    """What ``aten::copy_`` takes of the device, per traced step; of one type to the same where shapes are known."""

    ms: float
    rows: tuple[OperatorShapes, ...]
    """The largest; empty where shapes are not known."""


class DeviceCopies(msgspec.Struct, frozen=True, kw_only=True):
    """All copies of the one device of a window, per traced step."""

    kinds: tuple[CopyKind, ...]
    all_ms: float
    """Copies and memsets."""
    all_exposed_ms: float
    """Of that: what no kernel covers."""
    pinned_bytes_per_s: float
    """What copies of pinned memory to the device reach: those of the window, else of the link, else the least."""
    pinned_source: str
    """Where that is from."""
    pinned_most_bytes_per_s: float
    """What they can reach at most: the rate of the link; infinite where it is not known."""
    within: CopiesWithin | Unmeasured = NOT_COMPUTED
    """Those within the device, with what of copies from and to the host is no kernel."""
    place_to_host: str
    """Where the host waits longest for a copy to it: the line, else the phase; empty if it waits for none."""

    def of(self, direction: Direction, *, pageable: bool | None = None, smaller_than: float | None = None) -> Copies:
        """Copies of one direction.

        Args:
            direction: To the device or from it.
            pageable: Only those whose host memory is pageable, or is not; None: all.
            smaller_than: Only kinds whose median size is below so many bytes; None: all.

        Returns:
            Per traced step; all 0 if there are none.

        Raises:
            MissingSignal: The trace does not distinguish pageable from pinned memory.
        """
        kinds = [kind for kind in self.kinds if direction in kind.name]
        if pageable is not None and any(kind.is_pageable is None for kind in kinds):
            raise MissingSignal("the trace does not distinguish pageable from pinned memory")
        chosen = [
            kind
            for kind in kinds
            if pageable in (None, kind.is_pageable) and (smaller_than is None or kind.median_bytes < smaller_than)
        ]
        total_ms = sum(kind.total_ms for kind in chosen)
        others_ms = max(0.0, self.all_ms - total_ms)
        return Copies(
            count=sum(kind.count for kind in chosen),
            total_ms=total_ms,
            total_bytes=sum(kind.total_bytes for kind in chosen),
            names=frozenset(kind.name for kind in chosen),
            exposed_ms=max(0.0, min(total_ms, self.all_exposed_ms - others_ms)),
        )
