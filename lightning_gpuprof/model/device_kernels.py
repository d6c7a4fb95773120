"""Trace windows with kernels, and device time per untraced step: what rules on kernels share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.device_step import STARVED_RATIO
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.kernels import KernelFacts, KernelRow, SavingRow
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.model.window import WindowFacts

_KERNEL_NAME_LENGTH = 60
_LAYOUT_CHANGE = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)

Sizes = tuple[int, ...]

ProductKind = Literal["all", "matrix products", "convolutions"]
"""Matrix products include those of attention."""


class DeviceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window of training steps in which a device worked."""

    facts: WindowFacts
    analysis: TraceAnalysis
    kernels: KernelFacts
    steps: int
    attention: AttentionOperators | None
    """Without a fused kernel; None: recorded without shapes."""
    misaligned: tuple[MisalignedProduct, ...] | None
    """None: no product of known shape."""

    @property
    def unfilled(self) -> list[SavingRow]:
        """Kernels with fewer blocks than the device has multiprocessors."""
        return [row for row in self.kernels.savings if row.kind == "idle multiprocessors"]

    def slow_misaligned(self, slower_ratio: float) -> list[MisalignedProduct]:
        """Misaligned products that reach less of the roofline than so much of what aligned ones do."""
        compared = [one for one in self.misaligned or () if one.peer_ratio]
        return [one for one in compared if one.reached_ratio < slower_ratio * (one.peer_ratio or 0.0)]

    @property
    def has_equal_convolutions(self) -> bool | None:
        """Whether each shape of convolutions occurs equally often in all steps; None: shapes are not known."""
        shapes = self.analysis.operators.shapes if self.analysis.operators is not None else None
        rows = [row for row in shapes or () if "conv" in row.operator and row.device_self_us and row.input_shape]
        return self.steps > 1 and not any(row.occurrences % self.steps for row in rows) if rows else None

    def long_kernels(self, least_us: float) -> list[KernelRow]:
        """Kernels of at least this length on average, without communication."""
        rows = self.kernels.kernels
        return [row for row in rows if row.average_us >= least_us and row.kernel_class != "communication"]

    @property
    def layout_changes(self) -> list[KernelRow]:
        """Kernels of cuDNN that only change the layout, among the longest; those that compute are named differently."""
        return [row for row in self.kernels.kernels if row.kernel_class == "copy" and _LAYOUT_CHANGE.search(row.name)]

    def per_step_ms(self, device_us: float) -> float:
        """Durations of kernels as ms of a step: where streams overlap, the sum of all kernels becomes the busy time."""
        busy_us = sum(device.busy_us for device in self.facts.devices)
        overlap = min(1.0, busy_us / self.kernels.total_us) if self.kernels.total_us > 0 else 1.0
        return device_us * overlap / 1e3 / self.steps


class DeviceRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose windows hold device work."""

    period_ms: float
    """Of untraced steady steps: tracing slows the host down, hardly the device."""
    steady_steps: int
    windows: tuple[DeviceWindow, ...]
    starved_ratio: float
    """Share of an untraced step in which the device is idle that no phase beside the model's own explains, but for the
    wait for workers that are behind."""
    off_tensor_cores: Mapping[ProductKind, OffTensorCores] | Unmeasured
    """fp32 products on CUDA cores, by kind; empty if the device has no tensor cores."""
    pointwise: Pointwise | Unmeasured

    @property
    def tensor_cores_known(self) -> bool:
        """Whether all windows with products say if their device has tensor cores."""
        return all(w.kernels.tensor_cores is None or w.kernels.tensor_cores.available is not None for w in self.windows)

    @property
    def is_host_paced(self) -> bool:
        """Whether shorter kernels would only lengthen the device's wait for the host."""
        return self.starved_ratio >= STARVED_RATIO

    def rated(self, least_known_ratio: float) -> list[tuple[DeviceWindow, float]]:
        """Windows with the MFU of untraced steps: that of their steps, at the step time without tracing.

        FLOPs and peak have to be known of at least that share of the products.
        """
        found = []
        for window in self.windows:
            roofline, unknown = window.analysis.roofline, 1.0 - least_known_ratio
            if roofline is None or roofline.steps is None or roofline.steps.mfu_ratio is None:
                continue
            known = (roofline.coverage_ratio or 0.0) >= least_known_ratio
            mfu = roofline.steps.mfu_ratio * roofline.steps.seconds * 1e3 / window.steps / self.period_ms
            if known and (roofline.faster_flops_ratio or 0.0) <= unknown and 0 < mfu <= 1:
                found.append((window, mfu))
        return found

    def cost(self, time: Measured) -> Cost:
        """What kernels cost a step."""
        return Cost(ms=time.ms, lower_ms=time.lower_ms, step_ms=self.period_ms, steps=self.steady_steps)

    def per_step(self, of_window_us: Callable[[DeviceWindow], float]) -> Cost:
        """What kernels cost a step, by their us in each window; raises MissingSignal for impossible ones."""
        return self.cost(Measured.over([window.per_step_ms(of_window_us(window)) for window in self.windows]))


