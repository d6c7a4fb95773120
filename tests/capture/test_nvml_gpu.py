"""On a real GPU: our values beside those of nvidia-smi, and the counters (GPM) under load and without."""

import os
import shutil
import subprocess
import time

import pytest
import torch

from lightning_gpuprof.capture.nvml import gpm
from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from lightning_gpuprof.model.journal import Conditions, Sample

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU"),
]

FIELDS = {
    "memory.used": "memory_used_bytes",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.width.current": "pcie_width",
}
ROOM = {"memory_used_bytes": 64 << 20, "power_w": 60.0, "temperature_c": 4.0, "sm_clock_mhz": 200.0}
"""How much a value may move between nvidia-smi's look and ours."""


@pytest.fixture
def sampler() -> NvmlSampler:
    return NvmlSampler([str(torch.cuda.get_device_properties(0).uuid)], os.environ)


def work(seconds: float, matrix: torch.Tensor | None) -> None:
    """Keep the GPU busy with matrix products, or do nothing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if matrix is None:
            time.sleep(0.01)
        else:
            for _ in range(20):
                matrix @ matrix
            torch.cuda.synchronize()


def values_of(sampler: NvmlSampler, matrix: torch.Tensor | None, seconds: float) -> dict[str, float | None]:
    work(seconds, matrix)
    sampler.sample(0)
    work(seconds, matrix)
    (sample,) = [each for each in sampler.sample(1) if isinstance(each, Sample)]
    return sample.values


def test_values_and_facts_are_those_of_nvidia_smi(sampler: NvmlSampler) -> None:
    held = torch.ones(1 << 28, dtype=torch.uint8, device="cuda")
    sampler.open()
    try:
        facts = next(each.values for each in sampler.sample(0) if isinstance(each, Conditions))
        (sample,) = [each for each in sampler.sample(1) if isinstance(each, Sample)]
        names = [*FIELDS, "memory.total", "clocks.max.sm", "power.limit", "driver_version", "pci.bus_id"]
        command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", "-i"]
        shown = subprocess.run([*command, str(facts["gpu0.uuid"])], capture_output=True, text=True, check=True)
        theirs = dict(zip(names, (cell.strip() for cell in shown.stdout.split(",")), strict=True))
    finally:
        sampler.close()
    for field, name in FIELDS.items():
        if theirs[field].startswith("["):  # [N/A], [Not Supported]
            continue
        factor = (1 << 20) if name.endswith("_bytes") else 1
        assert sample.values[name] == pytest.approx(float(theirs[field]) * factor, abs=ROOM.get(name, 0.5)), field
    assert facts["gpu0.driver_version"] == theirs["driver_version"]
    assert str(facts["gpu0.pci_bus_id"]).lower() == theirs["pci.bus_id"].lower()
    assert facts["gpu0.memory_total_bytes"] == pytest.approx(float(theirs["memory.total"]) * (1 << 20), rel=0.01)
    assert facts["gpu0.sm_clock_max_mhz"] == pytest.approx(float(theirs["clocks.max.sm"]))
    assert held.numel() == 1 << 28


def test_the_energy_counter_follows_the_power(sampler: NvmlSampler) -> None:
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    sampler.open()
    try:
        first = values_of(sampler, matrix, 1.0)
        seconds = -time.monotonic()
        second = values_of(sampler, matrix, 1.0)
        seconds += time.monotonic()
    finally:
        sampler.close()
    if first["energy_j"] is None or second["energy_j"] is None or second["power_w"] is None:
        pytest.skip("this GPU has no energy counter")
    assert (second["energy_j"] - first["energy_j"]) / seconds == pytest.approx(second["power_w"], rel=0.3)


def test_counters_are_high_under_a_saturated_matmul_and_near_zero_when_idle(sampler: NvmlSampler) -> None:
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    matrix @ matrix
    torch.cuda.synchronize()
    sampler.open()
    try:
        busy = values_of(sampler, matrix, 1.0)
        idle = values_of(sampler, None, 1.0)
    finally:
        sampler.close()
    if busy.get("sm_active_ratio") is None:
        pytest.skip("no performance counters (GPM): before Hopper, or held by another client")
    print({name: (busy.get(name), idle.get(name)) for name in gpm.METRICS})
    loaded, resting = dict(busy), dict(idle)
    assert (loaded["sm_active_ratio"] or 0) > 0.8
    assert (loaded["tensor_active_ratio"] or 0) > 0.4
    assert (resting["sm_active_ratio"] or 0) < 0.05
    assert (resting["tensor_active_ratio"] or 0) < 0.05
    assert all(value is None or 0 <= value <= 1 for name, value in busy.items() if name.endswith("_ratio"))
