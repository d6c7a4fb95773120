"""Where the whole step stands under the roofline: whether the GPU's arithmetic or its memory limits it first.

## What it means
A GPU does so many FLOPs while its memory moves one byte: the ridge of its roofline. A step that needs more FLOPs than
that per byte is limited by arithmetic before it is by memory, one that needs fewer by memory.

## How it is measured
FLOPs of matrix products, convolutions and attention by the shapes in trace windows, each at the data sheet's peak of
its type; bytes by the GPU's counter of DRAM bandwidth (GPM, Hopper and later) over the whole training, at the data
sheet's bandwidth; time from untraced steps. Both are shares of what the GPU can do in the step, and their ratio is the
step's FLOPs per byte over the ridge. Information without a gain; silent without the counter.

## When it is wrong
- FLOPs outside of products do not count: a step of pointwise arithmetic may be limited by it.
- Bytes of validation count as bytes of steps.

## What to do
Left of the ridge move fewer bytes, right of it compute faster or less. Where the step is far from both limits, neither
helps yet: see what the GPU waits for, and whether its kernels fill it.
"""

from lightning_gpuprof.model.device_kernels import DeviceRun
from lightning_gpuprof.model.trace.roofline import LATENCY_BELOW_RATIO
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, decimal_size, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.gpu_counters import mean_in_steps
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule


def _run(mfu: float, dram: float | None, known: float = 1.0) -> dict[str, object]:
    """A run of an example: the shares of its peaks that a GPU reaches."""
    return {
        "kernels": {"tensor core gemm": 33.6, "pointwise": 14.4},
        "mfu": (mfu, known),
        "gpu": {"values": {"dram_active_ratio": dram}},
    }


class RooflinePosition(KernelRule):
    id = "roofline-position"
    title = "The step is off the roofline's ridge"
    needs = "gpu"
    certainty = 0.7

    least_distance: float = threshold(1.25, source="heuristic: nearer to the ridge, clocks decide on which side")
    near_ratio: float = threshold(LATENCY_BELOW_RATIO, source="Nsight Compute: latency limits what is below 60 %")
    least_known_ratio: float = threshold(0.80, source="heuristic, as for mfu-low")

    examples = (
        fires("memory is at 80 %, products at 20 %", "info", "memory limits it ... torch.compile", **_run(0.2, 0.8)),
        fires(
            "products are at 65 %, memory at 30 %", "info", "arithmetic limits it", lacks="Neither", **_run(0.65, 0.3)
        ),
        fires("products are at 30 %, memory at 10 %", "info", "Neither is near", **_run(0.3, 0.1)),
        quiet("both are at 50 %", **_run(0.5, 0.5)),
        looks_alike("the host is the bottleneck", **{**_run(0.2, 0.8), "kernels": {"tensor core gemm": 30}}),
        not_evaluated("there are no counters", "GPM", **_run(0.2, None)),
        not_evaluated("half of the FLOPs are known", "FLOPs", **_run(0.2, 0.8, known=0.5)),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        mean_in_steps(metrics, "dram_active_ratio")
        if not run.rated(self.least_known_ratio):
            raise MissingSignal("the FLOPs of most products or the peak of the device are not known")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        memory = mean_in_steps(metrics, "dram_active_ratio")
        window, compute = max(run.rated(self.least_known_ratio), key=lambda item: item[1])
        if memory <= 0 or 1 / self.least_distance < compute / memory < self.least_distance:
            return None
        roofline, at_memory = window.analysis.roofline, memory > compute
        name = (roofline.device if roofline is not None else None) or "the GPU"
        work = ""
        if roofline is not None and roofline.flops_per_step and roofline.bytes_per_s:
            moved = memory * roofline.bytes_per_s * run.period_ms / 1e3
            per_byte = roofline.flops_per_step / moved
            work = (
                f" It does {roofline.flops_per_step / 1e12:,.3g} TFLOP in products and moves {decimal_size(moved)}, "
                f"which is {per_byte:,.3g} FLOP/B; the ridge is at {per_byte * memory / compute:,.3g}."
            )
        advice = (
            "Move fewer bytes: fuse pointwise operators (torch.compile), keep tensors in 16 bits, use fused attention."
            if at_memory
            else "Compute faster or less: 16 or 8 bits instead of 32, sizes that fit tensor cores, no recomputation."
        )
        far = max(compute, memory) < self.near_ratio
        first = "Neither is near its limit: look first for what the GPU waits for, and for small kernels. Then: "
        return self.of_kernels(
            run,
            subject=name,
            summary=f"The step reaches {percent(compute)} of the peak FLOP/s and {percent(memory)} of the memory "
            f"bandwidth: {'memory' if at_memory else 'arithmetic'} limits it first.{work}",
            advice=f"{first}{advice[0].lower()}{advice[1:]}" if far else advice,
            evidence=(
                self.evidence("near_ratio", max(compute, memory), "share of the nearer limit"),
                self.fact("peak FLOP/s that products reach", compute, "ratio"),
                self.fact("memory bandwidth, by the GPU's counters", memory, "ratio"),
            ),
        )
