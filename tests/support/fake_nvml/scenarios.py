"""The scenarios of ``device_scenarios.md``: what the driver does in each, by the name that the table has for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fake_nvml import builder
from fake_nvml.builder import FakeGpu, Scenario

UUID = "GPU-11111111"
OTHER = "GPU-22222222"
UNSUPPORTED = builder.NOT_SUPPORTED


@dataclass(frozen=True, kw_only=True)
class Case:
    """A scenario and how it is sampled."""

    scenario: Scenario
    environ: Mapping[str, str] = field(default_factory=dict)
    samples: int = 14
    hangs: bool = False


def one(**differences: object) -> Case:
    return Case(scenario=Scenario(gpus=(FakeGpu(uuid=UUID, **differences),)))  # type: ignore[arg-type]


_MIG = FakeGpu(
    uuid="MIG-33333333",
    name="NVIDIA Fake 100 MIG 1g",
    total_bytes=10_000_000_000,
    used_bytes=2_000_000_000,
    fails=dict.fromkeys(
        (
            "utilization",
            "power",
            "power_limit",
            "clock",
            "max_clock",
            "clock_events",
            "energy",
            "pcie_link",
            "temperature",
            "fan",
            "performance_state",
            "pcie_throughput",
            "graphics_processes",
        ),
        UNSUPPORTED,
    ),
)

CASES: Mapping[str, Case] = {
    "a healthy Hopper": one(links=4),
    "two GPUs, the second one chosen": Case(
        scenario=Scenario(gpus=(FakeGpu(uuid=UUID), FakeGpu(uuid=OTHER, name="NVIDIA Fake 200"))),
        environ={"CUDA_VISIBLE_DEVICES": OTHER},
    ),
    "before Hopper": one(gpm=False),
    "hot": one(clock_events=0x20 | 0x40, sm_clock_mhz=900, temperature_c=91),
    "power-capped": one(clock_events=0x4, sm_clock_mhz=1200, power_mw=699_000),
    "idle": one(clock_events=0x1, sm_clock_mhz=345, utilization_percent=0, power_mw=70_000),
    "a slow PCIe slot": one(pcie_generation=3, pcie_width=8),
    "corrected memory errors": one(ecc_rises=True),
    "shared with another process": one(processes=((0, 9 << 30, False), (1, 5 << 30, False))),
    "a MIG device": Case(
        scenario=Scenario(gpus=(FakeGpu(uuid=UUID, mig=(_MIG,)),)), environ={"CUDA_VISIBLE_DEVICES": "0"}
    ),
    "WSL": one(
        gpm=False,
        fails=dict.fromkeys(
            (
                "compute_processes",
                "graphics_processes",
                "process_name",
                "energy",
                "ecc",
                "rows",
                "pages",
                "nvlink",
                "performance_state",
                "clock_events",
                "power_limit",
                "refresh",
                "modes",
            ),
            UNSUPPORTED,
        ),
    ),
    "not permitted": one(fails=dict.fromkeys(("compute_processes", "gpm", "power"), builder.NO_PERMISSION)),
    "counters held by another client": one(fails={"gpm": builder.IN_USE}),
    "an old driver": Case(
        scenario=Scenario(
            gpus=(FakeGpu(uuid=UUID),),
            without=frozenset(
                {
                    "nvmlDeviceGetMemoryInfo_v2",
                    "nvmlDeviceGetTemperatureV",
                    "nvmlDeviceGetCurrentClocksEventReasons",
                    "nvmlDeviceGetComputeRunningProcesses_v3",
                    "nvmlDeviceGetGraphicsRunningProcesses_v3",
                    "nvmlGpmQueryDeviceSupport",
                    "nvmlDeviceGetTotalEnergyConsumption",
                }
            ),
        )
    ),
    "one GPU falls off the bus": Case(
        scenario=Scenario(gpus=(FakeGpu(uuid=UUID, xids=(79,)),), fail_after=8, fail_with=builder.GPU_IS_LOST),
        samples=1000,
    ),
    "the driver is gone in mid-run": Case(
        scenario=Scenario(gpus=(FakeGpu(uuid=UUID),), fail_after=8, fail_with=builder.DRIVER_NOT_LOADED), samples=1000
    ),
    "the driver hangs in mid-run": Case(scenario=Scenario(gpus=(FakeGpu(uuid=UUID),), hang_after=8), hangs=True),
    "no driver": Case(scenario=Scenario(init_fails=builder.DRIVER_NOT_LOADED)),
    "no GPU is visible": Case(scenario=Scenario(gpus=(FakeGpu(uuid=UUID),)), environ={"CUDA_VISIBLE_DEVICES": ""}),
}
