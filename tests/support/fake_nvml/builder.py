"""From a scripted scenario to a shared library that ``pynvml`` loads as the driver's, and a process that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from python_process import run_python

from lightning_gpuprof.capture.recorder import Reading

HERE = Path(__file__).parent
CALLS = (
    "utilization",
    "memory",
    "power",
    "power_limit",
    "temperature",
    "fan",
    "clock",
    "max_clock",
    "clock_events",
    "performance_state",
    "pcie_link",
    "pcie_max",
    "pcie_throughput",
    "energy",
    "compute_processes",
    "graphics_processes",
    "process_name",
    "ecc",
    "rows",
    "pages",
    "nvlink",
    "nvlink_errors",
    "gpm",
    "gpm_metrics",
    "refresh",
    "modes",
    "events",
)
"""Functions that a scenario can make fail, in the order of ``enum call`` in nvml.c."""

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_IS_LOST = 15
IN_USE = 19
UNKNOWN = 999
"""Error codes of nvml.h."""


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """A GPU or MIG device and what it answers."""

    uuid: str
    name: str = "NVIDIA Fake 100"
    utilization_percent: int = 83
    memory_utilization_percent: int = 41
    used_bytes: int = 20_000_000_000
    reserved_bytes: int = 500_000_000
    total_bytes: int = 80_000_000_000
    power_mw: int = 412_500
    power_limit_mw: int = 700_000
    temperature_c: int = 61
    fan_percent: int | None = 34
    """None: cooled by its chassis."""
    sm_clock_mhz: int = 1755
    memory_clock_mhz: int = 2619
    sm_clock_max_mhz: int = 1980
    clock_events: int = 0
    performance_state: int = 0
    pcie_generation: int = 5
    pcie_width: int = 16
    links: int = 0
    """NVLinks that are up."""
    ecc_rises: bool = False
    """Another corrected error of ECC at each look."""
    uncorrected_rises: bool = False
    """Another uncorrected error of ECC at each look."""
    links_recover: bool = False
    """Each NVLink was brought up again between two looks."""
    xids: tuple[int, ...] = ()
    """At most two: codes of critical errors after the first sample, or once every reading fails."""
    gpm: bool = True
    """Whether it has performance counters, as Hopper and later."""
    sm_active_percent: int = 71
    """Multiprocessors with work, by these counters."""
    processes: tuple[tuple[int, int, bool], ...] = ((0, 18_000_000_000, False),)
    """At most four: process id (0 is whoever asks), bytes of memory, whether its context is one for graphics."""
    fails: Mapping[str, int] = field(default_factory=dict)
    """Call -> error code."""
    open_fails: int = 0
    mig: tuple[FakeGpu, ...] | None = None
    """MIG devices; None: the GPU cannot be partitioned."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What the library does."""

    gpus: tuple[FakeGpu, ...] = ()
    init_fails: int = 0
    init_hangs: bool = False
    fail_after: int = -1
    """After this many samples every reading fails."""
    fail_with: int = GPU_IS_LOST
    hang_after: int = -1
    """After this many samples every reading hangs for ever."""
    without: frozenset[str] = frozenset()
    """Functions that this driver's library does not have."""


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return shutil.which("cc")


def build(scenario: Scenario, folder: Path) -> Path:
    """Compile the library into ``folder``."""
    (folder / "scenario.h").write_text(_header(scenario))
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
        + [f"-D{name}=not_in_this_driver_{name}" for name in sorted(scenario.without)]
        + [f"-I{folder}", str(HERE / "nvml.c"), "-o", str(library), "-lpthread"],
        check=True,
    )
    return library


def run_sampler(
    library: Path,
    *,
    samples: int = 0,
    until_hang: bool = False,
    uuids: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
    fork: bool = False,
) -> list[Reading]:
    """Sample in a fresh process beside a main thread that must get on with its work.

    Args:
        library: What ``pynvml`` is to find as the driver's library.
        samples: Stop after so many samples of all GPUs together, or once the sampler has given up.
        until_hang: Stop once a call hangs instead.
        uuids: As for ``NvmlSampler``.
        environ: As for ``NvmlSampler``; default: empty.
        fork: Fork once the sampler is open, and use it in the child, which must come to nothing.

    Returns:
        What reached the sink, in order.
    """
    arguments = {
        "samples": samples,
        "until_hang": until_hang,
        "fork": fork,
        "uuids": uuids,
        "environ": environ or {},
        "library": str(library),
    }
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    finished = run_python(HERE / "sample.py", msgspec.json.encode(arguments).decode(), PYTHONPATH=path)
    decoder = msgspec.json.Decoder(Reading)
    return [decoder.decode(line) for line in finished.stdout.splitlines()]


def _header(scenario: Scenario) -> str:
    tables: list[str] = []
    for position, gpu in enumerate(scenario.gpus):
        if gpu.mig:
            tables.append(f"static device_t mig{position}[] = {{{', '.join(_initializer(each) for each in gpu.mig)}}};")
    devices = ", ".join(
        _initializer(gpu, f"mig{position}" if gpu.mig else "0") for position, gpu in enumerate(scenario.gpus)
    )
    tables.append(f"static device_t devices[] = {{{devices or '{0}'}}};")
    return "\n".join(
        [
            *tables,
            f"#define DEVICES {len(scenario.gpus)}u",
            f"#define INIT_FAILS {scenario.init_fails}",
            f"#define INIT_HANGS {int(scenario.init_hangs)}",
            f"#define FAIL_AFTER {scenario.fail_after}",
            f"#define FAIL_WITH {scenario.fail_with}",
            f"#define HANG_AFTER {scenario.hang_after}",
            "",
        ]
    )


def _initializer(gpu: FakeGpu, mig: str = "0") -> str:
    fails = ", ".join(str(gpu.fails.get(call, 0)) for call in CALLS)
    processes = ", ".join(f"{{{pid}u, {size}ull, {int(graphics)}}}" for pid, size, graphics in gpu.processes)
    fields = [
        f'"{gpu.uuid}"',
        f'"{gpu.name}"',
        f"{gpu.utilization_percent}u",
        f"{gpu.memory_utilization_percent}u",
        f"{gpu.used_bytes}ull",
        f"{gpu.reserved_bytes}ull",
        f"{gpu.total_bytes}ull",
        f"{gpu.power_mw}u",
        f"{gpu.power_limit_mw}u",
        str(gpu.temperature_c),
        str(-1 if gpu.fan_percent is None else gpu.fan_percent),
        f"{gpu.sm_clock_mhz}u",
        f"{gpu.memory_clock_mhz}u",
        f"{gpu.sm_clock_max_mhz}u",
        f"{gpu.clock_events}ull",
        f"{gpu.performance_state}u",
        f"{gpu.pcie_generation}u",
        f"{gpu.pcie_width}u",
        f"{gpu.links}u",
        str(int(gpu.gpm)),
        f"{gpu.sm_active_percent}u",
        f"{{{processes or '{0}'}}}",
        f"{len(gpu.processes)}u",
        f"{{{fails}}}",
        str(gpu.open_fails),
        str(-1 if gpu.mig is None else 1 if gpu.mig else 0),
        str(len(gpu.mig or ())),
        mig,
        "1000000ull",
        str(int(gpu.ecc_rises)),
        "0u",
        str(int(gpu.uncorrected_rises)),
        "0u",
        str(int(gpu.links_recover)),
        "0u",
        f"{{{', '.join(map(str, gpu.xids)) or '0'}}}",
        "0u",
    ]
    return "{" + ", ".join(fields) + "}"
