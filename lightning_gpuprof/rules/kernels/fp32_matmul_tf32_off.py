"""Finds fp32 products on CUDA cores on a device that has TF32, while the switch for it is off."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.device_kernels import DeviceRun
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.signals import capability
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, condition, threshold, worthwhile
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule, of_every_step, share_of_step
from lightning_gpuprof.rules.kernels.matrix_kernels import LEAST_RATIO, off_tensor_cores

_MATMUL, _CUDNN = "flags.float32_matmul_precision", "flags.cudnn_tf32"
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


_DEFAULTS = _flags("highest")


@dataclass(frozen=True, kw_only=True)
class _Switch:
    """A setting that keeps products of some kernel classes off TF32."""

    classes: tuple[str, ...]
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

    least_ratio: float = threshold(LEAST_RATIO, source="heuristic")
    least_capability: float = threshold(8.0, source="NVIDIA: TF32 from Ampere on")

    examples = (
        fires("torch has its defaults", "critical", _SET_MATMUL, saves_ms=17.5, kernels=_FP32, run=_DEFAULTS),
        fires(
            "TF32 is off for convolutions",
            "warning",
            f"{_SET_CUDNN}True",
            kernels=_FP32,
            run=_flags("high", cudnn=False),
        ),
        fires("both are off", "critical", "30.0 ms of every", kernels=_FP32, run=_flags("highest", cudnn=False)),
        fires("the environment overrides them", "critical", "unset NVIDIA", kernels=_FP32, run={_OVERRIDE: "0"}),
        fires("products take 2.51 of 50 ms", "info", "2.51 ms", kernels=_part(2.51), run=_DEFAULTS),
        quiet("products take 2.49 of 50 ms", kernels=_part(2.49), run=_DEFAULTS),
        quiet("TF32 is on", kernels=_FP32, run=_flags("high")),
        quiet("products are in bf16", kernels={"tensor core gemm": 30, "pointwise": 18}, run=_DEFAULTS),
        quiet("the GPU is a V100", kernels=_FP32, run={**_DEFAULTS, "device.capability": "7.0"}),
        looks_alike("TF32 is no faster on an A10G", kernels={"fp32 gemm": 48}, device="A10G", run=_DEFAULTS),
        not_evaluated("the settings are not known", "TF32 settings", kernels=_FP32),
        not_evaluated(
            "the GPU is not known", "capability", kernels=_FP32, run={**_DEFAULTS, "device.capability": None}
        ),
        not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"}),
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """The device has to be known, and the settings where it has TF32."""
        if self._has_tf32(metrics):
            _switch(metrics)

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge the products whose setting is off."""
        switch = _switch(metrics) if self._has_tf32(metrics) else None
        found = off_tensor_cores(run, switch.classes) if switch is not None else None
        if switch is None or found is None or found.faster_dtype != "tf32":
            return None
        if found.time.lower_ms < self.least_ratio * run.period_ms or not worthwhile(found.saved.ms, run.period_ms):
            return None
        longest = f" Longest: {listed(list(found.names))}." if found.names else ""
        removed = f"unset {switch.change.remove[0].partition('=')[0]}, then " if _OVERRIDE[4:] in switch.state else ""
        return self.of_kernels(
            metrics,
            run,
            subject=switch.what,
            summary=f"{switch.what} in fp32 without TF32 take {of_every_step(found.time.ms, run)}.{longest}",
            advice=(
                f"Allow TF32 before trainer.fit: {removed}{'; '.join(switch.change.add)}. Now {switch.state}; TF32 "
                f"multiplies up to {found.peak_ratio:.3g} times as fast here."
            ),
            evidence=(
                self.evidence("least_ratio", share_of_step(found.time.ms, run), "fp32 products, share of the step"),
                Evidence(name="peak of TF32 over fp32", value=found.peak_ratio),
                self.evidence("least_capability", capability(metrics) or 0.0, "compute capability"),
            ),
            saved=found.saved,
            change=switch.change,
        )

    def _has_tf32(self, metrics: Metrics) -> bool:
        of_device = capability(metrics)
        if of_device is None:
            raise MissingSignal("the compute capability of the device is not known")
        return of_device >= self.least_capability


def _switch(metrics: Metrics) -> _Switch | None:
    """What keeps TF32 off; None if nothing does."""
    if str(condition(metrics, _OVERRIDE)) == "0":
        return _Switch(
            classes=("gemm", "attention", "convolution"),
            what="Matrix products and convolutions",
            state="NVIDIA_TF32_OVERRIDE is 0",
            change=Change(remove=("NVIDIA_TF32_OVERRIDE=0",), add=(_SET_MATMUL,)),
        )
    matmul, cudnn = condition(metrics, _MATMUL), condition(metrics, _CUDNN)
    if matmul is None or cudnn is None:
        raise MissingSignal("the TF32 settings are not known")
    products, convolutions = matmul == "highest", cudnn is False
    if not products and not convolutions:
        return None
    named = [("Matrix products", products), ("convolutions", convolutions)]
    states = [("float32_matmul_precision is highest", products), ("cudnn.allow_tf32 is False", convolutions)]
    what = " and ".join(name for name, is_off in named if is_off)
    return _Switch(
        classes=(*(("gemm", "attention") if products else ()), *(("convolution",) if convolutions else ())),
        what=what[0].upper() + what[1:],
        state=" and ".join(state for state, is_off in states if is_off),
        change=Change(
            remove=(f"{_SET_CUDNN}False",) if convolutions else (),
            add=(*((_SET_MATMUL,) if products else ()), *((f"{_SET_CUDNN}True",) if convolutions else ())),
        ),
    )
