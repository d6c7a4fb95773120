"""Faults of a host: what its kernel counts, how large it is drawn, and the twins without it."""

from dataclasses import replace
from random import Random

from truths.host_runs import HostProgram, HostRun


def quota_used_up(random: Random, faulty: bool) -> HostProgram:
    """torch computes on all CPUs of the machine, of which the container may use few; the twin may use all."""
    cpus, us = random.choice((8, 16)), random.uniform(8_000.0, 16_000.0)
    quota_cpus = random.uniform(0.2, 0.5) * cpus if faulty else 2.0 * cpus

    def work(run: HostRun) -> None:
        run.python(us / 20)
        run.compute(us, threads=cpus)

    return HostProgram(work=work, cpus=cpus, quota_cpus=quota_cpus, threads=cpus)


def swapped_memory(random: Random, faulty: bool) -> HostProgram:
    """Each step needs memory that was swapped out; the twin's is there."""
    us, page_us = random.uniform(8_000.0, 16_000.0), random.uniform(80.0, 200.0)
    pages = int(us * random.uniform(0.2, 0.6) / page_us)

    def work(run: HostRun) -> None:
        run.python(us)
        if faulty:
            run.swap_in(pages, page_us)

    return HostProgram(work=work)


def swapped_memory_untimed(random: Random, faulty: bool) -> HostProgram:
    """Likewise, under a kernel that does not say for how long tasks of a group wait for memory."""
    return replace(swapped_memory(random, faulty), stalls_known=False)


def swapped_memory_of_others(random: Random, faulty: bool) -> HostProgram:
    """Another program's memory is read back from swap meanwhile."""
    us = random.uniform(8_000.0, 16_000.0)
    return HostProgram(work=lambda run: run.python(us), of_others=random.randint(50, 200))
