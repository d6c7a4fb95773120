"""Two traces compared: what got slower or faster, appeared or vanished, per step."""

from typing import Literal

import msgspec

Unit = Literal["step", "window"]
Status = Literal["slower", "faster", "same", "appeared", "vanished"]
"""``same``: less than 2 % apart, as one run's windows are among themselves."""


class ComparedTrace(msgspec.Struct, kw_only=True, frozen=True):
    """One of the two traces."""

    name: str
    gpu: str | None
    rank: int | None
    world_size: int | None
    steps: int
    units: int
    """What totals were divided by: the steps, or 1 where values are per window."""
    period_us: float
    """Mean length of a step; of the window where values are per window."""
    period_min_us: float
    period_max_us: float


class Change(msgspec.Struct, kw_only=True, frozen=True):
    """A time before and after, microseconds per unit."""

    name: str
    before_us: float
    after_us: float
    change_us: float
    """After minus before: above 0 is slower."""
    before_count: float
    """Occurrences per unit; 0 means that it is not there. Of a phase, the ranges that name it."""
    after_count: float
    status: Status


class OperatorChange(msgspec.Struct, kw_only=True, frozen=True):
    """An operator before and after: its own host time, and the device time that it launched itself."""

    host: Change
    device: Change | None
    """None if one of the traces has no device work."""


class DeviceTimes(msgspec.Struct, kw_only=True, frozen=True):
    """A device inside the steps, or the window, microseconds per unit. ``busy_us + idle_us`` is the step time."""

    busy_us: float
    """Union of kernels and copies."""
    idle_us: float
    computation_us: float
    """Union of kernels that do not communicate."""
    communication_us: float
    """Union of those that do."""
    exposed_us: float
    """Communication that does not overlap with computation."""


class DeviceChange(msgspec.Struct, kw_only=True, frozen=True):
    """A device before and after; the only device of a trace is compared with the only one of the other."""

    device: str
    before: DeviceTimes | None
    after: DeviceTimes | None


class Differences(msgspec.Struct, kw_only=True, frozen=True):
    """What differs between two traces; rows by absolute change, largest first.

    With steps, what counts is what was launched inside of them.
    """

    unit: Unit
    before: ComparedTrace
    after: ComparedTrace
    period_change_us: float
    devices: tuple[DeviceChange, ...]
    phases: tuple[Change, ...]
    """Host time of the training's thread; the backward of autograd's threads counts while that names no phase. With
    ``none``, what no range names, the phases sum to the step time."""
    kernel_classes: tuple[Change, ...]
    """Durations of kernels and copies by class: names differ where an autotuner chose another kernel, classes do
    not."""
    kernel_total: Change
    """Durations of all kernels and copies."""
    kernels: tuple[Change, ...]
    """Kernels and copies of exactly the same name."""
    kernels_left_out: int
    operators: tuple[OperatorChange, ...]
    operators_left_out: int
    caveats: tuple[str, ...]
    """Why the two are not fully comparable, in sentences; empty if nothing speaks against it."""
    host_factor: float | None = None
    """How many times as long operators' host times are throughout; their status is beside it. None: about the same."""
