"""Cases: what a driver says of a GPU, in its scripted answers during a real fit."""

from fake_nvml.builder import NOT_SUPPORTED, FakeGpu, compiler

from lightning_gpuprof.model.finding import VerdictKind
from truths.case import Case, Group
from truths.driven import Driven, gpu

_GIB = 1 << 30
_THERMAL, _POWER_CAP, _BRAKE, _APPLICATION_CLOCKS = 0x20 | 0x40, 0x4, 0x80 | 0x8, 0x2
"""Bits of NVML's clock event reasons."""


_OF_A_GPU = ("thermal-throttle", "power-throttle", "low-clocks", "pcie-degraded", "gpu-shared", "gpu-util-low")
"""What a GPU that answers must let judge: a driver that was not loaded would be quiet, too."""


def _driven(
    what: str,
    of: FakeGpu,
    *expected: str,
    group: Group = "fault",
    verdicts: tuple[VerdictKind, ...] = (),
    allowed: tuple[str, ...] = (),
    fail_after: int = -1,
    numa: tuple[int, int] | None = None,
    also: str = "",
    must_judge: tuple[str, ...] = (),
) -> Case:
    return Case(
        name=f"driver: {what}",
        source=Driven(gpu=of, fail_after=fail_after, numa=numa),
        group=group,
        expected=tuple(rules for rules in (expected, (also,) if also else ()) if rules),
        verdicts=verdicts,
        allowed=allowed,
        must_judge=must_judge or (_OF_A_GPU if group not in ("fault", "pair") and fail_after < 0 else ()),
    )


DRIVERS: tuple[Case, ...] = (
    _driven(
        "a GPU that is too hot",
        gpu(clock_events=_THERMAL, sm_clock_mhz=900, temperature_c=91),
        "thermal-throttle",
        verdicts=("hardware-limited",),
    ),
    _driven(
        "a lowered power limit",
        gpu(clock_events=_POWER_CAP, sm_clock_mhz=1200, power_mw=399_000, power_limit_mw=400_000),
        "power-throttle",
        verdicts=("hardware-limited",),
    ),
    _driven(
        "the power supply brakes",
        gpu(clock_events=_BRAKE, sm_clock_mhz=900),
        "power-brake",
        verdicts=("hardware-limited",),
    ),
    _driven(
        "application clocks",
        gpu(clock_events=_APPLICATION_CLOCKS, sm_clock_mhz=1200, utilization_percent=97),
        "low-clocks",
        verdicts=("hardware-limited",),
    ),
    _driven(
        "clocks that nobody explains",
        gpu(sm_clock_mhz=1100, utilization_percent=98),
        "low-clocks",
    ),
    _driven("a slow PCIe slot", gpu(pcie_generation=3, pcie_width=8), "pcie-degraded"),
    _driven("half of the lanes", gpu(pcie_width=8), "pcie-degraded"),
    _driven(
        "another process computes there",
        gpu(processes=((0, 9 * _GIB, False), (1, 12 * _GIB, False))),
        "gpu-shared",
    ),
    _driven("uncorrected memory errors", gpu(uncorrected_rises=True), "ecc-xid"),
    _driven("corrected memory errors", gpu(ecc_rises=True), "ecc-xid"),
    _driven("NVLinks that come back", gpu(links=4, links_recover=True), "nvlink-down"),
    _driven("a GPU that works half of the time", gpu(utilization_percent=40), "gpu-util-low"),
    _driven(
        "kernels that leave most of the multiprocessors idle",
        gpu(utilization_percent=97, sm_active_percent=20),
        "util-misleading",
    ),
    _driven(
        "a slice of a GPU",
        gpu(mig=(FakeGpu(uuid="MIG-7777", name="NVIDIA Fake 100 MIG 1g", fails={"utilization": NOT_SUPPORTED}),)),
        "mig-slice",
    ),
    _driven(
        "a GPU that works half of the time, at the other NUMA node",
        gpu(utilization_percent=40),
        "gpu-util-low",
        group="pair",
        also="numa-mismatch",
        numa=(0, 1),
    ),
    _driven(
        "a GPU that works half of the time, at the same NUMA node",
        gpu(utilization_percent=40),
        "gpu-util-low",
        numa=(1, 1),
    ),
    _driven(
        "a busy GPU at the other NUMA node",
        gpu(utilization_percent=97),
        group="decoy",
        numa=(0, 1),
        must_judge=("numa-mismatch",),
    ),
    _driven("a busy Hopper", gpu(links=4), group="healthy"),
    _driven("a busy GPU without counters", gpu(gpm=False), group="healthy"),
    _driven(
        "a board at its own power limit",
        gpu(clock_events=_POWER_CAP, sm_clock_mhz=1750, power_mw=699_000),
        group="decoy",
    ),
    _driven(
        "a monitor has a context",
        gpu(processes=((0, 9 * _GIB, False), (1, 300 << 20, False))),
        group="decoy",
    ),
    _driven("a GPU that falls off the bus", gpu(), group="decoy", fail_after=15),
)

if compiler() is None:
    DRIVERS = ()  # they are built from C
