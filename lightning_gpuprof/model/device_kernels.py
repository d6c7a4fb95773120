"""Trace windows with kernels, and device time per untraced step: what rules on kernels share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.device_step import STARVED_RATIO
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.kernels import KernelFacts, KernelRow
from lightning_gpuprof.model.window import WindowFacts

_KERNEL_NAME_LENGTH = 60


@dataclass(frozen=True, kw_only=True)
class DeviceWindow:
    """A window of training steps in which a device worked."""

    facts: WindowFacts
    analysis: TraceAnalysis
    kernels: KernelFacts
    steps: int

    def per_step_ms(self, device_us: float) -> float:
        """Durations of kernels as ms of a step: where streams overlap, the sum of all kernels becomes the busy time."""
        busy_us = sum(device.busy_us for device in self.facts.devices)
        overlap = min(1.0, busy_us / self.kernels.total_us) if self.kernels.total_us > 0 else 1.0
        return device_us * overlap / 1e3 / self.steps


@dataclass(frozen=True, kw_only=True)
class DeviceRun:
    """A run whose windows hold device work."""

    period_ms: float
    """Of untraced steady steps: tracing slows the host down, hardly the device."""
    windows: tuple[DeviceWindow, ...]
    starved_ratio: float
    """Share of an untraced step in which the device is idle that no phase beside the model's own explains, but for the
    wait for workers that are behind."""

    @property
    def is_host_paced(self) -> bool:
        """Whether shorter kernels would only lengthen the device's wait for the host."""
        return self.starved_ratio >= STARVED_RATIO

    def measure(self, of_window: Callable[[DeviceWindow], float]) -> Measured:
        """A time per step over all windows.

        Args:
            of_window: The time of one window in ms per step.
        """
        return Measured.over([of_window(window) for window in self.windows])


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A time per step: the median over the windows, and the least of them as its lower bound."""

    ms: float
    lower_ms: float

    @staticmethod
    def over(values_ms: Sequence[float]) -> Measured:
        """Of one value per window; none is 0 ms.

        Raises:
            MissingSignal: A value is no possible time.
        """
        if not all(map(possible, values_ms)):
            raise MissingSignal("a kernel time of a trace window is no possible number")
        ordered = sorted(values_ms)
        if not ordered:
            return Measured(ms=0.0, lower_ms=0.0)
        return Measured(ms=ordered[(len(ordered) - 1) // 2], lower_ms=ordered[0])


def is_ordinary(facts: WindowFacts) -> bool:
    """Whether a window shows ordinary steps, with hardly any work that was launched before it."""
    return bool(facts.device_work) and not facts.has_earlier_work and not facts.is_on_slow_step


def class_us(window: DeviceWindow, *classes: str) -> float:
    """Time of all kernels of some classes, in microseconds of the window."""
    return sum(row.total_us for row in window.kernels.classes if row.kernel_class in classes)


def kernel_rows_us(window: DeviceWindow, wanted: Callable[[KernelRow], bool]) -> float:
    """Time of wanted kernels among the longest that a report keeps: a lower bound, in microseconds of the window.

    Args:
        window: Of steps.
        wanted: Whether a kernel counts.
    """
    return sum(row.total_us for row in window.kernels.kernels if wanted(row))


def short_name(name: str) -> str:
    """A kernel's name without its return type, template arguments and parameters."""
    bare = re.sub(r"^void |\(anonymous namespace\)::", "", name)
    wrapped = re.match(r"[\w:]*\bKernel\d?<(\w+)", bare)  # CUTLASS: the template argument is the name
    bare = wrapped[1] if wrapped else re.split(r"[<(]", bare, maxsplit=1)[0]
    return bare if len(bare) <= _KERNEL_NAME_LENGTH else f"{bare[:_KERNEL_NAME_LENGTH]}…"


def sizes(shape: str) -> tuple[int, ...]:
    """Sizes of a tensor from its text ``32x3x224``; empty for one without dimensions, a list, or what is no shape."""
    parts = shape.strip().split("x")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


def input_sizes(input_shape: str) -> list[tuple[int, ...]]:
    """Sizes of each tensor of ``32x64, 64x128``; lists of tensors are left out."""
    return [sizes(one) for one in re.sub(r"\[[^\]]*\]", "", input_shape).split(",") if one.strip()]
