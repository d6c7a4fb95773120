"""Summaries of what was sampled beside the steps: host, CPUs; only readings from between first and last step."""

import math
import re
from collections.abc import Iterable

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.cpu_demand import exceeds_its_cpus
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.metrics import CpuFacts

OTHERS_CPUS = 0.3
"""CPUs of this run that other programs use on average, from which they are reported."""

DELAY_RATIO = 0.05
"""Share of the step without a CPU from which they are: as rules have it."""

USED_RATIO = 0.9
"""Share of the CPUs that are in use, from which programs wait for each other: as rules have it."""

_NUM_WORKERS = re.compile(r"loader\.(\d+\.)?num_workers")


def during_training(journal: Journal, samples: Iterable[Sample]) -> list[Sample]:
    """The samples from between the first step's start and the last one's end; all if there is no step.

    Args:
        journal: One rank's journal.
        samples: Some of it.

    Returns:
        In the order given.
    """
    steps = journal.steps
    begin, end = (int(steps.start_ns[0]), steps.end_ns) if len(steps) else (-math.inf, math.inf)
    return [s for s in samples if begin <= s.t_ns <= end]


def values_of(samples: Iterable[Sample], name: str) -> list[float]:
    """The readings of a value, of those samples that have it.

    Args:
        samples: In order.
        name: Of the value.

    Returns:
        In the order and the unit of the samples; empty if none has it.
    """
    return [value for sample in samples if (value := sample.values.get(name)) is not None]


def cpus(journal: Journal, host: HostUse) -> CpuFacts:
    """CPUs that the run may use, and how many it kept busy.

    Args:
        journal: One rank's journal.
        host: What was sampled of the host.

    Returns:
        In CPUs. Usable is 1 if not known; the others are None if not sampled, and of workers if there are none. Waits
        for a CPU are left out.
    """
    sampled = host.process.cpu_cpus.mean if host.process and host.process.cpu_cpus else None
    whole = values_of((s for s in journal.samples if s.subject == "training"), "process_cpus")
    with_workers = any(value for name, value in journal.conditions.items() if _NUM_WORKERS.fullmatch(name))
    workers = host.workers.cpu_cpus.mean if host.workers and host.workers.cpu_cpus else None
    return CpuFacts(
        usable_cpus=1.0 if host.usable_cpus is None else host.usable_cpus,
        process_cpus=sampled if sampled is not None else next(iter(whole), None),
        worker_cpus=workers if with_workers else None,
    )


def caveats(cpu: CpuFacts, host: HostUse, world_size: int) -> list[str]:
    """That other programs made the run wait for its CPUs: the state of the machine, and no fault of the program.

    Nothing is said where CPUs were left, where the run makes itself wait (``cpu-contention`` reports that), and of
    several ranks where what the others did could not be distinguished from other programs.

    Args:
        cpu: What is known of the CPUs.
        host: What was sampled of the host.
        world_size: Number of ranks.

    Returns:
        One sentence without its full stop, or nothing.
    """
    machine, delay = host.machine, cpu.run_delay
    ranks = None if machine is None else machine.cpu_ranks_cpus
    if delay is None or (world_size > 1 and ranks is None):
        return []
    others = None if machine is None or machine.cpu_others_cpus is None else machine.cpu_others_cpus.mean
    # Other programs take CPUs in bursts, which the median step may not meet.
    waits = delay.median_ratio if others is None else max(delay.median_ratio, delay.total_ratio)
    ratio = min(waits, 1.0)
    if ratio < DELAY_RATIO or exceeds_its_cpus(cpu, host):
        return []
    of_what = "the time in steps" if waits > delay.median_ratio else "the step"
    waited = f"the main thread waited for a CPU in {100 * ratio:.0f} % of {of_what}"
    # By how much is not known: threads that spin at a barrier count as CPU time.
    longer = "so steps can be much longer than on a quiet machine"
    if others is None:
        return [f"{waited}, {longer}; the run was too short to measure who used the CPUs"] if not host.samples else []
    if others < OTHERS_CPUS:
        return []
    own = (1.0 if cpu.process_cpus is None else cpu.process_cpus) + (cpu.worker_cpus or 0.0)
    if own + others + (0.0 if ranks is None else ranks.mean) < USED_RATIO * cpu.usable_cpus:
        return []
    of = f" of {cpu.usable_cpus:.3g} CPUs" if world_size == 1 else " CPUs of this machine"  # a rank may use its share
    return [f"other programs used {others:.1f}{of}; {waited}, {longer}"]
