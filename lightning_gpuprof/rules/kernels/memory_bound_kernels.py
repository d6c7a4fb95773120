"""Pointwise operators and reductions that only move data take a large part of the step, and nothing fuses them.

## What it means
An addition, an activation or a normalisation reads its inputs from memory and writes its result back; the arithmetic is
free. A compiler fuses such operators, so that intermediate results never reach memory.

## How it is measured
Trace windows: the time of pointwise kernels, normalisations and reductions, and how much of the memory bandwidth those
of known shapes reach (measured, else of the data sheet; bytes are a lower bound). How much of the pointwise time a
compiler saves is not known beforehand: information, and the gain's lower bound is 0.

## When it is wrong
- A model that is mostly normalisation of huge tensors may be as fast as memory allows.

## What to do
`torch.compile(model)`, a fused optimizer, fused normalisation layers, or half precision, which halves the bytes.
"""

from msgspec.structs import replace

from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, listed, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule
from lightning_gpuprof.rules.torch_advice import compile_model


def _run(ms: float = 30.0, bandwidth_ratio: float = 0.8) -> dict[str, object]:
    """A run of an example: pointwise kernels, and the share of an A100's bandwidth that they reach."""
    row = {"kind": "elementwise", "bytes_per_call": bandwidth_ratio * 15.55e9, "bound": "memory"}
    add = ("aten::add", "64x4096x1024", 10.0, row)
    return {"kernels": {"pointwise": ms, "tensor core gemm": 49 - ms}, "roofline": [add]}


class MemoryBoundKernels(KernelRule):
    id = "memory-bound-kernels"
    title = "Unfused pointwise kernels are slow"
    explains = claims.MEMORY_KERNELS
    certainty = 0.4
    what = "pointwise and reductions, share of the step"

    least_ratio: float = threshold(0.40, source="the method")
    least_bandwidth_ratio: float = threshold(0.60, source="NVIDIA Visual Profiler, Nsight Compute: bound from 60 % on")
    fused_ratio: float = threshold(0.50, source="heuristic: joined with one neighbour, an operator moves half")

    examples = (
        fires("the kernels take 30 of 50 ms", "info", "80 % of the memory bandwidth", saves_ms=15, **_run()),
        fires("the model is not compiled", "info", "torch.compile", **_run(), run={"compile.state": "none"}),
        fires("the kernels reach 61 % of the bandwidth", "info", "61 %", **_run(bandwidth_ratio=0.61)),
        fires("the kernels take 20.1 of 50 ms", "info", "20.1 ms", **_run(20.1)),
        quiet("the kernels take 19.9 of 50 ms", **_run(19.9)),
        quiet("the model is compiled", **_run(), run={"compile.state": "module"}),
        looks_alike("the kernels reach 59 % of the bandwidth", **_run(bandwidth_ratio=0.59)),
        looks_alike("the host is the bottleneck", **{**_run(), "kernels": {"pointwise": 30}}),
        not_evaluated("their bytes are not known", "bandwidth", **{**_run(), "roofline": []}),
        UNTRACED,
    )

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        found, compiled = measured(run.pointwise), metrics.condition("compile.state") not in (None, "none")
        bandwidth, time = found.bandwidth_ratio, run.cost(found.time)
        saved = replace(time, ms=self.fused_ratio * found.elementwise.ms, lower_ms=0.0)
        if compiled or not self.is_long(time):
            return None
        if bandwidth is None:
            raise MissingSignal("the bytes of pointwise operators or the memory bandwidth are not known")
        if bandwidth < self.least_bandwidth_ratio or not saved.is_worth():
            return None
        advice, change = compile_model(metrics)
        return self.of_kernels(
            run,
            subject=found.names[0],
            summary=f"Pointwise kernels and reductions take {time}. They reach "
            f"{percent(bandwidth)} of the memory bandwidth, which limits them. Longest: {listed(found.names)}.",
            advice=f"{advice} Fused pointwise operators keep intermediate results out of memory.",
            time=time,
            evidence=(
                self.evidence("least_bandwidth_ratio", bandwidth, "share of the memory bandwidth"),
                self.fact("pointwise kernels per step", found.elementwise.ms, "ms"),
            ),
            cost=saved,
            change=change,
        )
