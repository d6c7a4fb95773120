"""Finds that a GPU runs slower because it is too hot."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share, millis, percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    severity,
    steady_period_ms,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus

_WORDS = {"sw_thermal": "the driver", "hw_thermal": "the hardware"}


def _held(reason: str, ratio: float, clock_mhz: float) -> dict[str, object]:
    return {"throttle": ((reason, ratio, clock_mhz),)}


@dataclass(frozen=True, kw_only=True)
class ThermalThrottle(gpus.GpuRule):
    """The GPU is too hot and runs below the clock it would otherwise have.

    ## What it means

    At a certain temperature the driver lowers the clocks step by step (`sw_thermal`); if that is not enough, the
    hardware at least halves them (`hw_thermal`). Every kernel that computes takes longer, and so does the step.

    ## How it is measured

    The driver's reasons for the clocks (NVML) in at least 20 samples with a busy GPU. The 5 % lower bound (Wilson) of
    the share of either reason must pass 5 %. The lost speed is 1 - held / full: the median SM clock while the reason
    held, over that of busy samples without any limit, else over the maximum clock. The gain is the lost speed over the
    busy time of a step; its lower bound leaves out the time in which the GPU's memory worked, which a higher SM clock
    may not shorten. Heat that the hardware had to stop is at least a warning; otherwise the lost share of the step
    decides.

    ## When it is wrong

    - Limits shorter than the sampling interval are missed.
    - Where the clock was never free the maximum stands for it, which a power limit may not allow: the gain is too high.
    - Drivers that do not report the reasons (WSL, MIG): not evaluated.

    ## What to do

    Have the cooling checked: fans, dust, inlet air, neighbours in the chassis. Until then use another node, and do not
    compare times with runs on a cool GPU.
    """

    id = "thermal-throttle"
    title = "Heat slows down the GPU"
    specialises = ("low-clocks", "power-throttle")

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

    examples = (
        fires(
            "it is hot all the time",
            "critical",
            "SM clock 990 MHz instead of 1,980 MHz",
            gpu=_held("sw_thermal", 1.0, 990.0),
        ),
        fires("the hardware stops it", "warning", "20 % of 40 busy samples", gpu=_held("hw_thermal", 0.2, 1950.0)),
        fires("it costs little", "info", "1,900 MHz", gpu=_held("sw_thermal", 0.5, 1900.0)),
        quiet("the clock is free", gpu={}),
        looks_alike("the power limit holds it down", gpu=_held("sw_power_cap", 1.0, 990.0)),
        not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False}),
    )

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
                self.evidence("least_ratio", lower, "busy samples too hot"),
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
    heat = "" if hottest is None else f", up to {hottest:.0f} °C"
    return (
        f"{gpus.title(device)} was too hot in {percent(ratio)} of {count:,} busy samples (at least {percent(lower)})"
        f"{heat}{gpus.instead_of(device, held_mhz)}."
    )


def _advice(device: Device, *, saved_ms: float | None, period_ms: float) -> str:
    bound = "" if saved_ms is None else f" At its full clock a step takes {millis(period_ms - saved_ms)} at best."
    return (
        f"Have the cooling of {gpus.place(device)} checked: fans, dust, inlet air, neighbours in the chassis. Train on "
        f"another GPU until then.{bound}"
    )
