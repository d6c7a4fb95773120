"""The doctor's lines about this machine's GPUs."""

from collections import defaultdict
from collections.abc import Mapping

from lightning_gpuprof.capture.nvml.inspection import GpuState, MachineGpus
from lightning_gpuprof.cli.check import Check, absent, ok, problem
from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.clock_events import MASK, NO_LIMIT, WORDS, reasons_of
from lightning_gpuprof.model.journal import Value

NOT_MEASURED = "GPU utilization, memory, power and clocks are not measured"

_COUNTERS = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")


def gpu_checks(look: MachineGpus) -> list[Check]:
    """Lines about NVML and each GPU."""
    if look.hangs:
        way_out = "look at dmesg for Xid errors, and restart the machine"
        return [problem("NVML", f"the driver hangs: {NOT_MEASURED}; {way_out}", look.absent)]
    if look.absent:
        return [absent("NVML", f"{look.absent}: {NOT_MEASURED}")]
    versions = next((gpu.facts for gpu in look.gpus if gpu.facts), {})
    value = f"driver {versions.get('driver_version', 'not known')}, CUDA {versions.get('cuda_driver_version', '?')}"
    checks = [ok("NVML", value)]
    if not look.gpus:
        checks.append(absent("GPUs", f"the driver lists no GPU for this user: {NOT_MEASURED}"))
    checks += [problem("visible GPUs", words) for words in look.problems]
    for gpu in look.gpus:
        checks += _checks_of(gpu)
    return checks


def _checks_of(gpu: GpuState) -> list[Check]:
    name = f"GPU {gpu.index}" + (" MIG" if gpu.uuid.startswith("MIG-") else "")
    seen = gpu.subject or ("used by its MIG devices" if gpu.partitioned else "not visible to processes here")
    head = f"{gpu.name} ({gpu.uuid[:12]}), {seen}"
    if gpu.lost:
        return [problem(name, f"{gpu.lost}: it is not measured", head)]
    checks = [ok(name, head)]

    def add(what: str, value: str, meaning: str = "", *, bad: bool = False) -> None:
        if value:
            checks.append(problem(f"{name} {what}", meaning, value) if bad else ok(f"{name} {what}", value, meaning))

    add("memory", _of_limit(gpu, "memory_used_bytes", "memory_total_bytes"))
    add("power", _of_limit(gpu, "power_w", "power_limit_default_w"))
    reasons = [r for r in reasons_of(gpu.values.get(MASK) or 0) if r not in NO_LIMIT]
    held = f"throttled: {', '.join(WORDS[r] for r in reasons)}" if reasons else ""
    hot = any("thermal" in reason or reason in ("hw_slowdown", "hw_power_brake") for reason in reasons)
    add("SM clock", _of_limit(gpu, "sm_clock_mhz", "sm_clock_max_mhz"), held, bad=hot)
    add("PCIe link", *_pcie(gpu))
    add("settings", _settings(gpu.facts))
    add("processes", _processes(gpu), "they share the GPU, which shows in this run's numbers" if gpu.processes else "")
    if any(gpu.values.get(counter) is not None for counter in _COUNTERS):
        add("GPM counters", "SM, tensor and DRAM activity can be measured")
    return checks + _absent(name, gpu)


def _absent(name: str, gpu: GpuState) -> list[Check]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for label, reason in gpu.absent.items():
        by_reason[reason].append(label)
    return [absent(f"{name} not measured", f"{', '.join(labels)} ({reason})") for reason, labels in by_reason.items()]


def _of_limit(gpu: GpuState, now: str, most: str) -> str:
    """``412 W of 700 W``."""
    value, limit = gpu.values.get(now), _number(gpu.facts, most)
    if value is None:
        return ""
    shown = numbers.quantity(now, value)
    return shown if limit is None else f"{shown} of {numbers.quantity(most, limit)}"


def _pcie(gpu: GpuState) -> tuple[str, str]:
    generation, width = gpu.values.get("pcie_generation"), gpu.values.get("pcie_width")
    most, widest = _number(gpu.facts, "pcie_generation_max"), _number(gpu.facts, "pcie_width_max")
    if generation is None or width is None:
        return "", ""
    shown = f"generation {numbers.significant(generation)} x{numbers.significant(width)}"
    if most is None or widest is None:
        return shown, ""
    shown += f" of {numbers.significant(most)} x{numbers.significant(widest)}"
    if width < widest:
        return shown, "fewer lanes than the GPU has: copies between host and GPU are slower"
    return shown, "an idle link is slow to save power" if generation < most else ""


def _settings(facts: Mapping[str, Value]) -> str:
    shown = [
        f"{word} {'on' if facts[name] else 'off'}"
        for name, word in (("ecc", "ECC"), ("mig", "MIG"), ("persistence_mode", "persistence"))
        if name in facts
    ]
    if facts.get("nvlink_active_count"):
        shown.append(f"{facts['nvlink_active_count']} NVLinks of version {facts.get('nvlink_version', '?')}")
    if "compute_mode" in facts:
        shown.append(f"compute mode {facts['compute_mode']}")
    return ", ".join(shown)


def _processes(gpu: GpuState) -> str:
    return ", ".join(
        f"{process.name or 'process'} {process.pid}"
        + ("" if process.memory_bytes is None else f" with {numbers.size(process.memory_bytes)}")
        for process in gpu.processes
    )


def _number(facts: Mapping[str, Value], name: str) -> float | None:
    value = facts.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
