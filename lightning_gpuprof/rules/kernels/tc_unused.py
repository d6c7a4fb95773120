"""Finds fp32 products that run on CUDA cores although the device has tensor cores."""

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
from lightning_gpuprof.rules.kernels.device_kernels import capability, device_run, mixed_precision
from lightning_gpuprof.rules.kernels.matrix_kernels import (
    LEAST_RATIO,
    OffTensorCores,
    off_tensor_cores,
    tensor_cores_known,
)
from lightning_gpuprof.rules.wording import listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class TcUnused(BaseRule):
    """Matrix products and convolutions run in fp32 on CUDA cores; the device's tensor cores are idle meanwhile.

    ## What it means

    Tensor cores do products of half precision 2 to 16 times as fast as CUDA cores do those of fp32. A model in
    `precision="32-true"` leaves them unused, but for what TF32 does.

    ## How it is measured

    In trace windows: the time of kernels whose names prove that they multiply fp32 on CUDA cores (sgemm, SIMT, cuDNN's
    direct convolutions), without products of a matrix and a vector and convolutions of single channels, which memory
    bounds. Kernels whose name tells nothing (all of Triton) never count. The time per step is held against the period
    of untraced steps; the least of all windows is the lower bound. The gain is time * (1 - 1/k), k = data-sheet peak of
    the tensor cores over that of the CUDA cores (2 where the device is not known), and not more than the roofline of
    these products allows where their shapes are known; its lower bound takes half of k.

    ## When it is wrong

    - It is silent where the host, or workers that are behind, set the pace: shorter kernels would only lengthen the
      device's wait.
    - Products that are small or bound by memory gain less than k; without shapes (`TraceConfig(record_shapes=True)`)
      this is not seen.
    - Whether the model trains well in half precision only a training shows. bf16 has the range of fp32; fp16 needs the
      loss scaling that Lightning adds.

    ## What to do

    `Trainer(precision="bf16-mixed")` from compute capability 8.0 on, `"16-mixed"` on Volta and Turing. TF32 is the
    smaller step: page of `fp32-matmul-tf32-off`.

    ## Example

    ResNet-50 in fp32 on a V100: "fp32 products on CUDA cores take 60.9 ms of a step of 175 ms … set
    Trainer(precision="16-mixed")".
    """

    id = "tc-unused"

    least_ratio: float = threshold(LEAST_RATIO, source="heuristic")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the products of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if not tensor_cores_known(run):
            raise MissingSignal("the trace does not tell whether the device has tensor cores")
        found = off_tensor_cores(run)
        if found is None or run.host_sets_the_pace:
            return None
        ratio = found.time.lower_ms / run.period_ms
        if ratio < self.least_ratio or not worthwhile(found.saved.ms, run.period_ms):
            return None
        certain_ratio = min(ratio, found.saved.lower_ms / run.period_ms)
        shown_ratio = min(1.0, found.time.ms / run.period_ms)
        return self.finding(
            severity=severity(certain_ratio, metrics.steps.steady_count),
            subject=found.names[0] if found.names else "fp32 products",
            summary=(
                f"fp32 products on CUDA cores take {millis(found.time.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(shown_ratio)}); the device's tensor cores are unused in that time."
                + (f" Longest: {listed(list(found.names))}." if found.names else "")
            ),
            advice=_advice(metrics, found),
            evidence=(
                self.evidence("least_ratio", shown_ratio, "fp32 products on CUDA cores, share of the step"),
                Evidence(name="peak of tensor cores over that of CUDA cores", value=found.peak_ratio),
                Evidence(name="precision", value=str(condition(metrics, "trainer.precision") or "not known")),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(found.saved.ms, found.saved.lower_ms, run.period_ms),
            confidence=0.8 if found.faster_dtype is not None else 0.5,
            explains=claims.MATRIX_KERNELS,
        )


def _advice(metrics: Metrics, found: OffTensorCores) -> str:
    if mixed_precision(metrics):
        return (
            f"precision is already {condition(metrics, 'trainer.precision')}: look for what leaves it. These products "
            "still get fp32: inputs made with .float(), a block under torch.autocast(enabled=False), or parameters "
            "used outside of training_step."
        )
    of_device = capability(metrics)
    bf16 = of_device >= 8 if of_device is not None else found.faster_dtype in ("tf32", "bf16")
    wanted = "bf16-mixed" if bf16 else "16-mixed"
    precision = condition(metrics, "trainer.precision")
    now = f"precision is {precision}: set" if precision is not None else "Set"
    peak = f"up to {found.peak_ratio:.3g} times as fast on this device"
    return f'{now} Trainer(precision="{wanted}"); products are then {peak}. Compare the loss of both for an epoch.'
