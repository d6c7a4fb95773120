"""Finds fp32 products on CUDA cores on a device that has TF32, while the switch for it is off."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    severity,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import capability, device_run
from lightning_gpuprof.rules.kernels.matrix_kernels import LEAST_RATIO, off_tensor_cores
from lightning_gpuprof.rules.wording import listed, millis, percent

_OVERRIDE = "env.NVIDIA_TF32_OVERRIDE"


@dataclass(frozen=True, kw_only=True)
class _Switch:
    """A setting that keeps products of some kernel classes off TF32."""

    classes: tuple[str, ...]
    what: str
    state: str
    line: str


@dataclass(frozen=True, kw_only=True)
class Fp32MatmulTf32Off(BaseRule):
    """fp32 matrix products run without TF32 on a device that has it, because the setting says so.

    ## What it means

    From Ampere on (compute capability 8.0), tensor cores multiply fp32 inputs rounded to TF32: the range of fp32, 10
    bits of mantissa. torch leaves this off for matrix products (`highest`), and on for convolutions.

    ## How it is measured

    As `tc-unused`, for those classes of kernels whose setting is off: products and attention where
    `torch.get_float32_matmul_precision()` is `highest`, convolutions where `torch.backends.cudnn.allow_tf32` is False,
    both where the environment has `NVIDIA_TF32_OVERRIDE=0`. Only the longest 20 kernels are known by name, so the time
    is a lower bound. k is the peak of TF32 over that of fp32; devices on which both are equal are passed over.

    ## When it is wrong

    - It is silent where the host sets the pace, and where the settings or the capability are not known.
    - TF32 rounds inputs: where the last digits of fp32 matter, such as in physics or some losses, `highest` is right.

    ## What to do

    `torch.set_float32_matmul_precision("high")` before `trainer.fit`. `Trainer(precision="bf16-mixed")` gains more.

    ## Example

    "float32_matmul_precision is highest: call torch.set_float32_matmul_precision("high") before trainer.fit" for a
    transformer in fp32 on an A100.
    """

    id = "fp32-matmul-tf32-off"
    specialises = ("tc-unused",)

    least_ratio: float = threshold(LEAST_RATIO, source="heuristic")
    least_capability: float = threshold(8.0, source="NVIDIA: TF32 from Ampere on")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the products whose setting is off."""
        run = device_run(metrics)
        if run is None:
            return None
        of_device = capability(metrics)
        if of_device is None:
            raise MissingSignal("the compute capability of the device is not known")
        if of_device < self.least_capability:
            return None
        switch = _switch(metrics)
        if switch is None or run.host_sets_the_pace:
            return None
        found = off_tensor_cores(run, switch.classes)
        if found is None or found.faster_dtype != "tf32":
            return None
        ratio = found.time.lower_ms / run.period_ms
        if ratio < self.least_ratio or not worthwhile(found.saved.ms, run.period_ms):
            return None
        shown_ratio = min(1.0, found.time.ms / run.period_ms)
        certain_ratio = min(ratio, found.saved.lower_ms / run.period_ms)
        return self.finding(
            severity=severity(certain_ratio, metrics.steps.steady_count),
            subject=switch.what,
            summary=(
                f"{switch.what} take {millis(found.time.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(shown_ratio)}) in fp32 without TF32, because {switch.state}."
                + (f" Longest: {listed(list(found.names))}." if found.names else "")
            ),
            advice=f"{switch.state}: {switch.line}; TF32 multiplies up to {found.peak_ratio:.3g} times as fast here.",
            evidence=(
                self.evidence("least_ratio", shown_ratio, "fp32 products without TF32, share of the step"),
                Evidence(name="peak of TF32 over that of fp32", value=found.peak_ratio),
                Evidence(name="compute capability", value=of_device, limit=self.least_capability),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(found.saved.ms, found.saved.lower_ms, run.period_ms),
            confidence=0.85,
            explains=claims.MATRIX_KERNELS,
        )


def _switch(metrics: Metrics) -> _Switch | None:
    """What keeps TF32 off; None if nothing does."""
    if str(condition(metrics, _OVERRIDE)) == "0":
        return _Switch(
            classes=("gemm", "attention", "convolution"),
            what="Products and convolutions",
            state="NVIDIA_TF32_OVERRIDE is 0",
            line="unset it in the environment, and call torch.set_float32_matmul_precision('high')",
        )
    matmul = condition(metrics, "flags.float32_matmul_precision")
    cudnn = condition(metrics, "flags.cudnn_tf32")
    if matmul is None or cudnn is None:
        raise MissingSignal("the settings of TF32 are not known")
    of_products = _Switch(
        classes=("gemm", "attention"),
        what="Matrix products",
        state="float32_matmul_precision is highest",
        line='call torch.set_float32_matmul_precision("high") before trainer.fit',
    )
    of_convolutions = _Switch(
        classes=("convolution",),
        what="Convolutions",
        state="torch.backends.cudnn.allow_tf32 is False",
        line="set torch.backends.cudnn.allow_tf32 = True before trainer.fit",
    )
    if matmul == "highest" and cudnn is False:
        return _Switch(
            classes=("gemm", "attention", "convolution"),
            what="Matrix products and convolutions",
            state=f"{of_products.state} and {of_convolutions.state}",
            line=f"{of_products.line}, and {of_convolutions.line}",
        )
    if matmul == "highest":
        return of_products
    return of_convolutions if cudnn is False else None
