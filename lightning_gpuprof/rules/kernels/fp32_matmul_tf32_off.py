"""Finds fp32 products on CUDA cores on a device that has TF32, while the switch for it is off."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_kernels import DeviceRun
from lightning_gpuprof.model.finding import Evidence, Finding, worthwhile
from lightning_gpuprof.model.matrix_kernels import ProductKind
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.signals import capability, condition
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Change, Metrics, MissingSignal, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule, of_every_step

_MATMUL, _CUDNN = "flags.float32_matmul_precision", "flags.cudnn_tf32"
_CAPABILITY = "device.capability"
_OVERRIDE = "env.NVIDIA_TF32_OVERRIDE"
_SET_MATMUL = 'torch.set_float32_matmul_precision("high")'
_SET_CUDNN = "torch.backends.cudnn.allow_tf32 = "
_FP32 = {"fp32 gemm": 20, "fp32 convolution": 10, "pointwise": 18}


def _flags(matmul: str, *, cudnn: bool = True) -> dict[str, object]:
    """Conditions of an example."""
    return {_MATMUL: matmul, _CUDNN: cudnn}


def _part(ms: float) -> dict[str, float]:
    """Kernels of an example."""
    return {"fp32 gemm": ms, "pointwise": 49 - ms}


_DEFAULTS, _CUDNN_OFF = _flags("highest"), _flags("high", cudnn=False)


@dataclass(frozen=True, kw_only=True)
class _Switch:
    """A setting that keeps products off TF32."""

    products: ProductKind
    what: str
    state: str
    change: Change


@dataclass(frozen=True, kw_only=True)
class Fp32MatmulTf32Off(KernelRule):
    """fp32 matrix products run without TF32 on a device that has it, because a setting says so.

    ## What it means
    From Ampere on (compute capability 8.0), tensor cores multiply fp32 inputs rounded to TF32: the range of fp32 with
    10 bits of mantissa. torch leaves this off for matrix products (`highest`) and on for convolutions.

    ## How it is measured
    As `tc-unused`, for the kernels whose setting is off: matrix products and attention where
    `torch.get_float32_matmul_precision()` is `highest`, convolutions where `torch.backends.cudnn.allow_tf32` is False,
    both with `NVIDIA_TF32_OVERRIDE=0`. Only the 20 longest kernels are known by name, so the time is a lower bound.

    ## When it is wrong
    - Silent where the host sets the pace, and on devices whose TF32 is not faster than fp32.
    - TF32 rounds inputs: where the last digits matter, as in physics or some losses, `highest` is right.

    ## What to do
    `torch.set_float32_matmul_precision("high")` before `trainer.fit`. `Trainer(precision="bf16-mixed")` gains more.
    """

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
        fires("both are off", "critical", "30.0 ms of every", kernels=_FP32, run=_flags("highest", cudnn=False)),
        fires("the environment overrides them", "critical", "unset NVIDIA", kernels=_FP32, run={_OVERRIDE: "0"}),
        fires("products take 2.51 of 50 ms", "info", "2.51 ms", kernels=_part(2.51), run=_DEFAULTS),
        quiet("products take 2.49 of 50 ms", kernels=_part(2.49), run=_DEFAULTS),
        quiet("TF32 is on", kernels=_FP32, run=_flags("high")),
        quiet("products are in bf16", kernels={"tensor core gemm": 30, "pointwise": 18}, run=_DEFAULTS),
        quiet("the GPU is a V100", kernels=_FP32, run={**_DEFAULTS, _CAPABILITY: "7.0"}),
        looks_alike("TF32 is no faster on an A10G", kernels={"fp32 gemm": 48}, device="A10G", run=_DEFAULTS),
        not_evaluated("the settings are not known", "TF32 settings", kernels=_FP32),
        not_evaluated("the GPU is not known", "capability", kernels=_FP32, run={**_DEFAULTS, _CAPABILITY: None}),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """The device has to be known, and the settings where it has TF32."""
        self._switch(metrics)

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge the products whose setting is off."""
        switch = self._switch(metrics)
        found = measured(run.off_tensor_cores).get(switch.products) if switch is not None else None
        if switch is None or found is None or found.faster_dtype != "tf32":
            return None
        if not self.is_long(run, found.time) or not worthwhile(found.saved.ms, run.period_ms):
            return None
        longest = f" Longest: {listed(list(found.names))}." if found.names else ""
        unset = (
            f"unset {_OVERRIDE.partition('.')[2]}, then "
            if switch.products == "all" and _OVERRIDE[4:] in switch.state
            else ""
        )
        return self.of_kernels(
            metrics,
            run,
            subject=switch.what,
            summary=f"{switch.what} in fp32 without TF32 take {of_every_step(found.time.ms, run)}.{longest}",
            advice=f"Allow TF32 before trainer.fit: {unset}{'; '.join(switch.change.add)}. Now {switch.state}; TF32 "
            f"multiplies up to {found.peak_ratio:.3g} times as fast here.",
            evidence=(
                Evidence(name="peak of TF32 over fp32", value=found.peak_ratio),
                self.evidence("least_capability", capability(metrics) or 0.0, "compute capability"),
            ),
            time=found.time,
            saved=found.saved,
            change=switch.change,
        )

    def _switch(self, metrics: Metrics) -> _Switch | None:
        """What keeps TF32 off; None if nothing does, or the device has none."""
        of_device = capability(metrics)
        if of_device is None:
            raise MissingSignal("the compute capability of the device is not known")
        if of_device < self.least_capability:
            return None
        if str(condition(metrics, _OVERRIDE)) == "0":
            change = Change(remove=("NVIDIA_TF32_OVERRIDE=0",), add=(_SET_MATMUL,))
            state = "NVIDIA_TF32_OVERRIDE is 0"
            return _Switch(products="all", what="Matrix products and convolutions", state=state, change=change)
        matmul, cudnn = condition(metrics, _MATMUL), condition(metrics, _CUDNN)
        if matmul is None or cudnn is None:
            raise MissingSignal("the TF32 settings are not known")
        return _SWITCHES.get((matmul == "highest", cudnn is False))


_ON, _OFF, _NOW = f"{_SET_CUDNN}True", f"{_SET_CUDNN}False", "float32_matmul_precision is highest"
_SWITCHES = {
    (True, False): _Switch(
        products="matrix products", what="Matrix products", state=_NOW, change=Change(add=(_SET_MATMUL,))
    ),
    (False, True): _Switch(
        products="convolutions",
        what="Convolutions",
        state="cudnn.allow_tf32 is False",
        change=Change(remove=(_OFF,), add=(_ON,)),
    ),
    (True, True): _Switch(
        products="all",
        what="Matrix products and convolutions",
        state=f"{_NOW} and cudnn.allow_tf32 is False",
        change=Change(remove=(_OFF,), add=(_SET_MATMUL, _ON)),
    ),
}
"""By whether matrix products and convolutions are kept off TF32."""
