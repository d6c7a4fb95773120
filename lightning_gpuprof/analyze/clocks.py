"""From NVML's samples to what holds the clocks of busy GPUs down, and the speed that it costs."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_gpuprof.model.device import LOWERED_RATIO, MIN_SAMPLES
from lightning_gpuprof.model.device_step import ClockLoss
from lightning_gpuprof.model.numbers import lower_share, possible
from lightning_gpuprof.model.report import Device

REASON_RATIO = 0.20
"""Lower bound of a reason's share of the busy samples from which it holds the clock down. The rule catalogue."""

_NO_CAUSE = frozenset({"gpu_idle", "display_clock", "sync_boost", "reliability"})
"""Reasons that say nothing about what holds this GPU down, or that every GPU at its top clock gives."""


def clock_loss(devices: Iterable[Device]) -> ClockLoss | None:
    """What costs the run's GPUs most of their speed.

    A reason counts if the 5 % lower bound (Wilson) of its share of the busy samples is :data:`REASON_RATIO`. A power
    cap counts only if the limit was lowered: at its default limit a board under dense load is where it is built to be.

    Args:
        devices: The run's GPUs.

    Returns:
        None if there is no reason, or no GPU has :data:`MIN_SAMPLES` busy samples.
    """
    losses = [loss for device in devices for loss in _losses(device)]
    return max(losses, key=lambda loss: (loss.ratio, loss.held_ratio), default=None)


def _losses(device: Device) -> Iterable[ClockLoss]:
    busy, most_mhz = device.busy, device.facts.sm_clock_max_mhz
    if busy is None or busy.samples < MIN_SAMPLES or not most_mhz or not possible(most_mhz):
        return
    for share in device.throttle or ():
        clock_mhz = busy.sm_clock_median_mhz if share.sm_clock_median_mhz is None else share.sm_clock_median_mhz
        if share.busy_ratio is None or clock_mhz is None or not (possible(share.busy_ratio) and possible(clock_mhz)):
            continue
        if share.reason in _NO_CAUSE or lower_share(share.busy_ratio, busy.samples) < REASON_RATIO:
            continue
        limit = device.power_limit_ratio
        if share.reason == "sw_power_cap" and (limit is None or limit >= LOWERED_RATIO):
            continue
        held_ratio = min(1.0, share.busy_ratio)
        yield ClockLoss(
            device=device.subject or device.name,
            ratio=held_ratio * max(0.0, 1.0 - clock_mhz / most_mhz),
            reason=share.reason,
            clock_mhz=clock_mhz,
            most_mhz=most_mhz,
            held_ratio=held_ratio,
        )
