"""What a run wants of its CPUs, compared with what it has: whether it makes itself wait, or other programs do."""

from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.metrics import CpuFacts
from lightning_gpuprof.model.numbers import possible

QUOTA_RATIO = 0.10
"""Periods of the control group in which the quota was used up, from which that is a reason to wait. Heuristic."""

MORE_RATIO = 1.05
"""What is wanted over the usable CPUs, from which it is more than these. Heuristic: one torch thread and one worker
that always compute want 2.02 of 2 CPUs with the profiler's own threads, and clocks of the kernel tick 100 times a
second."""

ALL_RATIO = 0.95
"""Use of the usable CPUs by the run from which it has them to itself: threads of a library wait for each other then,
which is not read. Heuristic: what others have left to use cannot hold up a thread by more than a twentieth."""


def quota_exhausted_ratio(host: HostUse) -> float | None:
    """Share of its periods in which the control group's quota was used up; None: not measured."""
    ratio = host.cgroup.throttled_ratio if host.cgroup is not None else None
    return ratio if ratio is not None and possible(ratio) else None


def exceeds_its_cpus(cpu: CpuFacts, host: HostUse) -> bool:
    """Whether it is the run itself that leaves its main thread without a CPU: by its quota, or as it wants more.

    What it wants is what it used and what its main threads waited for. The other programs of a machine can make a run
    wait, but not want more. Nor can they make it wait where the run itself has nearly all of its CPUs. Where they have
    more of them than the run, what the run would want by itself is not known.

    Args:
        cpu: What is known of the CPUs.
        host: What was sampled of the host.
    """
    if (quota_exhausted_ratio(host) or 0.0) >= QUOTA_RATIO:
        return True
    delays = [row.use.run_delay_ratio.mean for row in host.worker_rows if row.use.run_delay_ratio is not None]
    if host.children is not None and host.children.cpu_cpus is not None:
        delays.append(host.children.cpu_cpus.mean)
    used_cpus = sum(filter(possible, [cpu.process_cpus or 0.0, cpu.worker_cpus or 0.0]))
    if used_cpus >= ALL_RATIO * cpu.usable_cpus:
        return True
    if (host.others_cpus or 0.0) > used_cpus:
        return False
    process_cpus = 1.0 if cpu.process_cpus is None else cpu.process_cpus
    wanted = [process_cpus, cpu.run_delay_ratio or 0.0, cpu.worker_cpus or 0.0, *delays]
    return sum(filter(possible, wanted)) > MORE_RATIO * cpu.usable_cpus
