"""What can be measured of this machine and what limits it; and why anything is absent."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from lightning_gpuprof.capture.host import machine, proc_file
from lightning_gpuprof.capture.host.cgroups import ControlGroup, Groups
from lightning_gpuprof.capture.host.process_files import has_io_wait_times
from lightning_gpuprof.capture.host.process_tree import own_pid
from lightning_gpuprof.model.journal import Value

_CONTAINER_FILES = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}
_CONTAINER_IN_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc|crio|garden|actions_job")


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kernel's files are mounted."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    shm: Path = Path("/dev/shm")
    root: Path = Path("/")

    @property
    def cgroup(self) -> Path:
        """Where control groups are mounted."""
        return self.sys / "fs" / "cgroup"


class HostSources(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine says about itself. None: not known, or there is none."""

    cgroup_version: str
    """``v2``, ``v1``, ``hybrid``, or empty if no control groups are mounted."""
    quota_cpus: float | None
    memory_limit_bytes: int | None
    memory_total_bytes: float | None
    swap_total_bytes: float | None
    shm_size_bytes: float | None
    pressure: bool
    run_delay: bool
    """Whether the kernel says how long threads wait for a CPU."""
    io_wait: bool
    """Whether it says how long they wait for disks."""
    io_bytes: bool
    children: bool
    """Whether it lists the children of a process; else the whole process table is read."""
    hidepid: str
    """Mount option of /proc: ``invisible``, ``noaccess``, …, or a number; empty if it hides nothing."""
    container: str
    """As of :func:`container`."""
    numa_nodes: int
    """0: not known."""

    def facts(self) -> dict[str, Value]:
        """As conditions of the run; what is not known is left out."""
        found: dict[str, Value] = {
            "host.cgroup_version": self.cgroup_version or None,
            "host.cpu_quota_cpus": self.quota_cpus,
            "host.memory_limit_bytes": self.memory_limit_bytes,
            "host.memory_total_bytes": self.memory_total_bytes,
            "host.swap_total_bytes": self.swap_total_bytes,
            "host.shm_size_bytes": self.shm_size_bytes,
        }
        return {name: value for name, value in found.items() if value is not None}

    def absent(self) -> list[str]:
        """What is not measured on this machine, and why."""
        missing = [
            (self.pressure, "pressure (no readable /proc/pressure: a kernel without PSI, or psi=0)"),
            (self.run_delay, "waiting for a CPU (no readable /proc/<pid>/schedstat)"),
            (self.io_bytes, "bytes read and written (no readable /proc/<pid>/io)"),
            (self.shm_size_bytes is not None, "shared memory (/dev/shm is not mounted)"),
        ]
        return [text for known, text in missing if not known]


def examine(roots: Roots, environ: Mapping[str, str]) -> HostSources:
    """Look at everything once.

    Args:
        roots: Where the kernel's files are mounted.
        environ: The environment; only whether names are in it counts.

    Returns:
        Limits in CPUs and bytes; None where there is none, or where it cannot be read.
    """
    proc = str(roots.proc)
    own = f"{proc}/{own_pid(roots.proc)}"
    groups = Groups.find(roots.cgroup, roots.proc)
    group = ControlGroup(groups)
    memory_text = proc_file.read_if_there(f"{proc}/meminfo") or b""
    swap = proc_file.keyed(memory_text).get(b"SwapTotal")
    try:
        shm_size = machine.shared_memory(str(roots.shm)).get("shm_size_bytes")
    except OSError:
        shm_size = None
    return HostSources(
        cgroup_version=groups.version,
        quota_cpus=group.quota_cpus,
        memory_limit_bytes=group.memory_limit_bytes,
        memory_total_bytes=machine.memory(memory_text).get("memory_total_bytes"),
        swap_total_bytes=None if swap is None else swap * 1024.0,
        shm_size_bytes=shm_size,
        pressure=bool(machine.pressure(proc)),
        run_delay=len((proc_file.read_if_there(f"{own}/schedstat") or b"").split()) > 1,
        io_wait=has_io_wait_times(proc),
        io_bytes=b"read_bytes" in (proc_file.read_if_there(f"{own}/io") or b""),
        children=Path(f"{own}/task/{Path(own).name}/children").exists(),
        hidepid=_hidepid(proc_file.read_if_there(f"{proc}/self/mountinfo", records=True) or b""),
        container=container(roots, environ),
        numa_nodes=len(numa_nodes(roots)),
    )


def _hidepid(mountinfo: bytes) -> str:
    """Option of the last ``proc`` that is mounted on ``/proc``."""
    found = ""
    for line in mountinfo.decode(errors="replace").splitlines():
        mounted, _, of_type = line.partition(" - ")
        if of_type.startswith("proc ") and mounted.split()[4:5] == ["/proc"]:
            options = re.search(r"hidepid=(\w+)", of_type)
            found = options.group(1) if options else ""
    return "" if found in ("0", "off") else found


def container(roots: Roots, environ: Mapping[str, str]) -> str:
    """The kind of container around this process.

    Args:
        roots: Where the kernel's files are mounted.
        environ: The environment; only whether names are in it counts.

    Returns:
        ``docker``, ``podman``, ``kubernetes``, ``apptainer``, ``lxc``, …; empty if none is recognised.
    """
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    for mark, kind in _CONTAINER_FILES.items():
        if (roots.root / mark).exists():
            return kind
    text = (proc_file.read_if_there(f"{roots.proc}/self/cgroup") or b"").decode(errors="replace")
    found = _CONTAINER_IN_CGROUP.search(text)
    if found:
        return {"kubepods": "kubernetes", "libpod": "podman"}.get(found.group(), found.group())
    return "apptainer" if {"SINGULARITY_NAME", "APPTAINER_NAME"} & environ.keys() else ""


def numa_nodes(roots: Roots) -> dict[int, set[int]]:
    """The CPUs of each NUMA node; empty if the kernel does not list any."""
    folder = f"{roots.sys}/devices/system/node"
    return {node: _ids(f"{folder}/node{node}/cpulist") for node in _ids(f"{folder}/online")}


def pci_numa_node(roots: Roots, bus_id: str) -> int | None:
    """The NUMA node that a PCI device is at, by its address as NVML writes it: ``00000000:1A:00.0``.

    Args:
        roots: Where the kernel's files are mounted.
        bus_id: Domain, bus, device and function.

    Returns:
        None where the kernel does not know (it writes -1, as on many virtual machines), or for a node without CPUs.
    """
    domain, _, rest = bus_id.partition(":")
    path = f"{roots.sys}/bus/pci/devices/{domain[-4:].lower()}:{rest.lower()}/numa_node"
    text = proc_file.read_if_there(path) if rest else None
    if text is None or not text.strip().isdigit():
        return None
    node = int(text)
    return node if numa_nodes(roots).get(node) else None


def _ids(path: str) -> set[int]:
    """Numbers of a kernel's list: ``0-3,8``."""
    found: set[int] = set()
    for piece in (proc_file.read_if_there(path) or b"").split(b","):
        first, _, last = piece.strip().partition(b"-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found
