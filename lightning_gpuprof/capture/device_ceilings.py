"""Measures the rates that large products and copies reach on a device, for rooflines."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.trace.roofline import MeasuredCeilings

SIDE = 8192
"""Rows and columns: 1.1 TFLOP, 1.6 ms on an H100 in bf16, and large enough to fill it."""
COPIED_BYTES = 1 << 30
"""Far more than any cache holds."""
REPEATS = 10
"""The fastest counts: the ceiling is what can be reached."""
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def measure_ceilings(
    device: str = "cuda", *, side: int = SIDE, copied_bytes: int = COPIED_BYTES, repeats: int = REPEATS
) -> MeasuredCeilings:
    """Measure a device, which takes seconds and some GB of its memory. Nothing else should run on it.

    Args:
        device: As torch names it.
        side: Of the square matrices.
        copied_bytes: Size of the copy.
        repeats: Runs of each, after one that does not count.

    Returns:
        The rate of the fastest run of each; ``tf32`` only of a GPU that has it.

    Raises:
        ArgumentError: Torch finds no such device here.
    """
    try:
        where = torch.device(device)
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        raise ArgumentError("device", device, "be a device that torch finds here", str(error).splitlines()[0]) from None
    allowed = torch.backends.cuda.matmul.allow_tf32
    flops_per_s: dict[str, float] = {}
    try:
        for name, dtype in _DTYPES.items():
            if name == "tf32" and (where.type != "cuda" or torch.cuda.get_device_capability(where) < (8, 0)):
                continue
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            left, right = (torch.randn(side, side, device=where).to(dtype) for _ in range(2))
            out = torch.empty(side, side, device=where, dtype=dtype)
            seconds = _fastest_s(where, partial(torch.mm, left, right, out=out), repeats)
            flops_per_s[name] = 2 * side**3 / seconds
            del left, right, out
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    source = torch.empty(copied_bytes, dtype=torch.uint8, device=where)
    target = torch.empty_like(source)
    seconds = _fastest_s(where, lambda: target.copy_(source), repeats)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return MeasuredCeilings(device=name, flops_per_s=flops_per_s, bytes_per_s=2 * copied_bytes / seconds)


def _fastest_s(device: torch.device, work: Callable[[], Any], repeats: int) -> float:
    """Of so many runs, on the device's clock where it has one."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return min(times)
