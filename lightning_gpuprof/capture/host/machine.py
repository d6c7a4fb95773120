"""The machine's CPU time by kind, memory, swap, load, network bytes and pressure, from /proc."""

import os
from collections.abc import Collection

import msgspec

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.capture.host.proc_file import PAGE_BYTES, TICK_S


class CpuTimes(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time since the machine's start, in seconds, summed over some CPUs."""

    busy_s: float
    """Work of anybody on this machine."""
    user_s: float
    """Of the busy time: in programs; the rest is in the kernel."""
    idle_s: float
    """Nothing to do, also while a disk is waited for."""
    io_wait_s: float
    """Of the idle time: a disk was waited for (as far as the kernel knows)."""
    steal_s: float
    """Another virtual machine had the CPU."""
    cpus: int


def cpu_times(text: bytes, among: Collection[int] | None = None) -> CpuTimes:
    """Read ``/proc/stat``.

    Args:
        text: The file.
        among: Numbers of the CPUs that count; None: all.

    Returns:
        Of all CPUs, times are the kernel's own sums, which know those that went offline; ``cpus`` counts those that are
        online.

    Raises:
        ValueError: It is not of the form that is documented.
    """
    rows = []
    whole: list[int] = []
    for line in text.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *numbers = line.split()
        if name == b"cpu":
            whole = [int(number) for number in numbers]
        elif among is None or int(name[3:]) in among:
            rows.append([int(number) for number in numbers])
    if not rows:
        raise ValueError("stat has no line for a CPU of ours")
    # The sum over all is not the rows' sum for CPUs that went offline; with all CPUs the kernel's own sum is taken.
    times = whole if among is None and whole else [sum(column) for column in zip(*rows, strict=True)]
    padded: list[int] = [*times, *[0] * 8]  # old kernels have fewer columns
    user, nice, system, idle, io_wait, irq, soft, steal = padded[:8]
    return CpuTimes(  # guests count in user and nice as well
        user_s=(user + nice) * TICK_S,
        busy_s=(user + nice + system + irq + soft) * TICK_S,
        idle_s=(idle + io_wait) * TICK_S,
        io_wait_s=io_wait * TICK_S,
        steal_s=steal * TICK_S,
        cpus=len(rows),
    )


def memory(text: bytes) -> dict[str, float]:
    """Levels from ``/proc/meminfo``."""
    found = proc_file.keyed(text)
    values: dict[str, float] = {}
    if b"MemTotal" in found:
        values["memory_total_bytes"] = found[b"MemTotal"] * 1024.0
    if b"MemAvailable" in found:
        values["memory_available_bytes"] = found[b"MemAvailable"] * 1024.0
    if b"SwapTotal" in found and b"SwapFree" in found:
        values["swap_used_bytes"] = (found[b"SwapTotal"] - found[b"SwapFree"]) * 1024.0
    return values


def paging(text: bytes) -> dict[str, float]:
    """Counters from ``/proc/vmstat``, named for their growth per second."""
    at = text.find(b"\npswpin ")
    found = proc_file.keyed(text[at : at + 100]) if at >= 0 else {}
    names = {b"pswpin": "swap_in_bytes_per_s", b"pswpout": "swap_out_bytes_per_s"}
    return {name: found[key] * float(PAGE_BYTES) for key, name in names.items() if key in found}


def network(text: bytes) -> dict[str, float]:
    """Bytes over all interfaces but the loopback, from ``/proc/<pid>/net/dev``, named for their growth per second."""
    received = sent = 0
    seen = False
    for line in text.splitlines()[2:]:
        name, colon, rest = line.partition(b":")
        numbers = rest.split()
        if colon and name.strip() != b"lo" and len(numbers) > 8:
            seen = True
            received += int(numbers[0])
            sent += int(numbers[8])
    return {"network_received_bytes_per_s": float(received), "network_sent_bytes_per_s": float(sent)} if seen else {}


def load(text: bytes) -> float:
    """The 1-minute average of tasks that run or wait for a CPU or a disk.

    Raises:
        ValueError: It is not of the form that is documented.
    """
    return float(text.split(maxsplit=1)[0])


def shared_memory(mount: str) -> dict[str, float]:
    """Size and use of the file system in memory by which DataLoader workers hand over batches.

    Raises:
        OSError: It is not mounted.
    """
    found = os.statvfs(mount)
    size, free = float(found.f_blocks * found.f_frsize), float(found.f_bavail * found.f_frsize)
    values = {"shm_size_bytes": size, "shm_free_bytes": free}
    return values | {"shm_used_ratio": 1.0 - free / size} if size else values


def pressure(proc_root: str) -> dict[str, float]:
    """Total time in which some or all tasks of the machine were stalled, in seconds, named for its growth per second.

    From Linux 4.20 on (documentation: accounting/psi). ``full`` of the machine's CPU is always 0 and left out: one task
    runs at any time.
    """
    return _stalled(f"{proc_root}/pressure/{{}}")


def group_pressure(folder: str) -> dict[str, float]:
    """As :func:`pressure`, of the tasks in a control group of version 2."""
    return _stalled(f"{folder}/{{}}.pressure")


def _stalled(path: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for resource in ("cpu", "memory", "io"):
        for line in (proc_file.read_if_there(path.format(resource)) or b"").splitlines():
            kind, _, rest = line.partition(b" ")
            _, found, total_us = rest.rpartition(b"total=")
            if found and kind in (b"some", b"full") and (resource, kind) != ("cpu", b"full"):
                try:
                    totals[f"pressure_{resource}_{kind.decode()}_ratio"] = int(total_us) / 1e6
                except ValueError:
                    continue
    return totals