class Pointwise(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that multiply nothing: pointwise ones, normalisations and reductions."""

    time: Measured
    """Of all."""
    elementwise: Measured
    """Of pointwise ones."""
    bandwidth_ratio: float | None
    """Share of the memory's bandwidth that those of known shapes reach; None: not known."""
    names: list[str]
    """The longest operators of known shapes, with these."""


def is_ordinary(facts: WindowFacts) -> bool:
    """Whether a window shows ordinary steps, with hardly any work that was launched before it."""
    return bool(facts.device_work) and not facts.has_earlier_work and not facts.is_on_slow_step


def class_us(window: DeviceWindow, *classes: str) -> float:
    """Time of all kernels of some classes, in microseconds of the window."""
    return sum(row.total_us for row in window.kernels.classes if row.kernel_class in classes)


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


class ScoresOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that reads or writes matrices of scores."""

    kind: Literal["softmax", "pointwise", "product"]
    scores: frozenset[Sizes]
    """Shapes of the scores, as the softmax has them: batch, heads, query length, key length."""
    device_us: float


class UnfusedAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Time of attention without a fused kernel, in microseconds of the window."""

    scores: Sizes
    """Shape of the scores that take longest."""
    pieces_us: float
    """Softmax, scaling, masks, dropout and copies: what a fused kernel keeps on the chip."""
    products_us: float


class AttentionOperators(msgspec.Struct, frozen=True, kw_only=True):
    """All such operators of a window."""

    operators: tuple[ScoresOperator, ...]

    def unfused(self, least_length: int) -> UnfusedAttention | None:
        """Those on matrices of at least this many rows and columns; None if there are none."""
        softmaxes = [
            one
            for one in self.operators
            if one.kind == "softmax" and all(min(scores[-2:]) >= least_length for scores in one.scores)
        ]
        if not softmaxes:
            return None
        shapes = frozenset[Sizes]().union(*(one.scores for one in softmaxes))
        others = [one for one in self.operators if one.kind != "softmax" and one.scores & shapes]
        (largest,) = max(softmaxes, key=lambda one: one.device_us).scores
        return UnfusedAttention(
            scores=largest,
            pieces_us=sum(one.device_us for one in (*softmaxes, *others) if one.kind != "product"),
            products_us=sum(one.device_us for one in others if one.kind == "product"),
        )


class OffTensorCores(msgspec.Struct, frozen=True, kw_only=True):
    """Time of fp32 products on CUDA cores, per step."""

    time: Measured
    saved: Measured
    """``ms`` with the full ratio of the peaks, ``lower_ms`` with the part of it that is surely reached."""
    peak_ratio: float
    """Peak of the tensor cores over that of the CUDA cores."""
    faster_dtype: str | None
    """None: the device is in no table of peaks."""
    names: tuple[str, ...]
    """The longest kernels, short."""


class MisalignedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product with a size that is no multiple of what tensor cores load at once."""

    row: RooflineRow
    size: int
    multiple: int
    """Of elements, that its type needs."""
    peer_ratio: float | None
    """Share of the roofline that products of similar work reach whose sizes fit; None: there are none."""

    @property
    def reached_ratio(self) -> float:
        """Share of the roofline that it reaches."""
        return self.row.ceiling_ratio or 0.0

    @property
    def saved_us(self) -> float:
        """At the peers' share of the roofline; 0 if it is as good."""
        return self.row.device_us * max(0.0, 1.0 - self.reached_ratio / self.peer_ratio) if self.peer_ratio else 0.0
