"""Finds that the power supply, or a protection of the board, halves a GPU's clocks."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device import ThrottleShare
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import lower_share
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import severity, steady_period_ms, threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class PowerBrake(gpus.GpuRule):
    """The power supply asks the GPU for less, or a protection of the board halves its clocks.

    ## What it means

    The server's power supply can assert a signal that makes a GPU halve its clocks at least (`hw_power_brake`): a
    supply has failed, or the chassis draws too much. The board's own protection against a sudden draw of power shows as
    a hardware slowdown for which neither heat nor the brake is named.

    ## How it is measured

    The driver's reasons for the clocks (NVML) in at least 20 busy samples. The brake in two samples is enough, as no
    healthy server asserts it. A hardware slowdown without a named reason is reported for an instant while clocks
    change, too: the 5 % lower bound (Wilson) of its share must pass 5 %. The gain is as in `thermal-throttle`.

    ## When it is wrong

    - A look at one moment: a brake that is shorter than the distance of two samples is missed.
    - Drivers that do not tell the reasons (WSL, MIG): not evaluated.

    ## What to do

    A case for whoever runs the server: power supplies, cables, the limit of the rack. Use another node meanwhile.

    ## Example

    "The power supply braked NVIDIA H200 (gpu0) in 50 % of 40 busy samples: SM clock 900 MHz instead of 1,980 MHz."
    """

    id = "power-brake"
    specialises = ("low-clocks", "power-throttle", "thermal-throttle")

    least_samples: int = threshold(2, source="heuristic: one look may be an accident")
    least_slowdown_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

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
        who = "The power supply braked" if braked else "A protection of the board slowed down"
        return self.finding(
            severity="critical" if severity(cost, metrics.steps.steady_count) == "critical" else "warning",
            subject=gpus.title(device),
            summary=f"{who} {gpus.title(device)} in {percent(ratio)} of {count:,} busy samples"
            f"{gpus.instead_of(device, share.sm_clock_median_mhz)}.",
            advice=f"Tell whoever runs the server: {gpus.place(device)} gets too little power (power supplies, cables, "
            "the limit of the rack); until then train on another node.",
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
