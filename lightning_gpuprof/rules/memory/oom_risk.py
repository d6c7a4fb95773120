"""Finds that the memory ran out, or was nearly full."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.memory import OutOfMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import gib, listed, percent
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, is_cpu_only, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.memory.gpu_memory import Use

_MANY_BYTES = 2**30

_LESS = {
    "optimizer state": "keep it in 8 bits or factored (Adafactor)",
    "parameters": "keep them in half precision: Trainer(precision='bf16-true')",
    "gradients": "keep them in half precision: Trainer(precision='bf16-true')",
}
"""What makes a holder smaller on one GPU."""


_END = {"message": "CUDA out of memory.", "phase": "forward", "requested_bytes": 2**31, "other_bytes": 98 * 2**30}


@dataclass(frozen=True, kw_only=True)
class OomRisk(BaseRule):
    """The run ended out of memory, or its tensors nearly filled the GPU.

    ## What it means

    With a slightly longer batch, another allocation of a library or a second process, the next run may end with an
    out-of-memory error. If this one did, the finding says what held the memory at that moment.

    ## How it is measured

    The peak of tensors (torch's allocator) plus memory in use beyond torch (NVML: CUDA's context, NCCL, other
    processes), over the GPU's memory. Information from 92 % on, a warning from 97 %; critical if the run ended with an
    out-of-memory error. Memory that is reserved but not given out does not count: it is freed when something else is
    needed.

    ## When it is wrong

    - If all batches are alike, the run does not grow, and a full GPU is well used: hence the high limits.
    - Without NVML memory outside torch is not known, and the share is too low.

    ## What to do

    Reduce what holds most: activations (a smaller batch with accumulation, recomputation), optimizer state (sharding,
    8-bit states), fragmentation (`expandable_segments:True`).
    """

    id = "oom-risk"
    title = "GPU memory is nearly full"

    high_ratio: float = threshold(0.92, source="TraceML: 0.92 of the GPU's memory")
    full_ratio: float = threshold(0.97, source="TraceML: 0.97 of the GPU's memory")

    examples = (
        fires("it ended so", "critical", "batch_size=16", allocator={}, end=_END),
        fires("136 of 140 GiB are needed", "warning", "97 %", allocator={"allocated_gib": 136.0}),
        quiet("the GPU has room", allocator={}),
        looks_alike("the allocator keeps unused memory", allocator={"allocated_gib": 60.0, "reserved_gib": 139.0}),
        not_evaluated("its size is unknown", "size of the GPU's memory", allocator={"total": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the end of the run, and the largest use of the GPU's memory."""
        end = metrics.memory.out_of_memory
        if end is not None:
            return self._ended(metrics, end)
        use = gpu_memory.use(metrics)
        if use.ratio < self.high_ratio:
            return None
        level: Severity = "warning" if use.ratio >= self.full_ratio else "info"
        outside = "" if not use.outside_bytes else f", {gib(use.outside_bytes)} of it outside torch"
        advice, change = _advice(metrics, None)
        return self.finding(
            severity=level,
            subject=use.memory.name,
            summary=f"The peak takes {gib(use.needed_bytes)} of {gib(use.total_bytes)} ({percent(use.ratio)}) of "
            f"{use.memory.name}{outside}. {gib(max(0.0, use.total_bytes - use.needed_bytes))} are left.",
            advice=advice,
            change=change,
            evidence=(
                self.evidence(
                    "full_ratio" if level == "warning" else "high_ratio", use.ratio, "needed memory, share of the GPU"
                ),
                *_use_evidence(use),
            ),
            confidence=0.9 if use.outside_bytes is not None else 0.7,
        )

    def _ended(self, metrics: Metrics, end: OutOfMemory) -> Finding:
        where = f" in {end.phase}" if end.phase else ""
        place = f" at {end.place}" if end.place else ""
        wanted = [] if end.requested_bytes is None else [f"{gib(end.requested_bytes)} were requested"]
        wanted += [] if end.device_free_bytes is None else [f"{gib(end.device_free_bytes)} were free on the device"]
        wanted += (
            []
            if end.allocated_bytes is None or end.reserved_bytes is None
            else [f"tensors held {gib(end.allocated_bytes)} of the reserved {gib(end.reserved_bytes)}"]
        )
        values = (
            ("requested", end.requested_bytes),
            ("free on the device", end.device_free_bytes),
            ("in tensors", end.allocated_bytes),
            ("reserved", end.reserved_bytes),
            ("largest free piece", end.largest_free_bytes),
        )
        evidence = [Evidence(name=name, value=value, unit="bytes") for name, value in values if value is not None]
        advice, change = _advice(metrics, end)
        return self.finding(
            title="The run ran out of memory",
            severity="critical",
            subject=end.place or end.phase or "memory",
            summary=f"Out of memory{where}{place} (batch {end.batch}){': ' if wanted else ''}"
            f"{listed(wanted) if wanted else ''}.",
            advice=advice,
            change=change,
            evidence=tuple(evidence) or (Evidence(name="out of memory", value=end.message),),
        )


