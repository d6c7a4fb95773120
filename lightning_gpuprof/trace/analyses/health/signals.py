"""The kinds of information in a trace, and what follows where one is missing."""

import numpy as np

from lightning_gpuprof.model.trace.attribution import MODULE
from lightning_gpuprof.model.trace.health import Signal, SignalName
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

_ABSENCE: dict[SignalName, tuple[str, str]] = {
    "device work": (
        "nothing is known about the GPU: no busy or idle time, no kernels",
        "Train on a GPU, with CUDA among the profiler's activities; gpuprof doctor shows whether CUPTI works.",
    ),
    "runtime calls": (
        "kernels and copies have no launch, operator, line or phase; blocking calls and launch times are not known",
        "Record CPU and CUDA activities together, as GpuProfiler does.",
    ),
    "operators": ("device time cannot be attributed to operators", "Record CPU activities, too, as GpuProfiler does."),
    "steps": (
        "values are per window, and the time between steps is not known",
        "GpuProfiler marks steps; elsewhere call profiler.step() once per batch.",
    ),
    "shapes": (
        "no FLOPs, MFU and roofline, no operators by input shape, no sizes of collectives before torch 2.3",
        "TraceConfig(record_shapes=True), which is the default.",
    ),
    "stacks": (
        "device time and blocking calls cannot be attributed to source lines",
        "TraceConfig(with_stack=True); a window then costs more.",
    ),
    "modules": ("time cannot be attributed to modules", "TraceConfig(modules=100), which is the default."),
    "forward-backward links": (
        "device time of the backward cannot be attributed to operators of the forward",
        "Record CPU activities of a training step; inference has none.",
    ),
    "memory events": (
        "no memory over time, and not which tensors hold it",
        "TraceConfig(profile_memory=True); it perturbs times.",
    ),
    "occupancy": (
        "estimated occupancy is computed from the launch geometry instead, if device properties are known",
        "Kineto writes it on NVIDIA GPUs only.",
    ),
    "device properties": (
        "the GPU's model is not known: no peak rates, no estimated SM efficiency",
        "Record with torch 1.9 or later.",
    ),
    "device waits": (
        "what streams waited for is unknown; blocking calls still show as runtime calls",
        "torch records it with enable_cuda_sync_events=True, which GpuProfiler leaves off.",
    ),
    "rank": (
        "ranks are numbered in the order of their traces",
        "Record with torch 1.11 or later, after torch.distributed.init_process_group.",
    ),
    "collective metadata": (
        "kinds of collectives come from kernel names; sizes and groups may be missing",
        "Record with torch 2.3 or later.",
    ),
    "absolute time": ("the trace's clock is taken as Unix time", "Record with torch 2.4 or later."),
}
"""What follows from the absence of a signal, and how to record it."""


def signals_of(linked: LinkedTrace) -> tuple[Signal, ...]:
    """Which signals a trace holds, in the order of how much hangs on them."""
    trace, ops, work = linked.trace, linked.trace.cpu_op, linked.work
    frames = sum(count for category, count in trace.categories.items() if category.lower() == "python_function")
    modules = int(linked.named(trace.python_function, lambda name: name.startswith(MODULE)).sum())
    modules = modules or len(trace.module_range)
    occupied = np.array([one.est_occupancy_ratio is not None for one in trace.geometries], np.bool_)
    geometry = trace.kernel.geometry
    communication = int(linked.is_communication.sum())
    found = [
        _counted_signal("device work", len(work)),
        _counted_signal("runtime calls", len(trace.runtime)),
        _counted_signal("operators", len(ops)),
        _counted_signal("steps", len(linked.steps)),
        _counted_signal("shapes", int((ops.inputs >= 0).sum())),
        _counted_signal("stacks", frames or int((ops.stack >= 0).sum())),
        _signal("modules", None if frames and not trace.with_frames else modules > 0, modules or None),
        _counted_signal("forward-backward links", int((ops.forward_thread > 0).sum())),
        _signal("memory events", _records_memory(trace), len(trace.memory) or None),
        _counted_signal("occupancy", int(occupied[geometry[geometry >= 0]].sum()) if len(occupied) else 0),
        _signal("device properties", bool(trace.about.device_properties), len(trace.about.device_properties) or None),
        _counted_signal("device waits", len(trace.device_wait)),
        # a process on its own has no rank, and misses none
        _signal("rank", True if trace.about.rank is not None else False if communication else None, None),
    ]
    if communication:
        found.append(_counted_signal("collective metadata", int((trace.kernel.collective >= 0).sum())))
    else:
        found.append(Signal(name="collective metadata", present=None, count=None, without="", advice=""))
    found.append(_signal("absolute time", trace.base_time_ns is not None, None))
    return tuple(found)


def _records_memory(trace: Trace) -> bool | None:
    said = trace.about.values.get("profile_memory")
    return True if len(trace.memory) else None if said is None else bool(said)


def _counted_signal(name: SignalName, count: int) -> Signal:
    return _signal(name, count > 0, count)


def _signal(name: SignalName, present: bool | None, count: int | None) -> Signal:
    without, advice = _ABSENCE[name] if present is False else ("", "")
    return Signal(name=name, present=present, count=count, without=without, advice=advice)
