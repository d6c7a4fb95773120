"""Who holds the memory of a run, and how full its GPU was."""

from lightning_gpuprof.model.memory import MemoryHolders, MemoryUse, ModelMemory, outside_bytes
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import possible


def memory_holders(metrics: Metrics) -> MemoryHolders:
    """Who holds the memory of a run."""
    return MemoryHolders(use=_use(metrics), model=_model(metrics), held_bytes=_held_bytes(metrics))


def _use(metrics: Metrics) -> MemoryUse | Unmeasured:
    if not metrics.memory.devices:
        return Unmeasured(why="torch's caching allocator was not read")
    memory = metrics.memory.devices[0]
    total, reserved = memory.total_bytes, memory.reserved_peak_bytes
    if total is None or not possible(total) or total <= 0:
        return Unmeasured(why="the size of the GPU's memory is not known")
    if not (possible(memory.allocated_peak_bytes) and possible(reserved or 0.0)):
        return Unmeasured(why="the allocator's peak is not a valid number")
    device = next((d for d in metrics.devices if d.subject == memory.name), None)
    used = device.largest("memory_used_bytes") if device is not None else None
    outside = outside_bytes(used, reserved, float(total))
    return MemoryUse(
        memory=memory,
        total_bytes=float(total),
        needed_bytes=memory.allocated_peak_bytes + (outside or 0.0),
        outside_bytes=outside,
    )


def _model(metrics: Metrics) -> ModelMemory | Unmeasured:
    rows = [row for row in metrics.memory.held if row.device.startswith(("cuda", "xpu", "hip"))]
    if not rows:
        return Unmeasured(why="the memory of model and optimizers was not counted")
    if len({row.device for row in rows}) > 1:
        return Unmeasured(why="the model is on several GPUs, but only one allocator was read")
    gradients = [row.gradients_bytes for row in rows if row.gradients_bytes is not None]
    return ModelMemory(
        gradients_bytes=float(sum(gradients)) if gradients else None,
        optimizer_state_bytes=float(sum(row.optimizer_state_bytes for row in rows)),
    )


def _held_bytes(metrics: Metrics) -> dict[str, float]:
    """Bytes on the device, or on the CPU where that ran out."""
    end, devices = metrics.memory.out_of_memory, metrics.memory.devices
    rows = end.held if end is not None and end.held else metrics.memory.held
    if not metrics.is_cpu_only or devices:
        rows = tuple(row for row in rows if row.device != "cpu") or rows
    activations = devices[0].activations_bytes if devices else None
    if end is not None and end.other_bytes is not None:
        activations = float(end.other_bytes)
    if activations is None:  # what is not known cannot be the smallest
        return {}
    return {
        "parameters": float(sum(row.parameters_bytes for row in rows)),
        "gradients": float(sum(row.gradients_bytes or 0 for row in rows)),
        "optimizer state": float(sum(row.optimizer_state_bytes for row in rows)),
        "activations": activations,
    }
