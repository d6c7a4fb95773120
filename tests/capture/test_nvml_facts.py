"""Facts of a GPU by scripted answers of the driver: what it does not give is left out."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest

from lightning_gpuprof.capture.nvml import facts
from lightning_gpuprof.capture.nvml.backend import NvmlDevice, UnsupportedError
from lightning_gpuprof.model.device import DeviceFacts

GPU = NvmlDevice(index=0, uuid="GPU-0", name="Some GPU", handle="the handle")


class Driver:
    """Answers some questions; to all others that it does not know them."""

    def __init__(self, *, knows_the_field: bool = True, **answers: Any) -> None:
        known = {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_")}
        if not knows_the_field:
            del known["NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON"]
        self.nvml = SimpleNamespace(**known)
        self.answers = answers

    def ask(self, function: str, *arguments: object) -> Any:
        if function not in self.answers:
            raise UnsupportedError("Not Supported")
        return self.answers[function]


def read(driver: Driver) -> facts.Facts:
    return facts.read(driver, GPU)  # type: ignore[arg-type]


def links(mb_per_s: int, code: int = 0) -> list[object]:
    return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=mb_per_s))]


def test_the_rate_of_a_link_is_read() -> None:
    found = read(Driver(nvmlDeviceGetFieldValues=links(26562)))
    assert found["nvlink_each_bytes_per_s"] == pytest.approx(26.562e9)


def test_counts_are_whole_numbers_as_reports_have_them() -> None:
    driver = Driver(nvmlDeviceGetMemoryBusWidth=5120, nvmlDeviceGetNumGpuCores=16896, nvmlDeviceGetNumFans=2)
    known = msgspec.convert(read(driver), DeviceFacts)
    assert (known.memory_bus_bits, known.cuda_cores_count, known.fans_count) == (5120, 16896, 2)


@pytest.mark.parametrize(
    "driver",
    [
        Driver(),
        Driver(nvmlDeviceGetFieldValues=links(26562, code=3)),
        Driver(nvmlDeviceGetFieldValues=links(0)),
        Driver(knows_the_field=False, nvmlDeviceGetFieldValues=links(26562)),
    ],
    ids=["no such query", "not supported", "no link", "an older binding"],
)
def test_a_gpu_without_links_has_no_rate(driver: Driver) -> None:
    assert "nvlink_each_bytes_per_s" not in read(driver)
