"""Kernels use neither the arithmetic nor the memory of the GPU: their warps wait.

## What it means
A kernel whose compute and memory throughput are both below 60 % of the peak is limited by latency: too few warps are
ready while others wait for memory, for results, or for each other.

## How it is measured
Only where counters prove it, as the bytes that follow from shapes are a lower bound. Only kernels of 20 µs and more
count, without communication: in shorter ones starting up takes much of the time.

- `gpuprof trace TRACE --ncu ncu.csv --all`: kernels that Nsight Compute measured, by its compute and memory throughput.
- The GPU's own counters (GPM, Hopper and later), over the whole training. If the SMs are active for 12 % and the memory
  for 6 % of the time on average, one of them can be above 60 % for 12 / 60 + 6 / 60 = 30 % of the time at most. What
  kernels take beyond that is proven, though not which of them it is.

Information: no counter shows what more warps would gain.

## When it is wrong
- Nsight Compute runs each kernel alone; in the training, kernels of other streams may fill the gaps.
- Kernels of one name are judged by their averages.

## What to do
More parallelism: a larger batch, longer rows, fused kernels. `gpuprof nsys-cmd --tool ncu` prints the command that
shows what the warps of a kernel wait for.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, short_name
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.trace.kernels import KernelRow
from lightning_gpuprof.model.trace.roofline import LATENCY_BELOW_RATIO
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, listed, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.gpu_counters import mean_in_steps
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule


def _run(ms: float, sm: float | None, dram: float | None) -> dict[str, object]:
    """A run of an example: its kernels, and the GPU's counters."""
    return {
        "kernels": {"tensor core gemm": ms},
        "gpu": {"values": {"sm_active_ratio": sm, "dram_active_ratio": dram}},
    }


class LatencyBoundKernels(KernelRule):
    id = "latency-bound-kernels"
    title = "Kernels are limited by latency"
    needs = "gpu"
    certainty = 0.7
    what = "latency-bound kernels, share of the step"

    least_ratio: float = threshold(0.20, source="heuristic: a fifth of the step")
    full_ratio: float = threshold(LATENCY_BELOW_RATIO, source="NVIDIA Visual Profiler, Nsight Compute: below 60 %")
    least_us: float = threshold(20.0, source="the method: shorter kernels are launches more than work")

    examples = (
        fires(
            "SMs are active for 12 %, memory for 6 %",
            "info",
            "of neither compute nor memory ... --tool ncu",
            **_run(49, 0.12, 0.06),
        ),
        quiet("SMs are active for 40 %", **_run(49, 0.4, 0.06)),
        quiet("memory is active for 60 %", **_run(49, 0.12, 0.6)),
        looks_alike("the GPU waits for the host", **_run(30, 0.12, 0.06)),
        not_evaluated("no counter was read", "neither Nsight Compute", **_run(49, None, 0.06)),
        UNTRACED,
    )

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        long = [row for window in run.windows for row in window.long_kernels(self.least_us)]
        if any(row.throughput_ratio is not None for row in long):
            return self._by_nsight_compute(run)
        try:
            sm, dram = (mean_in_steps(metrics, name) for name in ("sm_active_ratio", "dram_active_ratio"))
        except MissingSignal as missing:
            raise MissingSignal(f"neither Nsight Compute nor the GPU measured its kernels: {missing.why}") from None
        return self._by_gpu(run, sm, dram)

    def _by_nsight_compute(self, run: DeviceRun) -> Finding | None:
        def limited(window: DeviceWindow) -> list[KernelRow]:
            return [
                row for row in window.long_kernels(self.least_us) if (row.throughput_ratio or 1.0) < self.full_ratio
            ]

        time = run.per_step(lambda window: sum(row.total_us for row in limited(window)))
        if not self.is_long(time):
            return None
        rows = max((limited(window) for window in run.windows), key=len)
        spent_us = sum(row.total_us for row in rows)
        mean = sum((row.throughput_ratio or 0.0) * row.total_us for row in rows) / spent_us
        return self.of_kernels(
            run,
            subject=short_name(rows[0].name),
            summary=f"{counted(len(rows), 'kernel')} of {self.least_us:.0f} µs and more "
            f"{'takes' if len(rows) == 1 else 'take'} {time}, and Nsight Compute measured that the compute and the "
            f"memory throughput of each are below {percent(self.full_ratio)}: "
            f"{listed([short_name(row.name) for row in rows[:3]])}.",
            advice="Give each kernel more parallel work: a larger batch, longer rows, fused operators. What their "
            "warps wait for is in the report of: gpuprof nsys-cmd --tool ncu.",
            time=time,
            evidence=(self.evidence("full_ratio", mean, "the higher of their compute and memory throughput, mean"),),
        )

    def _by_gpu(self, run: DeviceRun, sm: float, dram: float) -> Finding | None:
        long = run.per_step(lambda window: sum(row.total_us for row in window.long_kernels(self.least_us)))
        full_ms = (sm + dram) / self.full_ratio * run.period_ms
        time = replace(long, ms=max(0.0, long.ms - full_ms), lower_ms=max(0.0, long.lower_ms - full_ms))
        if not self.is_long(time):
            return None
        rows = run.windows[0].long_kernels(self.least_us)
        return self.of_kernels(
            run,
            subject=short_name(rows[0].name) if rows else "kernels",
            summary=f"Kernels of {self.least_us:.0f} µs and more take {long}. In at least {millis(time.ms)} of that "
            f"they reach {percent(self.full_ratio)} of neither compute nor memory: by the GPU's counters, "
            f"at most {percent(sm)} of its SMs and {percent(dram)} of its memory bandwidth are used on average.",
            advice="Give each kernel more parallel work: a larger batch, longer rows, fused operators. Which kernels "
            "these are, and what their warps wait for, shows: gpuprof nsys-cmd --tool ncu.",
            time=time,
            evidence=(
                self.evidence("full_ratio", sm, "active multiprocessors"),
                self.evidence("full_ratio", dram, "memory bandwidth, by the GPU's counters"),
            ),
        )
