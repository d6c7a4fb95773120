"""Finds that a GPU runs slower because it draws as much power as its limit allows."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share, percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus

_REASON = "sw_power_cap"


def _capped(**values: float | None) -> dict[str, object]:
    return {"throttle": ((_REASON, 1.0, 1400.0),), "values": values}


@dataclass(frozen=True, kw_only=True)
class PowerThrottle(gpus.GpuRule):
    """The GPU draws as much power as its limit allows, which holds its clocks down.

    ## What it means

    Dense matrix products at the maximum clock would draw more power than a board may, so the driver lowers the clock
    until it fits (`sw_power_cap`). That is how these boards are built, and information only. It is a fault where
    somebody set a limit below the default, or where the clock falls far although the tensor cores do little.

    ## How it is measured

    The driver's reason for the clocks (NVML) in at least 20 busy samples; the 5 % lower bound (Wilson) of its share
    must pass 20 %. It is a warning if the median SM clock then is below 0.85 of the maximum **and** the limit is below
    its default, or the tensor cores were active in less than 0.3 of the time. Only a lowered limit has a gain: the lost
    speed over the busy time of a step, for the lower bound without the time in which the GPU's memory worked.

    ## When it is wrong

    - Without performance counters (before Hopper) tensor core activity is unknown: information only at the default
      limit.
    - A limit may be lowered on purpose, for cooling or energy.
    - At a higher limit the clock may be held down again: the gain is an upper bound.

    ## What to do

    Have a lowered limit raised. At the default limit, work that needs less energy runs faster: fewer bytes moved, lower
    precision, no work thrown away.
    """

    id = "power-throttle"
    title = "The power limit slows down the GPU"
    specialises = ("low-clocks",)

    least_ratio: float = threshold(0.20, source="the rule catalogue: 20 % of the busy samples")
    low_clock_ratio: float = threshold(0.85, source="the method: below it clocks limit the run")
    dense_ratio: float = threshold(0.30, source="heuristic: tensor cores active from here on, a cap is to be expected")
    lowered_ratio: float = threshold(
        gpus.LOWERED_RATIO, source="heuristic: limit over default below which it was lowered"
    )

    examples = (
        fires("the limit is 400 W of 700 W", "warning", "raise the limit from 400 W", gpu=_capped(power_limit_w=400.0)),
        fires(
            "tensor cores do little", "warning", "active only 5.0 % of the time", gpu=_capped(tensor_active_ratio=0.05)
        ),
        fires("they work at the default limit", "info", "Nothing to repair", gpu=_capped()),
        fires("their work is unknown", "info", "Nothing to repair", gpu=_capped(tensor_active_ratio=None)),
        quiet("the clock is free", gpu={}),
        looks_alike(
            "heat holds it down", gpu={"throttle": (("sw_thermal", 1.0, 990.0),), "values": {"power_limit_w": 400.0}}
        ),
        not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False}),
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the power limit of a GPU."""
        shares = gpus.limits(device)
        count = gpus.require_busy(device)
        share = shares.get(_REASON)
        ratio = share.busy_ratio if share is not None else None
        if share is None or ratio is None or lower_share(ratio, count) < self.least_ratio:
            return None
        lower = lower_share(ratio, count)
        lowered = gpus.is_power_limit_lowered(device, self.lowered_ratio)
        gain = gpus.held_gain(metrics, device, share, ratio=ratio, lower=lower) if lowered else None
        tensor = gpus.median(device, "tensor_active_ratio")
        slow = gpus.clock_ratio(device, share.sm_clock_median_mhz)
        unexpected = lowered or (tensor is not None and tensor < self.dense_ratio)
        level: Severity = "warning" if unexpected and slow is not None and slow < self.low_clock_ratio else "info"
        return self.finding(
            severity=level,
            subject=gpus.title(device),
            summary=_summary(device, ratio, count, lowered=lowered)
            + f"{gpus.instead_of(device, share.sm_clock_median_mhz)}.",
            advice=_lowered_advice(device) if lowered else _limit_advice(device, tensor, expected=not unexpected),
            evidence=(
                self.evidence("least_ratio", lower, "busy samples at the power limit"),
                *gpus.clock_evidence(device, share),
                *_power_evidence(device),
            ),
            gain=gain,
            confidence=0.9,
            explains=claims.CLOCKS,
        )


def _summary(device: Device, ratio: float, count: int, *, lowered: bool) -> str:
    held = f"in {percent(ratio)} of {count:,} busy samples"
    limit = gpus.median(device, "power_limit_w")
    if lowered:
        return (
            f"The power limit of {gpus.title(device)} is {limit:,.0f} W instead of "
            f"{device.facts.power_limit_default_w:,.0f} W. It held the clock down {held}"
        )
    at = "" if limit is None else f" of {limit:,.0f} W"
    return f"{gpus.title(device)} worked at its power limit{at} {held}"


def _lowered_advice(device: Device) -> str:
    return (
        f"Have the administrator raise the limit from {gpus.median(device, 'power_limit_w') or 0.0:,.0f} W (root): "
        f"nvidia-smi -i {gpus.place(device)} -pl {device.facts.power_limit_default_w or 0.0:.0f}"
    )


def _limit_advice(device: Device, tensor: float | None, *, expected: bool) -> str:
    if expected:
        return (
            "Nothing to repair: the board runs at the limit it is built for. Lower precision, fewer bytes moved and "
            "less padding need less energy and run faster."
        )
    return (
        f"Find the kernels that draw the power on {gpus.place(device)}, as tensor cores were active only "
        f"{percent(tensor or 0.0)} of the time. A trace window shows them: GpuProfiler(windows=[...])."
    )


def _power_evidence(device: Device) -> tuple[Evidence, ...]:
    values = (
        ("median power while busy", device.busy.power_median_w if device.busy is not None else None),
        ("power limit", gpus.median(device, "power_limit_w")),
        ("default power limit", device.facts.power_limit_default_w),
    )
    return tuple(Evidence(name=name, value=value, unit="W") for name, value in values if value is not None)
