"""The doctor's checks of the host: what can be measured and what limits it."""

import os
from collections.abc import Callable, Mapping

from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus
from lightning_gpuprof.capture.host.sources import HostSources, Roots, examine
from lightning_gpuprof.cli.check import Check, absent, ok, problem
from lightning_gpuprof.model import numbers

_SMALL_SHM_BYTES = 1 << 30
"""Docker's default of 64 MiB is what DataLoader workers fail with; a GiB holds a few batches of images."""


def host_checks(
    roots: Roots | None = None,
    environ: Mapping[str, str] = os.environ,
    cpus: Callable[[], frozenset[int] | None] = affinity,
    machine_cpus: Callable[[], int | None] = os.cpu_count,
) -> list[Check]:
    """Look at the host.

    Args:
        roots: Where the kernel's files are mounted.
        environ: The environment.
        cpus: Numbers of the CPUs that this process may use.
        machine_cpus: CPUs of the machine.
    """
    roots = roots or Roots()
    sources = examine(roots, environ)
    return [*_cpus(roots, sources, cpus(), machine_cpus()), *_limits(sources), *_sources(sources)]


def _cpus(roots: Roots, sources: HostSources, own: frozenset[int] | None, machine: int | None) -> list[Check]:
    allowed = len(own) if own else machine or 1
    usable = usable_cpus(affinity=allowed, cgroup_root=roots.cgroup, proc_root=roots.proc)
    quota = "" if usable == allowed else "limit: the control group's quota is below the affinity"
    nodes = sources.numa_nodes
    return [
        ok("CPUs of the machine", str(machine or "not known")),
        ok("CPUs of the affinity", str(allowed)),
        ok("usable CPUs", numbers.significant(usable), quota),
        ok("NUMA nodes", str(nodes)) if nodes else absent("NUMA nodes", "not known here"),
    ]


def _limits(sources: HostSources) -> list[Check]:
    return [
        ok("control groups", sources.cgroup_version)
        if sources.cgroup_version
        else absent("control groups", "limits of a container cannot be seen"),
        ok("CPU quota", _or_none(sources.quota_cpus, lambda quota: f"{numbers.significant(quota)} CPUs")),
        ok("memory limit", _or_none(sources.memory_limit_bytes, numbers.size)),
        ok("container", sources.container or "none recognised"),
        _shared_memory(sources.shm_size_bytes),
    ]


def _shared_memory(size: float | None) -> Check:
    name = "/dev/shm"
    if size is None:
        return problem(name, "DataLoader workers cannot pass batches through shared memory: mount a tmpfs there")
    if size < _SMALL_SHM_BYTES:
        way_out = "give the container more, as docker run --shm-size=8g"
        return problem(name, f"DataLoader workers may run out of it: {way_out}", numbers.size(size))
    return ok(name, numbers.size(size))


def _or_none(value: float | None, shown: Callable[[float], str]) -> str:
    return "none" if value is None else shown(value)


def _sources(sources: HostSources) -> list[Check]:
    wanted = (
        ("pressure (PSI)", sources.pressure, "waiting for CPU, memory or disks is not measured: boot with psi=1"),
        ("waiting for a CPU (schedstat)", sources.run_delay, "threads waiting for a CPU are not measured"),
        ("bytes read and written (io)", sources.io_bytes, "reads from disk and page cache look alike"),
        (
            "waiting for disks (delay accounting)",
            sources.io_wait,
            "disk waits are estimated; exact with sysctl kernel.task_delayacct=1",
        ),
        (
            "children of a process",
            sources.children,
            "workers are found by searching the whole process table, less often",
        ),
    )
    checks = [ok(name, "readable") if readable else absent(name, meaning) for name, readable, meaning in wanted]
    hidden = sources.hidepid
    meaning = "processes of other users are hidden; their CPU time is known in sum"
    checks.append(ok("hidepid of /proc", hidden or "off", meaning if hidden else ""))
    return checks
