"""More than half of the GPU's memory is free while the GPU has too little to do: a larger batch fits.

## What it means
Small kernels leave multiprocessors idle, and launching them costs the host as much as launching large ones. A larger
batch gives each launch more work.

## How it is measured
The needed memory, with what others hold, beside how the GPU is used: how long it idles (trace windows), else how many
of its SMs are active (GPM, 95 % upper bound of the mean). Silent where the run waits for batches. The proposed batch is
twice the size, or less if this run's activations would not fit. Information without a gain, which must be tried.

## When it is wrong
- A larger batch changes the training: learning rate and number of steps go with it.

## What to do
Try the batch size and compare samples per second; `Tuner(trainer).scale_batch_size(model)` finds the largest.
"""

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.numbers import gib, possible
from lightning_gpuprof.model.signals import device_idle_ratio
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, percent, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.memory_rule import memory_use

_SMALL = {"allocated_gib": 22.0, "activations_gib": 10.0}
_LARGE = {"allocated_gib": 69.0, "activations_gib": 68.0}
_IDLE = {"values": {"memory_used_bytes": None, "sm_active_ratio": 0.2}}


class MemoryHeadroom(BaseRule):
    id = "memory-headroom"
    title = "The GPU and its memory are underused"

    needed_ratio: float = threshold(0.50, source="heuristic: half of the GPU's memory")
    idle_ratio: float = threshold(0.30, source="heuristic: work in less than 70 % of the step")
    active_ratio: float = threshold(0.50, source="DCGM: SM activity below 0.5 is ineffective use of the GPU")
    wait_ratio: float = threshold(0.10, source="the method: input-bound from here on")
    filled_ratio: float = threshold(0.85, source="heuristic: what a larger batch may fill")

    examples = (
        fires("22 of 140 GiB are needed", "info", "batch_size=64", allocator=_SMALL, gpu=_IDLE),
        fires("a double batch would not fit", "info", "batch_size=55", allocator=_LARGE, gpu=_IDLE),
        quiet("the GPU is well used", allocator=_SMALL),
        looks_alike("the run waits for batches", allocator=_SMALL, gpu=_IDLE, times_ms={"data_wait": 60.0}),
        not_evaluated("the batch size is unknown", "batch size", allocator=_SMALL, gpu=_IDLE, no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        use = memory_use(metrics)
        name, wait_ratio = use.memory.name, metrics.share_of("data_wait").median_ratio
        metrics.require_steady()
        if use.ratio >= self.needed_ratio or wait_ratio >= self.wait_ratio:
            return None
        why = self._underused(metrics, name)
        size = metrics.batch_size or 0
        if why and not size:
            raise MissingSignal("the batch size is not known")
        larger = int(size * min(2.0, use.times_larger_batch(self.filled_ratio)))
        if not why or larger <= size:
            return None
        return self.finding(
            subject=name,
            summary=f"The run needs at most {gib(use.needed_bytes)} of {gib(use.total_bytes)} ({percent(use.ratio)}) "
            f"of {name}, {why}.",
            advice=f"Try batch_size={larger} instead of {size} and compare samples per second. Learning rate and "
            "number of steps may have to change with it.",
            change=setting("DataLoader", batch_size=(size, larger)),
            evidence=(
                self.evidence("needed_ratio", use.ratio, "needed memory, share of the GPU"),
                self.evidence("wait_ratio", wait_ratio, "wait for batches, share of the step"),
            ),
            confidence=0.5,
        )

    def _underused(self, metrics: Metrics, name: str) -> str:
        """In what way the GPU is underused; empty if it is not."""
        idle = device_idle_ratio(metrics)
        if idle is not None and idle >= self.idle_ratio:
            return f"which is idle for {percent(idle)} of the step"
        device = next((d for d in metrics.devices if d.subject == name and d.samples >= MIN_SAMPLES), None)
        active = device.values.get("sm_active_ratio") if device is not None else None
        if device is not None and active is not None and possible(active.mean) and possible(active.std):
            low = active.upper_mean(device.samples) < self.active_ratio
            return f"and only {percent(active.mean)} of its SMs are active" if low else ""
        if idle is None:
            raise MissingSignal("whether the GPU is underused was not measured: no trace window, no counters")
        return ""
