"""A source of reports: a real fit beside which a scripted driver answers for a GPU.

The driver is a C library that ``pynvml`` loads as NVIDIA's own. The fit computes on the CPU; that its device is a GPU
is told in one place, where the profiler asks the trainer for it, so that rules about GPUs look at what was sampled.
"""

import ctypes
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fake_nvml.builder import FakeGpu, Scenario, build
from msgspec import structs

from lightning_gpuprof import NvmlConfig
from lightning_gpuprof.capture import stage_steps
from lightning_gpuprof.capture.conditions import machine_facts
from lightning_gpuprof.capture.conditions.collect import READERS
from lightning_gpuprof.capture.host.sources import Roots
from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from truths.faults_of_steps import sleep_in_forward
from truths.fits import Fit

_UUID = "GPU-11111111"
_INTERVAL_S = 0.1

FIT = Fit(kind="mlp", faults=(sleep_in_forward(25),), steps=220)
"""Some seconds: the driver renews its utilization five times in one, and rules want twenty of them. Where the host
sleeps, a GPU would work."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A real fit with a scripted GPU.

    Attributes:
        gpu: What the driver answers.
        fail_after: Samples after which each reading fails, as if the GPU had fallen off the bus; -1: none.
        numa: The NUMA node of the process's CPUs, of two, and that of the GPU's slot; None: the machine's own.
        fit: What runs meanwhile.
    """

    gpu: FakeGpu
    fail_after: int = -1
    numa: tuple[int, int] | None = None
    fit: Fit = FIT

    def __call__(self, folder: Path, seed: int) -> Path:
        library = build(Scenario(gpus=(self.gpu,), fail_after=self.fail_after), folder)
        # Loaded under the driver's soname, it is what the loader gives to whoever asks for that name later.
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        os.environ |= {"CUDA_VISIBLE_DEVICES": "0" if self.gpu.mig else _UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        READERS["device.type"] = lambda subject: "cuda"
        if self.numa is not None:
            _two_nodes(folder / "sys", *self.numa)
        return replace(self.fit, nvml=NvmlConfig(interval_s=_INTERVAL_S))(folder, seed)


def _two_nodes(root: Path, own: int, of_gpu: int) -> None:
    """Have the kernel's files say that all CPUs are at one of two nodes, and the GPU's slot at one."""
    nodes = root / "devices/system/node"
    cpus = {own: f"0-{(os.cpu_count() or 1) - 1}", 1 - own: "1000-1001"}
    files = {nodes / "online": "0-1", root / "bus/pci/devices/0000:01:00.0/numa_node": str(of_gpu)}
    files |= {nodes / f"node{node}/cpulist": text for node, text in cpus.items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    roots = Roots(sys=root)
    stage_steps.NvmlSampler = partial(NvmlSampler, roots=roots)  # type: ignore[misc, assignment]
    for name in ("machine.numa_nodes", "machine.affinity_numa_nodes"):
        read = machine_facts.FACTS[name]
        READERS[name] = lambda subject, read=read: read(
            structs.replace(subject, around=structs.replace(subject.around, sys=root))
        )


def gpu(**differences: object) -> FakeGpu:
    """A busy and healthy GPU, but for some answers."""
    return FakeGpu(uuid=_UUID, **differences)  # type: ignore[arg-type]
