"""Builds the memory of a run on a GPU: half full and steady unless a keyword differs."""

from collections.abc import Mapping
from typing import Any

from empty_structs import empty
from gpu_builder import gpu, idle_window, on
from metrics_builder import build, replace

from lightning_gpuprof.model.memory import (
    MEMORY_PHASES,
    DeviceMemory,
    Growth,
    Held,
    Memory,
    MemoryPhase,
    OutOfMemory,
    PhaseMemory,
)
from lightning_gpuprof.model.metrics import Metrics

GIB = 2**30
TOTAL = 140 * GIB
MODEL = {"parameters_bytes": 8 * GIB, "gradients_bytes": 8 * GIB, "optimizer_state_bytes": 16 * GIB}


def held(**changes: int | None) -> Held:
    """A model of 8 GiB with Adam."""
    return Held(device="cuda:0", dtype="float32", **{**MODEL, **changes})  # type: ignore[arg-type]


def phases(ends_gib: Mapping[MemoryPhase, float]) -> tuple[PhaseMemory, ...]:
    """The allocator at the ends of phases."""
    return tuple(
        empty(PhaseMemory, phase=phase, samples=20, allocated_bytes=ends_gib[phase] * GIB)
        for phase in MEMORY_PHASES
        if phase in ends_gib
    )


def allocator(
    *,
    allocated_gib: float = 60.0,
    reserved_gib: float | None = None,
    total: int | None = TOTAL,
    activations_gib: float | None = 20.0,
    ends_gib: Mapping[MemoryPhase, float] | None = None,
    **changes: Any,
) -> DeviceMemory:
    """A device's allocator; 60 of 140 GiB at its peak, in the backward pass."""
    reserved = (allocated_gib + 2.0 if reserved_gib is None else reserved_gib) * GIB
    told: dict[str, Any] = {
        "name": "gpu0",
        "total_bytes": total,
        "samples": 120,
        "allocated_peak_bytes": allocated_gib * GIB,
        "reserved_peak_bytes": reserved,
        "peak_ratio": None if total is None else reserved / total,
        "headroom_bytes": None if total is None else total - reserved,
        "inactive_split_at_peak_bytes": 0.02 * reserved,
        "fragmentation_ratio": 0.02,
        "unused_ratio": 1 - allocated_gib * GIB / reserved,
        "retries_count": 0,
        "retries_steady_count": 0,
        "ooms_count": 0,
        "device_allocs_steady_count": 0,
        "device_frees_steady_count": 0,
        "steady_steps": 380,
        "activations_bytes": None if activations_gib is None else activations_gib * GIB,
        "activations_ratio": None if activations_gib is None else activations_gib / allocated_gib,
        "gradients_live_in_forward": True,
        "peak_phase": "backward",
        "phases": phases(ends_gib or {}),
    }
    return DeviceMemory(**{**told, **changes})


def memory(
    *devices: DeviceMemory,
    model: tuple[Held, ...] = (held(),),
    growth: tuple[Growth, ...] = (),
    end: OutOfMemory | None = None,
) -> Memory:
    """The memory of a run; one healthy device if none is given."""
    return Memory(devices=devices or (allocator(),), held=model, growth=growth, out_of_memory=end)


def grows(
    bytes_per_step: float, *, steps: int = 1000, samples: int = 100, p_value: float = 1e-6, first_gib: float = 40.0
) -> Growth:
    """A steady growth of what is allocated."""
    return Growth(
        what="gpu0 allocated",
        samples=samples,
        steps=steps,
        first_bytes=first_gib * GIB,
        last_bytes=first_gib * GIB + bytes_per_step * steps,
        bytes_per_step=bytes_per_step,
        p_value=p_value,
    )


def on_gpu(device: DeviceMemory | None = None, *, run: Mapping[str, Any] | None = None, **parts: Any) -> Metrics:
    """A healthy run on a GPU with that memory; ``parts`` are those of :func:`memory` and of the run."""
    own = {name: parts.pop(name) for name in ("model", "growth", "end") if name in parts}
    gpus = parts.pop("gpus", (gpu(values={"memory_used_bytes": None}),))
    windows = parts.pop("windows", None)
    facts = {"model.optimizer": "AdamW", "model.automatic_optimization": True, "trainer.accumulate_grad_batches": 1}
    metrics = on(*gpus, run={**facts, **(run or {})}, **parts)
    metrics = replace(metrics, memory=memory(*([] if device is None else [device]), **own))
    return metrics if windows is None else replace(metrics, windows=windows)


def memory_run(
    *,
    allocator: Mapping[str, Any],
    held: Mapping[str, int | None] | None = MODEL,
    growth: Mapping[str, Any] | None = None,
    end: Mapping[str, Any] | None = None,
    idle: Mapping[str, float] | None = None,
    **changes: Any,
) -> Metrics:
    """A run of an example, each part by the keywords of its function; ``held`` is None where it was not counted."""
    return on_gpu(
        _allocator(**allocator),
        model=() if held is None else (_held(**held),),
        growth=() if growth is None else (grows(**growth),),
        end=None if end is None else OutOfMemory(**{"batch": 20, "global_step": 20, "place": "", **end}),
        windows=None if idle is None else (idle_window(**idle),),
        **changes,
    )


_allocator, _held = allocator, held  # which memory_run has as keywords

BLIND: tuple[tuple[Metrics, str], ...] = (
    (build(), "the model runs on the CPU"),
    (replace(on(gpu()), memory=Memory()), "allocator was not read"),
)
"""Runs whose memory no rule can judge, and why."""
SIZELESS = (on_gpu(allocator(total=None)), "size of the GPU's memory is not known")
