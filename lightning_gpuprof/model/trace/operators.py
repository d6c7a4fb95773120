"""What the operators of a window did: by type, in detail and by the shapes of their inputs, as plain data."""

from typing import Literal, get_args

import msgspec

OperatorPhase = Literal["data_wait", "forward", "backward", "optimizer", "other"]
"""What an operator was run for: ``data_wait`` holds the fetch and what makes the batch in the main process,
``optimizer`` the clearing and clipping of gradients, too."""

OPERATOR_PHASES: tuple[OperatorPhase, ...] = get_args(OperatorPhase)

Side = Literal["host", "device"]


class OperatorType(msgspec.Struct, kw_only=True, frozen=True):
    """All operators of one type; no time is in two types. Microseconds.

    Host times are inflated by tracing, device times hardly.
    """

    type: str
    """The operator's name without its namespace: ``mm`` of ``aten::mm``."""
    occurrences: int
    host_self_us: float
    """Time in these operators without the operators inside them."""
    host_average_us: float
    host_ratio: float | None
    """Of the self time of all operators."""
    device_self_us: float | None
    """Of device work that these operators launched themselves."""
    device_average_us: float | None
    device_ratio: float | None
    """Of all device work of the window."""


class OperatorDetail(msgspec.Struct, kw_only=True, frozen=True):
    """All calls of one operator in one phase, microseconds.

    The time of a call inside another call of the same operator and phase counts once.
    """

    operator: str
    phase: OperatorPhase
    occurrences: int
    host_total_us: float
    """With the operators inside."""
    host_self_us: float
    host_average_us: float
    device_total_us: float | None
    """Of all device work launched inside."""
    device_self_us: float | None
    """Of work that the operator launched itself."""
    device_average_us: float | None
    device_work: int
    module: str | None = None
    """The module with most of its self time, on the device if there is device work: ``encoder.layers.0``, of a backward
    that of its forward. None: no call in a module, or the trace names none."""
    other_modules: int = 0
    """Modules beside it."""


class OperatorShapes(msgspec.Struct, kw_only=True, frozen=True):
    """All calls of one operator in one phase with inputs of the same shapes and types."""

    operator: str
    phase: OperatorPhase
    input_shape: str
    """Of each tensor: ``32x3x224x224, 64x3x7x7``; empty if no input is a tensor."""
    dtype: str
    """Of the tensors, each type once; empty if not recorded."""
    occurrences: int
    host_total_us: float
    host_self_us: float
    host_average_us: float
    device_total_us: float | None
    device_self_us: float | None
    device_average_us: float | None
    flops_per_call: float | None
    """Lower bound by the operator's formula, a multiply-add counts 2; the mean if calls differ. None if there is no
    formula."""
    flops_per_s: float | None
    """FLOPs of the calls that launched device work, over its time."""


class Operators(msgspec.Struct, kw_only=True, frozen=True):
    """The operators of a window, by device self time, or by host self time without device work."""

    filter: str = ""
    """Names that were asked for; empty for all."""
    calls: int
    host_self_us: float
    """Over all threads."""
    device_us: float | None
    """Of all device work of the window."""
    attributed_device_us: float | None
    """The part launched inside operators."""
    types: tuple[OperatorType, ...] = ()
    operators: tuple[OperatorDetail, ...] = ()
    shapes: tuple[OperatorShapes, ...] | None = None
    """None if the window was recorded without shapes."""
    shapes_left_out: int = 0


class OperatorAnalysis(msgspec.Struct, kw_only=True, frozen=True):
    """What one operator did in one phase with one shape of inputs, on one side; microseconds."""

    side: Side
    """``host``: the calls themselves. ``device``: the work that they launched, with all operators inside."""
    operator: str
    phase: OperatorPhase
    input_shape: str | None
    """As in :class:`OperatorShapes`; None if shapes were not recorded."""
    dtype: str | None
    occurrences: int
    """Calls on the host; kernels, copies and memsets on the device."""
    total_us: float
    average_us: float
    """Per occurrence."""
    device_total_us: float | None
    """Device time of all calls, on both sides the same; None if they launched nothing."""
    device_average_us: float | None
    """Device time per call."""
    flops_per_call: float | None
    flops_per_s: float | None
    """FLOPs of the calls that launched device work, over its time."""
