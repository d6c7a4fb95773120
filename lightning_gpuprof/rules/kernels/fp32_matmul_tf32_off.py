"""fp32 matrix products run without TF32 on a device that has it, because a setting says so.

## What it means
From Ampere on (compute capability 8.0), tensor cores multiply fp32 inputs rounded to TF32: the range of fp32 with 10
bits of mantissa. torch leaves this off for matrix products (`highest`) and on for convolutions.

## How it is measured
As `tc-unused`, for the kernels whose setting is off: matrix products and attention where
`torch.get_float32_matmul_precision()` is `highest`, convolutions where `torch.backends.cudnn.allow_tf32` is False, both
with `NVIDIA_TF32_OVERRIDE=0`. Only the 20 longest kernels are known by name, so the time is a lower bound.

## When it is wrong
- Silent where the host is the bottleneck, and on devices whose TF32 is not faster than fp32.
- TF32 rounds inputs: where the last digits matter, as in physics or some losses, `highest` is right.

## What to do
`torch.set_float32_matmul_precision("high")` before `trainer.fit`. `Trainer(precision="bf16-mixed")` gains more.
"""

from lightning_gpuprof.model.device_kernels import ProductKind
from lightning_gpuprof.model.signals import capability
from lightning_gpuprof.rules.base import Change, Finding, Metrics, MissingSignal, claims, listed, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule
from lightning_gpuprof.rules.torch_advice import BEFORE_FIT

_MATMUL, _CUDNN = "flags.float32_matmul_precision", "flags.cudnn_tf32"
_CAPABILITY = "device.capability"
_OVERRIDDEN = "NVIDIA_TF32_OVERRIDE is 0"
_OVERRIDE = "env.NVIDIA_TF32_OVERRIDE"
_SET_MATMUL = 'torch.set_float32_matmul_precision("high")'
_SET_CUDNN = "torch.backends.cudnn.allow_tf32 = "
_FP32 = {"fp32 gemm": 20, "fp32 convolution": 10, "pointwise": 18}


def _flags(matmul: str, *, cudnn: bool = True) -> dict[str, object]:
    """Conditions of an example."""
    return {_MATMUL: matmul, _CUDNN: cudnn}


_DEFAULTS, _CUDNN_OFF = _flags("highest"), _flags("high", cudnn=False)


class Fp32MatmulTf32Off(KernelRule):
    id = "fp32-matmul-tf32-off"
    title = "Matrix products run without TF32"
    specialises = ("tc-unused",)
    explains = claims.MATRIX_KERNELS
    certainty = 0.85
    what = "fp32 products, share of the step"

    least_ratio: float = threshold(0.05, source="heuristic")
    least_capability: float = threshold(8.0, source="NVIDIA: TF32 from Ampere on")

    examples = (
        fires("torch has its defaults", "critical", _SET_MATMUL, saves_ms=17.5, kernels=_FP32, run=_DEFAULTS),
        fires("TF32 is off for convolutions", "warning", f"{_SET_CUDNN}True", kernels=_FP32, run=_CUDNN_OFF),
        fires("both are off", "critical", "30.0 ms of each", kernels=_FP32, run=_flags("highest", cudnn=False)),
        fires("the environment overrides them", "critical", "unset NVIDIA", kernels=_FP32, run={_OVERRIDE: "0"}),
        fires(
            "products take 2.51 of 50 ms",
            "info",
            "2.51 ms",
            kernels={"fp32 gemm": 2.51, "pointwise": 46.5},
            run=_DEFAULTS,
        ),
        quiet("products take 2.49 of 50 ms", kernels={"fp32 gemm": 2.49, "pointwise": 46.5}, run=_DEFAULTS),
        quiet("TF32 is on", kernels=_FP32, run=_flags("high")),
        quiet("products are in bf16", kernels={"tensor core gemm": 30, "pointwise": 18}, run=_DEFAULTS),
        quiet("the GPU is a V100", kernels=_FP32, run={**_DEFAULTS, _CAPABILITY: "7.0"}),
        looks_alike("TF32 is no faster on an A10G", kernels={"fp32 gemm": 48}, device="A10G", run=_DEFAULTS),
        not_evaluated("the settings are not known", "TF32 settings", kernels=_FP32),
        not_evaluated("the GPU is not known", "capability", kernels=_FP32, run={**_DEFAULTS, _CAPABILITY: None}),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        self._switch(metrics)

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        switch = self._switch(metrics)
        found = measured(run.off_tensor_cores).get(switch[0]) if switch is not None else None
        if switch is None or found is None or found.faster_dtype != "tf32":
            return None
        time, saved = run.cost(found.time), run.cost(found.saved)
        if not self.is_long(time) or not saved.is_worth():
            return None
        products, state, change = switch
        what = "Matrix products and convolutions" if products == "all" else products.capitalize()
        longest = f" Longest: {listed(list(found.names))}." if found.names else ""
        unset = "unset NVIDIA_TF32_OVERRIDE, then " if state == _OVERRIDDEN else ""
        return self.of_kernels(
            run,
            subject=what,
            summary=f"{what} in fp32 without TF32 take {time}.{longest}",
            advice=f"Allow TF32 before trainer.fit: {unset}{'; '.join(change.add)}. Now {state}; TF32 products are "
            f"up to {found.peak_ratio:.3g} times as fast here.",
            time=time,
            evidence=(
                self.fact("peak of TF32 over fp32", found.peak_ratio),
                self.evidence("least_capability", capability(metrics) or 0.0, "compute capability"),
            ),
            cost=saved,
            change=change,
        )

    def _switch(self, metrics: Metrics) -> tuple[ProductKind, str, Change] | None:
        """Which products are kept off TF32, by what, and how to change that; None if nothing does, or it has none."""
        of_device = capability(metrics)
        if of_device is None:
            raise MissingSignal("the compute capability of the device is not known")
        if of_device < self.least_capability:
            return None
        if str(metrics.condition(_OVERRIDE)) == "0":
            return "all", _OVERRIDDEN, Change(remove=("NVIDIA_TF32_OVERRIDE=0",), add=(_SET_MATMUL,))
        matmul, cudnn = metrics.condition(_MATMUL), metrics.condition(_CUDNN)
        if matmul is None or cudnn is None:
            raise MissingSignal("the TF32 settings are not known")
        no_matmul, no_cudnn = "float32_matmul_precision is highest", "cudnn.allow_tf32 is False"
        removed, added = (f"{_SET_CUDNN}False",), f"{_SET_CUDNN}True"
        if matmul == "highest" and cudnn is False:
            return "all", f"{no_matmul} and {no_cudnn}", Change(remove=removed, add=(_SET_MATMUL, added))
        if matmul == "highest":
            return "matrix products", no_matmul, Change(add=(_SET_MATMUL,), place=BEFORE_FIT)
        return ("convolutions", no_cudnn, Change(remove=removed, add=(added,))) if cudnn is False else None
