"""Summaries of what was sampled beside the steps: GPUs, host, CPUs; only readings from between first and last step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.metrics import CpuFacts
from lightning_gpuprof.model.report import Device, Distribution


def _during_training(journal: Journal) -> list[Sample]:
    steps = journal.steps
    if not len(steps):
        return []
    begin = int(steps.start_ns[0])
    end = int(steps.start_ns[-1] + steps.period_ns[-1])
    return [s for s in journal.samples if begin <= s.t_ns <= end]


def _values(samples: Iterable[Sample], name: str) -> list[float]:
    return [v for s in samples if (v := s.values.get(name)) is not None]


def devices(journal: Journal) -> tuple[Device, ...]:
    """One summary per GPU that was sampled; a value that was never read is None."""
    samples = [s for s in _during_training(journal) if s.source == "nvml"]
    found = []
    for subject in sorted({s.subject for s in samples}):
        own = [s for s in samples if s.subject == subject]
        names = sorted({name for s in own for name in s.values})
        values: dict[str, Distribution | None] = {
            name: statistics.distribution(np.array(_values(own, name))) for name in names
        }
        found.append(
            Device(
                name=str(journal.conditions.get(f"{subject}.name") or subject),
                uuid=str(journal.conditions.get(f"{subject}.uuid") or ""),
                samples=len(own),
                values=values,
            )
        )
    return tuple(found)


def host(journal: Journal) -> dict[str, float | None]:
    """Means and peaks of the host's samples; names are ``<subject>.<value with unit>`` with ``_mean`` or ``_peak``."""
    samples = [s for s in _during_training(journal) if s.source == "host"]
    found: dict[str, float | None] = {}
    for subject in sorted({s.subject for s in samples}):
        own = [s for s in samples if s.subject == subject]
        shown = "children" if subject == "workers" else subject  # not only DataLoader workers are child processes
        for name in sorted({name for s in own for name in s.values}):
            values = _values(own, name)
            how = "peak" if name.endswith("_bytes") and "available" not in name else "mean"
            reduce = max if how == "peak" else (lambda v: sum(v) / len(v))
            found[f"{shown}.{name}_{how}"] = float(reduce(values)) if values else None
    return found


def cpus(journal: Journal) -> CpuFacts:
    """CPUs that the run may use, and how many it kept busy."""
    usable = journal.conditions.get("cpu.usable")
    means = host(journal)
    sampled = means.get("process.cpu_cpus_mean")
    whole = _values((s for s in journal.samples if s.subject == "training"), "process_cpus")
    return CpuFacts(
        usable_cpus=float(usable) if isinstance(usable, (int, float)) else 1.0,
        process_cpus=sampled if sampled is not None else next(iter(whole), None),
        worker_cpus=means.get("children.cpu_cpus_mean") if journal.conditions.get("loader.num_workers") else None,
    )
