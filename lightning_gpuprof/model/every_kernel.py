"""Kernels of every step of a run, as plain data."""

import msgspec


class KernelOfSteps(msgspec.Struct, kw_only=True, frozen=True):
    """One kernel over the steps in which it ran; times are its sum in a step."""

    name: str
    calls_per_step: float
    """Over all recorded steps."""
    median_us: float
    p95_us: float
    max_us: float
    max_batch: int
    """``total_batch_idx`` of the step during which it took longest; the host may be some steps ahead."""
    share: float
    """Of the time of all kernels."""


class EveryKernel(msgspec.Struct, kw_only=True, frozen=True):
    """What ``trace.every_kernel`` recorded."""

    steps: int
    """With kernels."""
    kernels_per_step: float
    device_us_per_step: float
    """Durations added up, concurrent ones included."""
    kernels: tuple[KernelOfSteps, ...]
    """Most time first."""
    lost: int = 0
    """Kernels that were not recorded, or of which too many came outside of steps."""
