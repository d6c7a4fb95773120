"""Each scenario of the driver: what the report says of the GPU, as ``device_scenarios.md`` has it, and its rule."""

import os
import re
from pathlib import Path

import pytest
from built_journals import sampled
from fake_nvml import builder
from fake_nvml.scenarios import CASES, one

from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.rules.engine import Diagnosis, diagnose
from lightning_gpuprof.rules.hardware.ecc_xid import EccXid
from lightning_gpuprof.rules.hardware.gpu_shared import GpuShared
from lightning_gpuprof.rules.hardware.gpu_util_low import GpuUtilLow
from lightning_gpuprof.rules.hardware.low_clocks import LowClocks
from lightning_gpuprof.rules.hardware.mig_slice import MigSlice
from lightning_gpuprof.rules.hardware.nvlink_down import NvlinkDown
from lightning_gpuprof.rules.hardware.pcie_degraded import PcieDegraded
from lightning_gpuprof.rules.hardware.power_brake import PowerBrake
from lightning_gpuprof.rules.hardware.power_throttle import PowerThrottle
from lightning_gpuprof.rules.hardware.thermal_throttle import ThermalThrottle
from lightning_gpuprof.rules.hardware.util_misleading import UtilMisleading
from lightning_gpuprof.rules.transfers.h2d_slow_link import H2dSlowLink
from lightning_gpuprof.sinks.device_tables import device_line

PAGE = Path(__file__).with_name("device_scenarios.md")
SAMPLES = 45
RULES = (
    ThermalThrottle(),
    PowerThrottle(),
    PowerBrake(),
    LowClocks(),
    PcieDegraded(),
    H2dSlowLink(),
    GpuShared(),
    EccXid(),
    NvlinkDown(),
    MigSlice(),
    GpuUtilLow(),
    UtilMisleading(),
)
ALL_CASES = {
    **CASES,
    "a lowered power limit": one(clock_events=0x4, sm_clock_mhz=1200, power_mw=399_000, power_limit_mw=400_000),
    "braked by the power supply": one(clock_events=0x80 | 0x8, sm_clock_mhz=900),
    "application clocks": one(clock_events=0x2, sm_clock_mhz=1200),
    "locked clocks": one(sm_clock_mhz=1200, utilization_percent=98),
    "hot and at its power limit": one(clock_events=0x20 | 0x4, sm_clock_mhz=900, temperature_c=91),
    "a small context of a monitor": one(processes=((0, 9 << 30, False), (1, 300 << 20, False))),
    "half busy": one(utilization_percent=40),
    "uncorrected memory errors": one(uncorrected_rises=True),
    "links that fail": one(links=4, links_recover=True),
}
EXPECTED: dict[str, dict[str, str]] = {
    "hot": {"thermal-throttle": "critical"},
    "power-capped": {"power-throttle": "info"},
    "a lowered power limit": {"power-throttle": "warning"},
    "braked by the power supply": {"power-brake": "critical"},
    "application clocks": {"low-clocks": "warning"},
    "locked clocks": {"low-clocks": "warning"},
    "hot and at its power limit": {"thermal-throttle": "critical", "power-throttle": "info"},
    "idle": {"gpu-util-low": "info"},
    "half busy": {"gpu-util-low": "info"},
    "a slow PCIe slot": {"pcie-degraded": "info"},
    "corrected memory errors": {"ecc-xid": "info"},
    "uncorrected memory errors": {"ecc-xid": "critical"},
    "one GPU falls off the bus": {"ecc-xid": "critical"},
    "links that fail": {"nvlink-down": "info"},
    "shared with another process": {"gpu-shared": "warning"},
    "a MIG device": {"mig-slice": "info"},
}
"""Findings of the scenarios that have some; all others have none."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(builder.compiler() is None, reason="no C compiler (cc) to build the fake NVML"),
]


@pytest.fixture(scope="module", params=ALL_CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def readings(name: str, tmp_path_factory: pytest.TempPathFactory) -> list[Reading]:
    """What the sampler reads there, once for all tests."""
    case = ALL_CASES[name]
    return builder.run_sampler(
        builder.build(case.scenario, tmp_path_factory.mktemp("driver")),
        samples=max(SAMPLES, case.samples),
        until_hang=case.hangs,
        environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **case.environ},
    )


@pytest.fixture(scope="module")
def diagnosis(readings: list[Reading]) -> Diagnosis:
    return diagnose(sampled(readings, least_steps=1000), RULES)


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names, indirect=True, scope="module")


def said(readings: list[Reading]) -> str:
    """The line of each GPU and the caveats, of a run that had a sample in each half second."""
    found = sampled(readings, least_steps=2)
    caveats = [text for text in found.validity.caveats if text.startswith("nvml: ")]
    lines = [device_line(device) for device in found.devices] + [f"*{text}*" for text in caveats]
    # How many samples there are, and the energy of them all, depends on when the sampler is stopped.
    counted = re.sub(r"\d+ samples \(\d+ distinct\)|\d+ samples", "N samples", "<br>".join(lines))
    return re.sub(r"no answer for [0-9.]+ s", "no answer for 0.3 s", re.sub(r"[\d.]+ kJ", "N kJ", counted))


@only(*CASES)
def test_the_page_says_what_the_report_says(name: str, readings: list[Reading]) -> None:
    """Made anew with ``GPUPROF_WRITE_DOCS=1``."""
    made = f"| {name} | {said(readings)} |"
    text = PAGE.read_text()
    if os.environ.get("GPUPROF_WRITE_DOCS"):
        found = re.search(rf"^\| {re.escape(name)} \|.*$", text, re.M)
        assert found is not None, f"write a row for {name!r} first"
        PAGE.write_text(text.replace(found.group(), made))
        return
    assert made in text.splitlines()


def test_a_scenario_gives_its_rule_and_no_other(name: str, diagnosis: Diagnosis) -> None:
    assert {f.rule: f.severity for f in diagnosis.findings} == EXPECTED.get(name, {})
    assert [n for n in diagnosis.not_evaluated if n.why.startswith("failed")] == []
    # The time that is lost to the clocks is gained once.
    assert sum(f.gain is not None for f in diagnosis.findings) <= 1


@only("WSL")
def test_a_driver_that_does_not_tell_is_never_healthy(diagnosis: Diagnosis) -> None:
    told = {n.rule: n.why for n in diagnosis.not_evaluated}
    assert {"thermal-throttle", "power-throttle", "power-brake", "low-clocks", "gpu-shared", "ecc-xid"} <= set(told)
    assert "does not report why clocks are throttled" in told["thermal-throttle"]


@only("no driver")
def test_without_a_driver_every_rule_says_so(diagnosis: Diagnosis) -> None:
    assert {n.rule for n in diagnosis.not_evaluated} == {rule.id for rule in RULES}
    assert all("NVML not available: Driver Not Loaded" in n.why for n in diagnosis.not_evaluated)
