"""Finds that somebody has set a GPU's clocks low, or that they stay low for no reason that the driver names."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device import ThrottleShare
from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share, percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    MissingSignal,
    require_possible,
    severity,
    steady_period_ms,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus

_SET = {
    "app_clocks": "application clocks are set (nvidia-smi -ac)",
    "sync_boost": "a sync boost group runs at the pace of its slowest GPU",
}

_OTHERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_slowdown", "hw_power_brake")
"""Reasons that other rules report."""


def _set(reason: str) -> dict[str, object]:
    return {"throttle": ((reason, 1.0, 1200.0),), "clock_mhz": 1200.0}


@dataclass(frozen=True, kw_only=True)
class LowClocks(gpus.GpuRule):
    """The GPU is busy, but its clock is set far below its maximum.

    ## What it means

    An administrator can set clocks (application clocks, locked clocks, a sync boost group), and they stay when the
    reason is forgotten. Kernels that compute then take longer, although nothing is hot and power is left.

    ## How it is measured

    The median SM clock (NVML) of at least 20 busy samples is below 0.8 of the maximum, and the driver names application
    clocks or a sync boost group in half of them (lower bound). Or the clock is below 0.7 of the maximum, the driver
    names no reason in 90 % of them, and the utilization is above 90 %. Silent where heat, power limit or brake hold the
    clock in a fifth of the samples. The gain is as in `thermal-throttle`.

    ## When it is wrong

    - The maximum is a boost that some boards reach for moments only.
    - Clocks may be set on purpose, for benchmarks or for equal GPUs.
    - A GPU that is not always busy may lower its clock by itself: hence the 90 %.

    ## What to do

    Have the administrator reset the clocks; this profiler changes no setting of a GPU.
    """

    id = "low-clocks"
    title = "The GPU clock is set low"

    low_ratio: float = threshold(0.80, source="heuristic: SM clock over the highest one")
    unnamed_low_ratio: float = threshold(
        0.70, source="heuristic: healthy boards of workstations stay at 0.8 of their boost"
    )
    named_ratio: float = threshold(0.50, source="heuristic: half of the busy samples")
    unnamed_ratio: float = threshold(0.90, source="heuristic: share of busy samples without a limit")
    full_utilization_ratio: float = threshold(0.90, source="heuristic: below it a GPU may lower its clock by itself")
    others_ratio: float = threshold(0.20, source="heuristic: another rule's matter from here on")

    examples = (
        fires("application clocks are set", "warning", "1,200 MHz of 1,980 MHz", gpu=_set("app_clocks")),
        fires("a sync boost group is", "warning", "slowest GPU", gpu=_set("sync_boost")),
        fires("no reason is named", "warning", "names no reason", gpu={"clock_mhz": 1200.0}),
        quiet("the clock is high", gpu={}),
        looks_alike("heat holds it down", gpu=_set("sw_thermal")),
        looks_alike("the GPU is often idle", gpu={"clock_mhz": 1200.0, "values": {"utilization_ratio": 0.8}}),
        not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False}),
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the clocks of a GPU."""
        shares = gpus.limits(device)
        period_ms = steady_period_ms(metrics)
        count = gpus.require_busy(device)
        clock_mhz = device.busy.sm_clock_median_mhz if device.busy is not None else None
        ratio = gpus.clock_ratio(device, clock_mhz)
        if ratio is None or clock_mhz is None:
            raise MissingSignal("the SM clock or its maximum was not measured")
        require_possible("the SM clock", ratio)
        if ratio >= self.low_ratio or any(self._holds(shares, reason) for reason in _OTHERS):
            return None
        named = gpus.strongest(shares, _SET)
        named_lower = 0.0 if named is None else lower_share(named.busy_ratio or 0.0, count)
        if named_lower >= self.named_ratio and named is not None:
            why = _SET[named.reason]
        elif ratio < self.unnamed_low_ratio and self._is_free_and_full(shares, device):
            why = "the driver names no reason, so clocks are locked (nvidia-smi -lgc) or there is a fault"
        else:
            return None
        lost = 1.0 - ratio
        gain = gpus.clock_gain(metrics, device, lost=lost, lower=lost)
        cost = 0.0 if gain is None else gain.saved_ms_per_step / period_ms
        level: Severity = severity(cost, metrics.steps.steady_count)
        highest = device.facts.sm_clock_max_mhz or 0.0
        return self.finding(
            severity="warning" if level == "critical" else level,
            subject=gpus.title(device),
            summary=f"The SM clock of {gpus.title(device)} is {gpus.mhz(clock_mhz)} of {gpus.mhz(highest)} "
            f"({percent(ratio)}) while busy: {why}.",
            advice="Have the administrator reset the clocks (root): "
            f"nvidia-smi -i {gpus.place(device)} -rac, then -rgc",
            evidence=(
                self.evidence("low_ratio", ratio, "SM clock over the highest"),
                Evidence(name="median SM clock while busy", value=clock_mhz, unit="MHz"),
                Evidence(name="busy samples", value=count, limit=gpus.MIN_SAMPLES),
            ),
            gain=gain,
            confidence=0.8 if named is not None else 0.6,
            explains=claims.CLOCKS,
        )

    def _holds(self, shares: dict[str, ThrottleShare], reason: str) -> bool:
        return reason in shares and (shares[reason].busy_ratio or 0.0) >= self.others_ratio

    def _is_free_and_full(self, shares: dict[str, ThrottleShare], device: Device) -> bool:
        utilization = gpus.median(device, "utilization_ratio")
        held = sum(share.busy_ratio or 0.0 for share in shares.values())
        return (
            utilization is not None
            and utilization >= self.full_utilization_ratio
            and held <= 1 - self.unnamed_ratio + 1e-9
            and (device.distinct_samples or 0) >= gpus.MIN_SAMPLES
        )
