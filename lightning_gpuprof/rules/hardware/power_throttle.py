"""Finds that a GPU runs slower because it draws as much power as its limit allows."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import percent

_REASON = "sw_power_cap"


@dataclass(frozen=True, kw_only=True)
class PowerThrottle(gpus.GpuRule):
    """The GPU draws as much power as its limit allows, and its clocks are held down for it.

    ## What it means

    Dense matrix products take more power at the highest clock than a board may draw, so the driver lowers the clock
    until the power fits (`sw_power_cap`). That is how these boards are built, and information only. It is a fault where
    somebody has set a limit below the board's default, or where the clock falls far although the tensor cores do
    little.

    ## How it is measured

    The driver's reason for the clocks (NVML) in at least 20 busy samples. The 5 % lower bound (Wilson) of its share
    must pass 20 %. It is a warning if the median SM clock meanwhile is below 0.85 of the highest **and** the limit in
    force is lower than the board's default, or the tensor cores were active in less than 0.3 of the time. Otherwise it
    is information. Only a lowered limit can be given back: then the gain is the speed that is lost to the clock, over
    the busy time of a step, with a lower bound that leaves out the time in which the GPU's memory worked.

    ## When it is wrong

    - Without performance counters (before Hopper) it is not known what the tensor cores do: a board at its default
      limit is then information only.
    - A limit that was lowered on purpose, for cooling or energy: the advice is for the administrator to weigh.
    - At a higher limit the clock may be held down again before it reaches the highest one: the gain is an upper bound.

    ## What to do

    Have a lowered limit raised. At the default limit, work that needs less energy runs faster: fewer bytes moved, lower
    precision, no work thrown away.

    ## Example

    "The power limit of NVIDIA H200 (gpu0) is 400 W where its default is 700 W: it held the clocks down in 100 % of 40
    busy samples: SM clock 1,200 MHz instead of 1,980 MHz."
    """

    id = "power-throttle"
    specialises = ("low-clocks",)

    least_ratio: float = threshold(0.20, source="the rule catalogue: 20 % of the busy samples")
    low_clock_ratio: float = threshold(0.85, source="the method: below it clocks limit the run")
    dense_ratio: float = threshold(0.30, source="heuristic: tensor cores active from here on, a cap is to be expected")
    lowered_ratio: float = threshold(
        gpus.LOWERED_RATIO, source="heuristic: limit over default below which it was lowered"
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
            f"The power limit of {gpus.title(device)} is {limit:,.0f} W where its default is "
            f"{device.facts.power_limit_default_w:,.0f} W: it held the clocks down {held}"
        )
    at = "" if limit is None else f" of {limit:,.0f} W"
    return f"{gpus.title(device)} worked at its power limit{at} {held}"


def _lowered_advice(device: Device) -> str:
    return (
        f"Have the administrator raise the limit from {gpus.median(device, 'power_limit_w') or 0.0:,.0f} W: "
        f"nvidia-smi -i {gpus.place(device)} -pl {device.facts.power_limit_default_w or 0.0:.0f} (needs root)."
    )


def _limit_advice(device: Device, tensor: float | None, *, expected: bool) -> str:
    busy = "" if tensor is None else f"tensor cores were active in {percent(tensor)} of the time"
    if expected:
        return (
            f"Nothing to repair: the board works at the limit that it is built for{f' ({busy})' if busy else ''}. "
            "Expect this clock when runs are compared; what takes less energy runs faster: lower precision, fewer "
            "bytes moved, no padding."
        )
    return (
        f"Look at what draws the power on {gpus.place(device)}: {busy} only. A trace window shows which kernels run: "
        "GpuProfiler(windows=[...])."
    )


def _power_evidence(device: Device) -> tuple[Evidence, ...]:
    values = (
        ("median power while busy", device.busy.power_median_w if device.busy is not None else None),
        ("power limit", gpus.median(device, "power_limit_w")),
        ("default power limit", device.facts.power_limit_default_w),
    )
    return tuple(Evidence(name=name, value=value, unit="W") for name, value in values if value is not None)
