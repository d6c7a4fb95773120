"""Finds that a GPU runs slower because it is too hot."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    severity,
    steady_period_ms,
    threshold,
)
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import millis, percent

_WORDS = {"sw_thermal": "the driver", "hw_thermal": "the hardware"}


@dataclass(frozen=True, kw_only=True)
class ThermalThrottle(gpus.GpuRule):
    """The GPU is too hot and runs below the clock that it would have otherwise.

    ## What it means

    At a certain temperature the driver lowers the clocks step by step (`sw_thermal`); if that is not enough the
    hardware halves them at least (`hw_thermal`). Every kernel that computes takes longer, and so does the step.

    ## How it is measured

    The driver's reasons for the clocks (NVML), in samples in which the GPU was busy, after the first step and before
    the last. At least 20 of them are needed. The 5 % lower bound (Wilson) of the share of either reason must pass 5 %.
    The lost speed is 1 - held / full: the median SM clock while the reason held, over that of busy samples in which
    nothing held it down, else over the highest clock of the GPU. The gain is the lost speed over the busy time of a
    step. Its lower bound leaves out the time in which the GPU's memory worked, which a higher SM clock may not shorten.

    Heat that the hardware had to stop is a warning at least; otherwise the lost share of the step decides.

    ## When it is wrong

    - A look at one moment: limits that are shorter than the distance of two samples are missed.
    - Where the clock was never free, the highest clock stands for it, which a power limit may not allow either: then
      the gain is too high.
    - Drivers that do not tell the reasons (WSL, MIG): not evaluated.

    ## What to do

    Have the cooling looked at: fans, dust, inlet air, the neighbours in the chassis. Meanwhile use another node, and do
    not compare times with runs on a cool GPU.

    ## Example

    "NVIDIA H200 (gpu0) was too hot in 100 % of 40 busy samples (at least 94 %), 91 °C at most: SM clock 900 MHz instead
    of 1,980 MHz."
    """

    id = "thermal-throttle"
    specialises = ("low-clocks", "power-throttle")

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the clocks of a GPU."""
        shares = gpus.limits(device)
        period_ms = steady_period_ms(metrics)
        count = gpus.require_busy(device)
        share = gpus.strongest(shares, _WORDS)
        ratio = share.busy_ratio if share is not None else None
        if share is None or ratio is None or lower_share(ratio, count) < self.least_ratio:
            return None
        lower = lower_share(ratio, count)
        gain = gpus.held_gain(metrics, device, share, ratio=ratio, lower=lower)
        cost = 0.0 if gain is None else gain.saved_ms_per_step / period_ms * lower / ratio
        level = severity(cost, metrics.steps.steady_count)
        hardware = shares.get("hw_thermal")
        stopped = hardware is not None and lower_share(hardware.busy_ratio or 0.0, count) >= self.least_ratio
        if level == "info" and (stopped or gpus.lost_ratio(device, share) is None):
            level = "warning"
        return self.finding(
            severity=level,
            subject=gpus.title(device),
            summary=_summary(device, ratio, lower, count, held_mhz=share.sm_clock_median_mhz),
            advice=_advice(device, saved_ms=None if gain is None else gain.saved_ms_per_step, period_ms=period_ms),
            evidence=(
                self.evidence("least_ratio", lower, "busy samples that were too hot"),
                *(
                    Evidence(name=f"by {_WORDS[reason]}", value=each.busy_ratio or 0.0, unit="ratio")
                    for reason, each in shares.items()
                    if reason in _WORDS
                ),
                *gpus.clock_evidence(device, share),
            ),
            gain=gain,
            confidence=0.9,
            explains=claims.CLOCKS,
        )


def _summary(device: Device, ratio: float, lower: float, count: int, *, held_mhz: float | None) -> str:
    hottest = gpus.largest(device, "temperature_c")
    heat = "" if hottest is None else f", {hottest:.0f} °C at most"
    return (
        f"{gpus.title(device)} was too hot in {percent(ratio)} of {count:,} busy samples (at least {percent(lower)})"
        f"{heat}{gpus.instead_of(device, held_mhz)}."
    )


def _advice(device: Device, *, saved_ms: float | None, period_ms: float) -> str:
    hottest = gpus.largest(device, "temperature_c")
    reached = "" if hottest is None else f", which reached {hottest:.0f} °C"
    bound = "" if saved_ms is None else f" At its full clock a step takes {millis(period_ms - saved_ms)} at best."
    return (
        f"Have the cooling of {gpus.place(device)} looked at{reached}: fans, dust, inlet air, neighbours in the "
        f"chassis; until then train on another GPU.{bound}"
    )
