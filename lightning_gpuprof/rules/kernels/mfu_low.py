"""Matrix products reach a small part of the GPU's peak rate: a symptom, split into its parts.

## What it means
Model FLOP/s utilization (MFU) is the FLOPs that the model needs in matrix products, convolutions and attention, over
what the device could do in the step time. It has three factors: how long the GPU is busy, the share of matrix products
in that, and their speed.

## How it is measured
FLOPs from the shapes of operators in trace windows, time from untraced steps, peaks from data sheets for the dtype,
where products take much of the kernel time and the FLOPs of most of that time are known. Information only: the rules on
its parts have causes and gains.

## When it is wrong
- Capped clocks and power put the data-sheet peak out of reach: a well-tuned large model has 40 to 60 %.
- Recomputation by activation checkpointing counts as the model's own.

## What to do
Start with the smallest of the three factors, which the advice names.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule


def _run(mfu: float, *, products_ms: float = 33.6, known: float = 1.0) -> dict[str, object]:
    """A run of an example whose traced steps take 65 ms, others 50 ms."""
    kernels = {"tensor core gemm": products_ms, "pointwise": 48 - products_ms}
    return {"kernels": kernels, "step_ms": 65.0, "mfu": (mfu, known)}


class MfuLow(KernelRule):
    id = "mfu-low"
    title = "The model is far below the GPU's peak"
    certainty = 0.7

    most_mfu_ratio: float = threshold(0.30, source="heuristic: large language models are reported with 40 to 60 %")
    least_matrix_ratio: float = threshold(0.50, source="heuristic: below it, MFU says little of the model")
    least_known_ratio: float = threshold(0.80, source="heuristic")

    examples = (
        fires("MFU is 12 %", "info", "busy 96 % of the step, and 70 % of that are matrix products", **_run(0.12)),
        fires("MFU is 29.9 %", "info", "the speed of the matrix products", **_run(0.299)),
        quiet("MFU is 30.1 %", **_run(0.301)),
        looks_alike("most kernels are no products", **_run(0.12, products_ms=20)),
        not_evaluated("half of the FLOPs are known", "FLOPs", **_run(0.12, known=0.5)),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if not run.rated(self.least_known_ratio):
            raise MissingSignal("the FLOPs of most products or the peak of the device are not known")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        window, mfu = max(run.rated(self.least_known_ratio), key=lambda item: item[1])
        roofline = window.analysis.roofline
        multiplies = min(1.0, (roofline.matrix_us if roofline is not None else 0.0) / window.kernels.total_us)
        if multiplies < self.least_matrix_ratio or mfu >= self.most_mfu_ratio:
            return None
        busy = min(1.0, max(device.busy_us for device in window.facts.devices) / 1e3 / window.steps / run.period_ms)
        reaches = min(1.0, mfu / (busy * multiplies))
        factors = (
            (busy, "how long the GPU is busy (see what it waits for)"),
            (multiplies, "the share of matrix products (see the kernel classes)"),
            (reaches, "the speed of the matrix products (see their sizes and dtypes in the roofline)"),
        )
        return self.of_kernels(
            run,
            subject=(roofline.device or "device") if roofline is not None else "device",
            summary=f"MFU is {percent(mfu)}. The GPU is busy {percent(busy)} of the step, and {percent(multiplies)} of "
            f"that are matrix products, which reach {percent(reaches)} of its peak.",
            advice=f"Improve the smallest factor first: {min(factors, key=lambda factor: factor[0])[1]}.",
            evidence=(
                self.evidence("most_mfu_ratio", mfu, "MFU"),
                self.fact("GPU busy, share of the step", busy, "ratio"),
                self.fact("products, share of kernel time", multiplies, "ratio"),
                self.fact("share of the peak in products", reaches, "ratio"),
            ),
        )
