"""Finds that the power supply, or a protection of the board, halves a GPU's clocks."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device import ThrottleShare
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share, percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import severity, steady_period_ms, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus


def _held(*reasons: str) -> dict[str, object]:
    return {"throttle": tuple((reason, 0.75, 900.0) for reason in reasons)}


@dataclass(frozen=True, kw_only=True)
class PowerBrake(gpus.GpuRule):
    """The power supply makes the GPU use less, or a protection of the board halves its clocks.

    ## What it means

    The server's power supply can assert a signal that at least halves the GPU's clocks (`hw_power_brake`): a supply has
    failed, or the chassis draws too much. The board's protection against sudden power draw shows as a hardware slowdown
    that is neither heat nor brake.

    ## How it is measured

    The driver's reasons for the clocks (NVML) in at least 20 busy samples. The brake in two samples is enough, as no
    healthy server asserts it. A hardware slowdown without a named reason also shows for an instant while clocks change:
    the 5 % lower bound (Wilson) of its share must pass 5 %. The gain is as in `thermal-throttle`.

    ## When it is wrong

    - A brake shorter than the sampling interval is missed.
    - Drivers that do not report the reasons (WSL, MIG): not evaluated.

    ## What to do

    Tell whoever runs the server: power supplies, cables, the limit of the rack. Use another node until then.
    """

    id = "power-brake"
    title = "The power supply or a protection slows down the GPU"
    specialises = ("low-clocks", "power-throttle", "thermal-throttle")

    least_samples: int = threshold(2, source="heuristic: one look may be an accident")
    least_slowdown_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

    examples = (
        fires(
            "the brake in 30 of 40 samples",
            "critical",
            "SM clock 900 MHz instead of 1,980 MHz",
            gpu=_held("hw_power_brake"),
        ),
        fires("a slowdown without a reason", "critical", "A protection of the board", gpu=_held("hw_slowdown")),
        quiet("the clock is free", gpu={}),
        looks_alike("the slowdown is for heat", gpu=_held("hw_slowdown", "hw_thermal")),
        looks_alike("it works at its power limit", gpu=_held("sw_power_cap")),
        not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False}),
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the clocks of a GPU."""
        shares = gpus.limits(device)
        period_ms = steady_period_ms(metrics)
        count = gpus.require_busy(device)
        brake = shares.get("hw_power_brake")
        braked = brake is not None and (brake.busy_ratio or 0.0) * count >= self.least_samples - 0.5
        share, ratio = (brake, brake.busy_ratio or 0.0) if brake is not None and braked else _unnamed(shares)
        lower = lower_share(ratio, count)
        if share is None or not (braked or lower >= self.least_slowdown_ratio):
            return None
        gain = gpus.held_gain(metrics, device, share, ratio=ratio, lower=lower)
        cost = 0.0 if gain is None else gain.saved_ms_per_step / period_ms * lower / ratio
        who = "The power supply" if braked else "A protection of the board"
        return self.finding(
            severity="critical" if severity(cost, metrics.steps.steady_count) == "critical" else "warning",
            subject=gpus.title(device),
            summary=f"{who} slowed {gpus.title(device)} down in {percent(ratio)} of {count:,} busy samples"
            f"{gpus.instead_of(device, share.sm_clock_median_mhz)}.",
            advice=f"Tell whoever runs the server that {gpus.place(device)} gets too little power (power supplies, "
            "cables, the limit of the rack). Train on another node until then.",
            evidence=(
                self.evidence("least_samples", ratio, "busy samples", "ratio", limit=self.least_samples / count)
                if braked
                else self.evidence("least_slowdown_ratio", ratio, "busy samples"),
                *gpus.clock_evidence(device, share),
            ),
            gain=gain,
            confidence=0.9,
            explains=claims.CLOCKS,
        )


def _unnamed(shares: dict[str, ThrottleShare]) -> tuple[ThrottleShare | None, float]:
    """The hardware's slowdown, and its share without that of the reasons that it has a name for."""
    slowdown = shares.get("hw_slowdown")
    if slowdown is None:
        return None, 0.0
    named = sum(shares[reason].busy_ratio or 0.0 for reason in ("hw_thermal", "hw_power_brake") if reason in shares)
    return slowdown, max(0.0, (slowdown.busy_ratio or 0.0) - named)
