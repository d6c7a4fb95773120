"""Finds that the memory ran out, or was nearly full."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.memory import OutOfMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, is_cpu_only, threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.memory.gpu_memory import Use
from lightning_gpuprof.rules.wording import listed, percent

_MANY_BYTES = 2**30

_LESS = {
    "optimizer state": "keep it in 8 bits or factored (Adafactor)",
    "parameters": "keep them in half precision: Trainer(precision='bf16-true')",
    "gradients": "keep them in half precision: Trainer(precision='bf16-true')",
}
"""What makes a holder smaller on one GPU."""


@dataclass(frozen=True, kw_only=True)
class OomRisk(BaseRule):
    """The run ended for want of memory, or its tensors nearly filled the GPU.

    ## What it means

    A batch that is a little longer, another allocation of a library, a second process: the next run may end with an
    out-of-memory error. If this one did, the finding says what held the memory at that moment.

    ## How it is measured

    The largest amount that tensors took (torch's allocator, its own peak counter) and what is in use on the GPU beyond
    torch (NVML: CUDA's context, NCCL, other processes), over the GPU's memory. From 92 % it is information, from 97 % a
    warning; a run that ended with an out-of-memory error is critical. Memory that the allocator has reserved but not
    given out does not count: it is given back when something else is needed.

    ## When it is wrong

    - A run whose batches are all alike does not get larger: a full GPU is then a well used one. Hence the high limits.
    - Without NVML what lies outside of torch is not known, and the share is too low.
    - Peaks in traced steps count like all others: the profiler itself holds no memory of the GPU.

    ## What to do

    What holds the most comes first: activations (a smaller batch with accumulation, recomputation), optimizer state
    (sharding, 8-bit states), fragmentation (`expandable_segments:True`).

    ## Example

    "Out of memory in forward at model.py:31 training_step: 2 GiB were wanted, 0.5 GiB were free."
    """

    id = "oom-risk"

    high_ratio: float = threshold(0.92, source="TraceML: 0.92 of the GPU's memory")
    full_ratio: float = threshold(0.97, source="TraceML: 0.97 of the GPU's memory")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the end of the run, and the largest use of the GPU's memory."""
        end = metrics.memory.out_of_memory
        if end is not None:
            return self._ended(metrics, end)
        use = gpu_memory.use(metrics)
        if use.ratio < self.high_ratio:
            return None
        level: Severity = "warning" if use.ratio >= self.full_ratio else "info"
        outside = "" if not use.outside_bytes else f", {gib(use.outside_bytes)} of them outside of torch"
        return self.finding(
            severity=level,
            subject=use.memory.name,
            summary=f"At the peak {gib(use.needed_bytes)} of {gib(use.total_bytes)} ({percent(use.ratio)}) of "
            f"{use.memory.name} were needed{outside}: {gib(max(0.0, use.total_bytes - use.needed_bytes))} are left.",
            advice=_advice(metrics, None),
            evidence=(
                self.evidence(
                    "full_ratio" if level == "warning" else "high_ratio", use.ratio, "memory that was needed"
                ),
                *_use_evidence(use),
            ),
            confidence=0.9 if use.outside_bytes is not None else 0.7,
        )

    def _ended(self, metrics: Metrics, end: OutOfMemory) -> Finding:
        where = f" in {end.phase}" if end.phase else ""
        place = f" at {end.place}" if end.place else ""
        wanted = [] if end.requested_bytes is None else [f"{gib(end.requested_bytes)} were wanted"]
        wanted += [] if end.device_free_bytes is None else [f"{gib(end.device_free_bytes)} were free on the device"]
        wanted += (
            []
            if end.allocated_bytes is None or end.reserved_bytes is None
            else [f"{gib(end.allocated_bytes)} of {gib(end.reserved_bytes)} reserved were in tensors"]
        )
        values = (
            ("wanted", end.requested_bytes),
            ("free on the device", end.device_free_bytes),
            ("in tensors", end.allocated_bytes),
            ("reserved", end.reserved_bytes),
            ("largest free piece of it", end.largest_free_bytes),
        )
        evidence = [Evidence(name=name, value=value, unit="bytes") for name, value in values if value is not None]
        return self.finding(
            severity="critical",
            subject=end.place or end.phase or "memory",
            summary=f"Out of memory{where}{place} (batch {end.batch}){': ' if wanted else ''}"
            f"{listed(wanted) if wanted else ''}.",
            advice=_advice(metrics, end),
            evidence=tuple(evidence) or (Evidence(name="out of memory", value=end.message),),
        )


def _use_evidence(use: Use) -> tuple[Evidence, ...]:
    values = (
        ("peak of tensors", use.memory.allocated_peak_bytes),
        ("outside of torch", use.outside_bytes),
        ("memory of the GPU", use.total_bytes),
    )
    return tuple(Evidence(name=name, value=value, unit="bytes") for name, value in values if value is not None)


def _advice(metrics: Metrics, end: OutOfMemory | None) -> str:
    """What frees the most memory first."""
    found = (_fragments(metrics, end), _others(metrics), _largest_holder(metrics, end))
    options = [option for option in found if option]
    return " ".join(options) or (
        "Use a smaller batch and accumulate: Trainer(accumulate_grad_batches=2); GpuProfiler(trace=TraceConfig("
        "memory_snapshot=True)) shows by source line what holds the memory."
    )


def _fragments(metrics: Metrics, end: OutOfMemory | None) -> str:
    """Where enough was free in what torch had reserved, but in too small pieces."""
    if end is None or end.requested_bytes is None or end.free_in_reserved_bytes is None:
        return ""
    setting = gpu_memory.expandable_advice(metrics)
    largest = end.largest_free_bytes or 0
    if not setting or end.free_in_reserved_bytes < end.requested_bytes or largest >= end.requested_bytes:
        return ""
    return (
        f"Set {setting}: {gib(end.free_in_reserved_bytes)} were free in what torch had reserved, the largest piece "
        f"{gib(largest)}."
    )


def _others(metrics: Metrics) -> str:
    for device in metrics.devices:
        others = gpus.median(device, "memory_others_bytes")
        if others is not None and others >= _MANY_BYTES:
            return f"End the other processes on {device.subject}: they hold {gib(others)} (nvidia-smi)."
    return ""


def _largest_holder(metrics: Metrics, end: OutOfMemory | None) -> str:
    held = _held_by_kind(metrics, end)
    kind = max(held, key=lambda name: held[name], default="")
    if not kind or held[kind] <= 0:
        return ""
    amount = gib(held[kind])
    if kind != "activations":
        ways = [gpu_memory.shard_advice(metrics), _LESS[kind]]
        verb = "holds" if kind == "optimizer state" else "hold"
        return f"The {kind} {verb} the most ({amount}): {', or '.join(way for way in ways if way)}."
    return f"Activations hold the most ({amount}): {smaller_batch(metrics)}, or recompute them: torch.utils.checkpoint."


def smaller_batch(metrics: Metrics) -> str:
    """Half the batch at the same effective one, in this run's values."""
    size = metrics.loader.batch_size if metrics.loader is not None else None
    now = condition(metrics, "trainer.accumulate_grad_batches")
    times = 2 * now if isinstance(now, int) and not isinstance(now, bool) and now > 0 else 2
    if not size or size < 2:
        return f"Trainer(accumulate_grad_batches={times}) with half the batch"
    return f"DataLoader(batch_size={size // 2}) with Trainer(accumulate_grad_batches={times})"


def _held_by_kind(metrics: Metrics, end: OutOfMemory | None) -> dict[str, float]:
    """Bytes on the device, or on the CPU where that ran out."""
    rows = end.held if end is not None and end.held else metrics.memory.held
    if not is_cpu_only(metrics) or metrics.memory.devices:
        rows = tuple(row for row in rows if row.device != "cpu") or rows
    try:
        activations: float | None = gpu_memory.allocator(metrics).activations_bytes
    except MissingSignal:
        activations = None
    if end is not None and end.other_bytes is not None:
        activations = float(end.other_bytes)
    held = {
        "parameters": float(sum(row.parameters_bytes for row in rows)),
        "gradients": float(sum(row.gradients_bytes or 0 for row in rows)),
        "optimizer state": float(sum(row.optimizer_state_bytes for row in rows)),
    }
    # What is not known cannot be the smallest: without activations nothing is said to hold the most.
    return {} if activations is None else {**held, "activations": activations}
