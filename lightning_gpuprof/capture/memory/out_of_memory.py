"""What an out-of-memory exception says of its moment."""

import re
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from lightning_gpuprof.capture.memory.backend import is_out_of_memory

_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"([\d.]+) (bytes|[KMGT]iB|B)"
_PATTERNS = {
    "requested_bytes": (rf"[Tt]ried to allocate {_SIZE}",),
    "total_bytes": (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"),
    "device_free_bytes": (rf"of which {_SIZE} is free", rf"; {_SIZE} free"),
}
"""As torch 2.4 to 2.13 puts it, then as older ones did."""

_OF_CPU = "DefaultCPUAllocator: "
_MAX_CHAIN = 8

_PHASE_OF_FUNCTION = {
    "batch_to_device": "h2d",
    "training_step": "forward",
    "backward": "backward",
    "manual_backward": "backward",
    "optimizer_zero_grad": "zero_grad",
    "optimizer_step": "optimizer",
    "validation_step": "validation",
    "test_step": "forward",
    "predict_step": "forward",
}
"""Functions of Lightning and of the model between the loop and the failure; the innermost one counts."""
_LONGEST_LINE = 300


def out_of_memory_in(error: BaseException | None) -> BaseException | None:
    """The out-of-memory that an exception is or was raised from, of a device or of the CPU; else None."""
    for _ in range(_MAX_CHAIN):
        if error is None or is_out_of_memory(error) or isinstance(error, MemoryError):
            return error
        if isinstance(error, RuntimeError) and _OF_CPU in str(error):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def sizes_in(message: str) -> dict[str, int]:
    """Bytes by name, of those that torch's message has."""
    found: dict[str, int] = {}
    for name, patterns in _PATTERNS.items():
        for pattern in patterns:
            if match := re.search(pattern, message):
                found[name] = round(float(match.group(1).rstrip(".")) * _UNITS[match.group(2)])
                break
    return found


def first_line(message: str) -> str:
    """Of an exception's message, as far as a report shows it."""
    line = message.strip().partition("\n")[0]
    line = line.partition(" If reserved but unallocated memory")[0]  # advice, which is the rules' part
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


def phase_and_place(trace: TracebackType | None, site_of: Callable[[FrameType, int], str | None]) -> tuple[str, str]:
    """The phase that an exception was raised in, and the innermost line of the user's code.

    Args:
        trace: The exception's, which is only walked.
        site_of: Names a frame and line of the user's code; None for a library's.

    Returns:
        The phase, and the line as ``site_of`` names it; each is empty if unknown.
    """
    phase, place = "", ""
    for frame, line in traceback.walk_tb(trace):
        phase = _PHASE_OF_FUNCTION.get(frame.f_code.co_name, phase)
        place = site_of(frame, line) or place
    return phase, place
