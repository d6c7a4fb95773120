"""What allocated memory in a window, and what held it when most was held, as plain data."""

import msgspec

from lightning_gpuprof.model.trace.attribution import SourceLine
from lightning_gpuprof.model.trace.operators import OperatorPhase


class OperatorMemory(msgspec.Struct, kw_only=True, frozen=True):
    """What all calls of one operator in one phase allocated, in bytes. Frees are not subtracted."""

    operator: str
    """Empty for what was allocated outside of operators."""
    phase: OperatorPhase
    allocations: int
    """By the operator itself, not by operators inside it; likewise below."""
    self_bytes: int
    total_bytes: int
    """With operators inside."""
    largest_bytes: int
    """The largest single allocation."""
    peak_bytes: int
    """Still held at the peak."""


class ModuleMemory(msgspec.Struct, kw_only=True, frozen=True):
    """What a module's forward and backward allocated, in bytes, with the modules inside it."""

    path: tuple[str, ...]
    """From the outermost module to this one."""
    allocated_bytes: int
    self_bytes: int
    """Without the modules inside."""
    peak_bytes: int
    """Still held at the peak."""


class LineMemory(msgspec.Struct, kw_only=True, frozen=True):
    """What the operators that a line of your code called, and their backward, allocated; bytes."""

    line: SourceLine
    allocations: int
    allocated_bytes: int
    peak_bytes: int
    """Still held at the peak."""


class LivePiece(msgspec.Struct, kw_only=True, frozen=True):
    """An allocation of the window that was held at the peak."""

    size_bytes: int
    operator: str
    """The innermost; empty outside of operators."""
    phase: OperatorPhase
    module: str
    """As in ``named_modules()``; of a backward pass that of its forward. Empty: not known."""
    line: SourceLine | None
    """Of your code, likewise; None without stacks."""
    age_us: float
    """Allocated so long before the peak."""


class DeviceMemoryUse(msgspec.Struct, kw_only=True, frozen=True):
    """What was allocated on one device in a window, or in the host's memory by torch's CPU allocator."""

    device: int | None
    """Number of the GPU; None for the host."""
    allocations: int
    allocated_bytes: int
    """All allocations summed."""
    freed_bytes: int
    begin_bytes: int
    """Held before the first of them. On the host: older memory that the window frees, as torch does not count it."""
    end_bytes: int
    peak_bytes: int
    """Most that was held at a time, the start among them."""
    peak_us: float
    """When, from the first allocation on."""
    older_bytes: int
    """Held at the peak, and allocated before the window."""
    curve_us: tuple[float, ...]
    """Times from the first allocation on."""
    curve_bytes: tuple[int, ...]
    """Most that was held from each time to the next."""
    operators: tuple[OperatorMemory, ...]
    """Most bytes of their own first."""
    modules: tuple[ModuleMemory, ...]
    """Most allocated first, an outer one before those inside it; empty if the window names none."""
    lines: tuple[LineMemory, ...]
    """Most allocated first; empty without stacks."""
    pieces: tuple[LivePiece, ...]
    """Largest first."""
    pieces_count: int
    """All of them: the smallest may have been left out."""


class WindowMemory(msgspec.Struct, kw_only=True, frozen=True):
    """The memory of a window: the host's first, then each device's; empty if allocations were not recorded."""

    devices: tuple[DeviceMemoryUse, ...] = ()