def _use_evidence(use: Use) -> tuple[Evidence, ...]:
    values = (
        ("peak of tensors", use.memory.allocated_peak_bytes),
        ("outside torch", use.outside_bytes),
        ("memory of the GPU", use.total_bytes),
    )
    return tuple(Evidence(name=name, value=value, unit="bytes") for name, value in values if value is not None)


def _advice(metrics: Metrics, end: OutOfMemory | None) -> tuple[str, Change | None]:
    """What frees the most memory first, and the first change among it."""
    found = (_fragments(metrics, end), _others(metrics), _largest_holder(metrics, end))
    options = [option for option in found if option is not None]
    if not options:
        smaller, change = gpu_memory.smaller_batch(metrics)
        lines = "This shows the lines that hold the memory: GpuProfiler(trace=TraceConfig(memory_snapshot=True))"
        return f"Use a smaller batch and accumulate: {smaller}. {lines}", change
    return " ".join(text for text, _ in options), next((change for _, change in options if change is not None), None)


def _fragments(metrics: Metrics, end: OutOfMemory | None) -> tuple[str, Change | None] | None:
    """Where enough was free in what torch had reserved, but in too small pieces."""
    if end is None or end.requested_bytes is None or end.free_in_reserved_bytes is None:
        return None
    setting = gpu_memory.expandable_advice(metrics)
    largest = end.largest_free_bytes or 0
    if not setting or end.free_in_reserved_bytes < end.requested_bytes or largest >= end.requested_bytes:
        return None
    return (
        f"Before the start, set {setting}. Why: {gib(end.free_in_reserved_bytes)} of the reserved memory were free, "
        f"but the largest piece was {gib(largest)}.",
        gpu_memory.expandable_change(metrics),
    )


def _others(metrics: Metrics) -> tuple[str, Change | None] | None:
    for device in metrics.devices:
        others = device.median("memory_others_bytes")
        if others is not None and others >= _MANY_BYTES:
            return f"End the other processes on {device.subject}, which hold {gib(others)} (nvidia-smi).", None
    return None


def _largest_holder(metrics: Metrics, end: OutOfMemory | None) -> tuple[str, Change | None] | None:
    held = _held_by_kind(metrics, end)
    kind = max(held, key=lambda name: held[name], default="")
    if not kind or held[kind] <= 0:
        return None
    most = f"{kind[0].upper()}{kind[1:]} {'holds' if kind == 'optimizer state' else 'hold'} most ({gib(held[kind])})"
    if kind != "activations":
        ways = [gpu_memory.shard_advice(metrics), _LESS[kind]]
        return f"{most}: {', or '.join(way for way in ways if way)}.", gpu_memory.shard_change(metrics)
    smaller, change = gpu_memory.smaller_batch(metrics)
    return f"{most}: halve the batch ({smaller}) or recompute them (torch.utils.checkpoint).", change


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
