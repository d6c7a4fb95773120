"""What the doctor says of GPUs: a fake driver's library stands behind the real pynvml, in a process of its own."""

import json
from pathlib import Path

import pytest
from fake_nvml import builder
from fake_nvml.builder import FakeGpu, Scenario
from python_process import run_python

from lightning_gpuprof.capture.nvml.inspection import GpuState, MachineGpus
from lightning_gpuprof.cli import doctor_checks as doctor
from lightning_gpuprof.cli.check import Check
from lightning_gpuprof.cli.doctor_gpus import gpu_checks

needs_compiler = pytest.mark.skipif(builder.compiler() is None, reason="no C compiler (cc) to build the fake NVML")


def run_with(scenario: Scenario, folder: Path, *command: str) -> str:
    library = builder.build(scenario, folder)
    cuda = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return run_python(*command, LD_LIBRARY_PATH=str(library.parent), **cuda).stdout


def lines(checks: list[Check]) -> dict[str, str]:
    return {check.name: f"{check.state}: {check.value}: {check.meaning}" for check in checks}


@needs_compiler
def test_each_gpu_is_shown_with_what_can_and_cannot_be_measured(tmp_path: Path) -> None:
    hot = FakeGpu(uuid="GPU-hot", clock_events=0x40, sm_clock_mhz=900, links=4)
    old = FakeGpu(
        uuid="GPU-old", name="NVIDIA Fake 40", gpm=False, pcie_width=8, fails={"energy": builder.NOT_SUPPORTED}
    )
    out = run_with(Scenario(gpus=(hot, old)), tmp_path, "-m", "lightning_gpuprof", "doctor", "--json")
    found = lines([Check(**each) for each in json.loads(out) if each["area"] == "nvml"])
    assert found == {
        "NVML": "ok: driver 999.01, CUDA 12.8: ",
        "GPU 0": "ok: NVIDIA Fake 100 (GPU-hot), gpu0: ",
        "GPU 0 memory": "ok: 18.6 GiB of 74.5 GiB: ",
        "GPU 0 power": "ok: 412 W of 700 W: ",
        "GPU 0 SM clock": "problem: 900 MHz of 1,980 MHz: throttled: too hot (hardware)",
        "GPU 0 PCIe link": "ok: generation 5 x16 of 5 x16: ",
        "GPU 0 settings": "ok: ECC on, MIG off, persistence on, 4 NVLinks of version 4, compute mode default: ",
        "GPU 0 processes": found["GPU 0 processes"],
        "GPU 0 GPM counters": "ok: SM, tensor and DRAM activity can be measured: ",
        "GPU 1": "ok: NVIDIA Fake 40 (GPU-old), not visible to processes here: ",
        "GPU 1 memory": "ok: 18.6 GiB of 74.5 GiB: ",
        "GPU 1 power": "ok: 412 W of 700 W: ",
        "GPU 1 SM clock": "ok: 1,760 MHz of 1,980 MHz: ",
        "GPU 1 PCIe link": "ok: generation 5 x8 of 5 x16: fewer lanes than the GPU has: copies between host and GPU "
        "are slower",
        "GPU 1 settings": "ok: ECC on, MIG off, persistence on, compute mode default: ",
        "GPU 1 processes": found["GPU 1 processes"],
        "GPU 1 not measured": "absent: : energy, activity of SMs, tensor cores and DRAM by GPM (Not Supported)",
    }
    assert "train " in found["GPU 0 processes"]
    assert "with 16.8 GiB" in found["GPU 0 processes"]


@needs_compiler
@pytest.mark.parametrize(
    "scenario", [Scenario(gpus=(), init_hangs=True), Scenario(gpus=(FakeGpu(uuid="GPU-1"),), hang_after=0)]
)
def test_a_driver_that_hangs_is_told_and_waited_for_no_longer_than_allowed(tmp_path: Path, scenario: Scenario) -> None:
    code = (
        "from lightning_gpuprof.capture.nvml.inspection import inspect_in_child; "
        "found = inspect_in_child(2); print(found.hangs, found.absent)"
    )
    assert run_with(scenario, tmp_path, "-c", code) == "True the driver did not answer within 2 s\n"


def test_a_hanging_driver_is_a_problem_with_a_way_out() -> None:
    hanging = MachineGpus(absent="the driver did not answer within 20 s", hangs=True)
    checks = {check.name: check for check in doctor.examine(lambda: hanging)}
    assert checks["NVML"].state == "problem"
    assert "restart the machine" in checks["NVML"].meaning


def test_a_lost_gpu_and_a_partitioned_one_say_so() -> None:
    inspect_in_child = MachineGpus(
        gpus=(
            GpuState(index=0, name="A", uuid="GPU-a", partitioned=True, facts={"mig": True}),
            GpuState(index=0, name="A MIG 1g", uuid="MIG-a", subject="gpu0"),
            GpuState(index=1, name="B", uuid="GPU-b", lost="GPU is lost"),
        )
    )
    found = lines(gpu_checks(inspect_in_child))
    assert found["GPU 0"].startswith("ok: A (GPU-a), used by its MIG devices")
    assert found["GPU 0 MIG"].startswith("ok: A MIG 1g (MIG-a), gpu0")
    assert found["GPU 1"] == "problem: B (GPU-b), not visible to processes here: GPU is lost: it is not measured"
