"""GPU and host samples of two runs side by side, without a judgement."""

from collections.abc import Iterator

from lightning_gpuprof.analyze.comparison.changes import changed
from lightning_gpuprof.analyze.comparison.judging import Runs
from lightning_gpuprof.model.comparison import Change
from lightning_gpuprof.model.device import ERROR_COUNTERS
from lightning_gpuprof.model.host import HostUse, Level
from lightning_gpuprof.model.report import Device

_NOT_SHOWN = frozenset((*ERROR_COUNTERS, "throttle_reasons", "memory_free_bytes"))
_UNITS = (("_ratio", "ratio"), ("_bytes", "bytes"), ("_mhz", "MHz"), ("_w", "W"), ("_c", "°C"))

OTHERS_CPU = "other programs' CPU"
"""Name of the row."""


def devices(runs: Runs) -> tuple[Change, ...]:
    """Medians of the samples of GPUs that both runs have, by their place; only what was measured in both."""
    sides = [{device.subject: device for device in report.devices} for _, report in runs.named]
    return tuple(
        row for subject in sides[0] if subject in sides[1] for row in _device(sides[0][subject], sides[1][subject])
    )


def _device(before: Device, after: Device) -> Iterator[Change]:
    who = before.subject or "GPU"
    for field, first in before.values.items():
        second = after.values.get(field)
        if field in _NOT_SHOWN or first is None or second is None:
            continue
        suffix, unit = next((pair for pair in _UNITS if field.endswith(pair[0])), ("", ""))
        name = field.removesuffix(suffix).replace("_", " ")
        yield changed(f"{who} {name}", unit, first.median, second.median)
    if before.energy is not None and after.energy is not None:
        yield changed(f"{who} energy per step", "J", before.energy.per_step_j, after.energy.per_step_j)


def host(runs: Runs) -> tuple[Change, ...]:
    """Means of the samples of the host; only what was measured in both."""
    sides = [dict(_host(report.host)) for _, report in runs.named]
    return tuple(
        changed(name, unit, sides[0][name, unit], sides[1][name, unit])
        for name, unit in sides[0]
        if sides[0][name, unit] is not None and sides[1].get((name, unit)) is not None
    )


def _host(use: HostUse) -> Iterator[tuple[tuple[str, str], float | None]]:
    for name, process in (("process", use.process), ("workers", use.workers)):
        if process is not None:
            yield (f"{name} CPU", "CPUs"), _mean(process.cpu_cpus)
            yield (f"{name} waiting for a CPU", "ratio"), _mean(process.run_delay_ratio)
            yield (f"{name} resident memory", "bytes"), _mean(process.rss_bytes)
            yield (f"{name} read from disk", "bytes/s"), _mean(process.read_bytes_per_s)
    if use.machine is not None:
        yield (OTHERS_CPU, "CPUs"), _mean(use.machine.cpu_others_cpus)
        yield ("CPUs busy", "ratio"), _mean(use.machine.cpu_busy_ratio)
        yield ("swapped in", "bytes/s"), _mean(use.machine.swap_in_bytes_per_s)
    if use.cgroup is not None:
        yield ("quota used up", "ratio"), use.cgroup.throttled_ratio
    if use.gc is not None:
        yield ("garbage collector", "ratio"), use.gc.pause_ratio


def _mean(level: Level | None) -> float | None:
    return None if level is None else level.mean
