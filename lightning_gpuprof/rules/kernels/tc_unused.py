"""Matrix products and convolutions run in fp32 on CUDA cores while the tensor cores idle.

## What it means
Tensor cores multiply half precision 2 to 16 times as fast as CUDA cores multiply fp32. With `precision="32-true"` they
are used for TF32 at most.

## How it is measured
Trace windows: the time of kernels whose names prove fp32 products on CUDA cores (sgemm, SIMT, cuDNN's direct
convolutions), except matrix-vector products and depthwise convolutions, which are bound by memory. Kernels with opaque
names (Triton) never count. The gain is time x (1 - 1/k), where k is the data-sheet peak of tensor cores over that of
CUDA cores (2 for unknown devices), but no more than the roofline allows; its lower bound takes k/2.

## When it is wrong
- Silent where the host or slow workers are the bottleneck: shorter kernels would only lengthen the GPU's wait.
- Small or memory-bound products gain less; this is only seen in windows with shapes.
- Only training tells whether the model converges in half precision. bf16 has the range of fp32; fp16 needs loss
  scaling, which Lightning adds.

## What to do
`Trainer(precision="bf16-mixed")` from compute capability 8.0 on, `"16-mixed"` on Volta and Turing. The smaller step is
TF32: `fp32-matmul-tf32-off`.
"""

from lightning_gpuprof.model.signals import capability, mixed_precision
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Change, Finding, Metrics, MissingSignal, Value, listed, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule

_FP32 = {"fp32 gemm": 20, "fp32 convolution": 10, "pointwise": 18}
_VOLTA = {
    "kernels": {"volta_sgemm_128x64_nn": 30, "pointwise": 18},
    "device": "V100",
    "run": {"device.capability": "7.0"},
}
_MIXED = {"trainer.precision": "bf16-mixed"}
_WAITING_MS = {"data_wait": 50.0, "forward": 10.0, "backward": 13.0}
_FED = {"kernels": {"fp32 gemm": 25, "pointwise": 5}, "times_ms": _WAITING_MS, "step_ms": 80.0}
_ROOF = ("aten::mm", "8x8, 8x8", 30.0, {"dtype": "fp32", "bytes_per_call": 45e9})


class TcUnused(KernelRule):
    id = "tc-unused"
    title = "Matrix products run without tensor cores"
    explains = claims.MATRIX_KERNELS
    certainty = 0.8
    what = "fp32 products on CUDA cores"

    least_ratio: float = threshold(0.05, source="heuristic")

    examples = (
        fires("fp32 products take 30 of 50 ms", "critical", 'precision="bf16-mixed"', saves_ms=26.25, kernels=_FP32),
        fires("few steps are steady", "warning", "30.0 ms of each 50.0 ms step (60 %)", kernels=_FP32, steady=15),
        fires("the GPU is a V100", "critical", 'precision="16-mixed"', **_VOLTA),
        fires("precision is mixed already", "critical", "Find what leaves autocast", kernels=_FP32, run=_MIXED),
        fires("products take 2.51 of 50 ms", "info", "5.0 %", kernels={"fp32 gemm": 2.51, "pointwise": 46.5}),
        quiet("products take 2.49 of 50 ms", kernels={"fp32 gemm": 2.49, "pointwise": 46.5}),
        quiet("products run on tensor cores", kernels={"tensor core gemm": 30, "pointwise": 18}),
        quiet("the GPU has no tensor cores", kernels={"maxwell_sgemm_128x64_nn": 48}, device="P100"),
        quiet("memory bounds the products", kernels=_FP32, roofline=[_ROOF], fp32_flops=19.5e12),
        looks_alike("matrices are multiplied by vectors", kernels={"gemv": 30, "pointwise": 18}),
        looks_alike("Triton's kernels do not say what they use", kernels={"triton_tem_fused_mm_0": 48}),
        looks_alike("the host is the bottleneck", kernels={"fp32 gemm": 20}),
        looks_alike("workers are the bottleneck", **_FED, num_workers=4, fetch_waited_ratio=0.9),
        fires("workers keep up", "critical", "Train in half", **_FED, num_workers=4, fetch_waited_ratio=0.02),
        UNTRACED,
        not_evaluated("five steps are steady", "5 steady steps", kernels=_FP32, steady=5),
        not_evaluated("the GPU is not known", "tensor cores", kernels={"fp32 gemm": 48}, device="unknown"),
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if not run.tensor_cores_known:
            raise MissingSignal("the trace does not say whether the device has tensor cores")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        found = measured(run.off_tensor_cores).get("all")
        if found is None:
            return None
        time, saved = run.cost(found.time), run.cost(found.saved)
        if not saved.is_worth() or not self.is_long(time):
            return None
        precision, of_device = metrics.condition("trainer.precision"), capability(metrics)
        bf16 = of_device >= 8 if of_device is not None else found.faster_dtype in ("tf32", "bf16")
        wanted = "bf16-mixed" if bf16 else "16-mixed"
        before: dict[str, Value] = {} if precision is None else {"precision": precision}
        change: Change | None = Change(call="Trainer", arguments={"precision": wanted}, before=before)
        advice = (
            f'Train in half precision: Trainer(precision="{wanted}"). Tensor cores multiply up to '
            f"{found.peak_ratio:.3g} times as fast here. Compare the loss of both for an epoch."
        )
        if mixed_precision(metrics):
            change = None
            advice = (
                f"Find what leaves autocast, although precision is {precision}: inputs cast with .float(), a block "
                "under torch.autocast(enabled=False), or parameters used outside of training_step."
            )
        longest = f" Longest: {listed(list(found.names))}." if found.names else ""
        return self.of_kernels(
            run,
            subject=found.names[0] if found.names else "fp32 products",
            summary=f"Matrix products in fp32 on CUDA cores take {time}.{longest}",
            advice=advice,
            time=time,
            evidence=(
                self.fact("peak of tensor cores over CUDA cores", found.peak_ratio),
                self.fact("precision", str(precision or "not known")),
            ),
            cost=saved,
            confidence=self.certainty if found.faster_dtype is not None else 0.5,
            change=change,
        )
