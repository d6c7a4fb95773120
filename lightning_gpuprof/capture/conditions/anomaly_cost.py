"""How long anomaly detection takes to note one stack, measured where it is on: what it costs is as many as nodes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_DEEPER = 18
"""Frames by which ``training_step`` is deeper than the hook that this is measured in. Lightning 2.4 to 2.6."""
_LOOKS = 3


def stack_us() -> float | None:
    """Time of one such stack in microseconds, the least of three; None where anomaly detection is off."""
    if not torch.is_anomaly_enabled():
        return None
    from torch.fx import traceback  # what torch calls for each node of the graph; with anomaly detection it is loaded

    def timed() -> float:
        begin_ns = time.perf_counter_ns()
        traceback.format_stack()
        return (time.perf_counter_ns() - begin_ns) / 1e3

    return min(_deeper(_DEEPER, timed) for _ in range(_LOOKS))


def _deeper(frames: int, call: Callable[[], float]) -> float:
    return call() if frames <= 0 else _deeper(frames - 1, call)
