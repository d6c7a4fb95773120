"""Summaries of what was sampled beside the steps: host, CPUs; only readings from between first and last step."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.metrics import CpuFacts


def during_training(journal: Journal) -> list[Sample]:
    """The samples from between the first step's start and the last one's end."""
    steps = journal.steps
    if not len(steps):
        return []
    begin = int(steps.start_ns[0])
    end = int(steps.start_ns[-1] + steps.period_ns[-1])
    return [s for s in journal.samples if begin <= s.t_ns <= end]


def _values(samples: Iterable[Sample], name: str) -> list[float]:
    return [v for s in samples if (v := s.values.get(name)) is not None]


def cpus(journal: Journal, host: HostUse) -> CpuFacts:
    """CPUs that the run may use, and how many it kept busy.

    Args:
        journal: One rank's journal.
        host: What was sampled of the host.
    """
    sampled = host.process.cpu_cpus.mean if host.process and host.process.cpu_cpus else None
    whole = _values((s for s in journal.samples if s.subject == "training"), "process_cpus")
    with_workers = bool(journal.conditions.get("loader.num_workers"))
    workers = host.workers.cpu_cpus.mean if host.workers and host.workers.cpu_cpus else None
    return CpuFacts(
        usable_cpus=1.0 if host.usable_cpus is None else host.usable_cpus,
        process_cpus=sampled if sampled is not None else next(iter(whole), None),
        worker_cpus=workers if with_workers else None,
    )
