"""Dense peak rates and memory bandwidth by device name, from data sheets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lightning_gpuprof.model.trace.kernels import KernelDtype


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The peak rates of one device at the boost clock of its data sheet; a capped or shared device has less.

    Rates are dense, i.e. without the factor of 2 for structured sparsity, and the best that the device can do with
    inputs of a type: on tensor cores (AMD: matrix cores) where these take the type, also for FP64, otherwise on the
    vector units. Half-precision products are summed in FP32, as torch does. A type that is not there is not supported
    or not on the data sheet; a multiplication in a type without an entry runs at the rate of another type.
    """

    name: str
    """The product, e.g. ``H100 SXM``."""
    flops_per_s: Mapping[KernelDtype, float]
    """A multiply-add counts as 2; int8 is in integer operations per second."""
    bytes_per_s: float | None
    """Bandwidth of the device's memory."""
    source: str
    """The document that the numbers are from."""


def peaks_of(device_name: str) -> Peaks | None:
    """Data-sheet peaks of a device.

    Of an AMD card with two dies a trace shows each as a device of its own: the peaks are those of one die.

    Args:
        device_name: As ``deviceProperties`` of a trace or ``torch.cuda.get_device_name`` has it, e.g.
            ``NVIDIA H100 80GB HBM3``.

    Returns:
        None if the device is not in the table, as also for names that more than one product has
        (``AMD Radeon Graphics``, ``NVIDIA Graphics Device``).
    """
    if "MIG" in device_name.split():
        return None  # a slice of a device has a fraction of its peaks, and the name does not give it
    return next((peaks for pattern, peaks in _TABLE if pattern.search(device_name)), None)


def _row(
    pattern: str,
    name: str,
    source: str,
    *,
    gb_per_s: float,
    fp64: float | None = None,
    fp32: float | None = None,
    tf32: float | None = None,
    bf16: float | None = None,
    fp16: float | None = None,
    fp8: float | None = None,
    int8: float | None = None,
) -> tuple[re.Pattern[str], Peaks]:
    """A row of the table: rates in 10**12 per second, bandwidth in 10**9 bytes per second."""
    tera: dict[KernelDtype, float | None] = {
        "fp64": fp64,
        "fp32": fp32,
        "tf32": tf32,
        "bf16": bf16,
        "fp16": fp16,
        "fp8": fp8,
        "int8": int8,
    }
    rates: dict[KernelDtype, float] = {dtype: rate * 1e12 for dtype, rate in tera.items() if rate is not None}
    peaks = Peaks(name=name, flops_per_s=MappingProxyType(rates), bytes_per_s=gb_per_s * 1e9, source=source)
    return re.compile(pattern, re.IGNORECASE), peaks


# The first match wins, so a variant stands before the name that it contains. Data sheets of Hopper, Ada and Blackwell
# print rates with sparsity: half of them is here.
_TABLE: Sequence[tuple[re.Pattern[str], Peaks]] = (
    # Blackwell: the superchip's rates are for two GPUs, the HGX board's for eight
    _row(
        r"\bGB200\b",
        "GB200",
        "NVIDIA GB200 NVL72 data sheet, column of the superchip, per GPU",
        fp64=40,
        fp32=80,
        tf32=1250,
        bf16=2500,
        fp16=2500,
        fp8=5000,
        int8=5000,
        gb_per_s=8000,
    ),
    _row(
        r"\bB200\b",
        "B200",
        "NVIDIA HGX platform data sheet, column of HGX B200, per GPU",
        fp64=37,
        fp32=75,
        tf32=1125,
        bf16=2250,
        fp16=2250,
        fp8=4500,
        int8=4500,
        gb_per_s=8000,
    ),
    # Hopper
    _row(
        r"\bH200 NVL\b",
        "H200 NVL",
        "NVIDIA H200 data sheet",
        fp64=60,
        fp32=60,
        tf32=417.5,
        bf16=835.5,
        fp16=835.5,
        fp8=1670.5,
        int8=1670.5,
        gb_per_s=4800,
    ),
    _row(
        r"\bH200\b",
        "H200 SXM",
        "NVIDIA H200 data sheet",
        fp64=67,
        fp32=67,
        tf32=494.5,
        bf16=989.5,
        fp16=989.5,
        fp8=1979,
        int8=1979,
        gb_per_s=4800,
    ),
    _row(
        r"\bH100 NVL\b",
        "H100 NVL",
        "NVIDIA H100 data sheet (one card of the pair)",
        fp64=60,
        fp32=60,
        tf32=417.5,
        bf16=835.5,
        fp16=835.5,
        fp8=1670.5,
        int8=1670.5,
        gb_per_s=3900,
    ),
    _row(
        r"\bH100\b.*(?:PCIe|HBM2e)",
        "H100 PCIe",
        "NVIDIA H100 PCIe product brief PB-11133",
        fp64=51,
        fp32=51,
        tf32=378,
        bf16=756.5,
        fp16=756.5,
        fp8=1513,
        int8=1513,
        gb_per_s=2000,
    ),
    _row(
        r"\bH100\b.*(?:HBM3|SXM)",
        "H100 SXM",
        "NVIDIA H100 data sheet",
        fp64=67,
        fp32=67,
        tf32=494.5,
        bf16=989.5,
        fp16=989.5,
        fp8=1979,
        int8=1979,
        gb_per_s=3350,
    ),
    # Ada
    _row(
        r"\bL40S\b",
        "L40S",
        "NVIDIA L40S data sheet",
        fp32=91.6,
        tf32=183,
        bf16=362.05,
        fp16=362.05,
        fp8=733,
        int8=733,
        gb_per_s=864,
    ),
    _row(
        r"\bL40\b",
        "L40",
        "NVIDIA L40 data sheet",
        fp32=90.5,
        tf32=90.5,
        bf16=181.05,
        fp16=181.05,
        fp8=362,
        int8=362,
        gb_per_s=864,
    ),
    _row(
        r"\bL4\b",
        "L4",
        "NVIDIA L4 data sheet",
        fp32=30.3,
        tf32=60,
        bf16=121,
        fp16=121,
        fp8=242.5,
        int8=242.5,
        gb_per_s=300,
    ),
    _row(
        r"\bRTX 6000 Ada\b",
        "RTX 6000 Ada",
        "NVIDIA Ada GPU architecture white paper, appendix B",
        fp32=91.1,
        tf32=182.1,
        bf16=364.2,
        fp16=364.2,
        fp8=728.5,
        int8=728.5,
        gb_per_s=960,
    ),
    _row(
        r"\bRTX 4090\b(?! (?:D|Laptop))",
        "RTX 4090",
        "NVIDIA Ada GPU architecture white paper, appendix A",
        fp32=82.6,
        tf32=82.6,
        bf16=165.2,
        fp16=165.2,
        fp8=330.3,
        int8=660.6,
        gb_per_s=1008,
    ),
    # Ampere
    _row(
        r"\bA100\b.*\b80GB PCIe|\bA100-PCIE-80GB",
        "A100 80GB PCIe",
        "NVIDIA A100 80GB data sheet",
        fp64=19.5,
        fp32=19.5,
        tf32=156,
        bf16=312,
        fp16=312,
        int8=624,
        gb_per_s=1935,
    ),
    _row(
        r"\bA100\b.*80GB",
        "A100 80GB SXM",
        "NVIDIA A100 80GB data sheet",
        fp64=19.5,
        fp32=19.5,
        tf32=156,
        bf16=312,
        fp16=312,
        int8=624,
        gb_per_s=2039,
    ),
    _row(
        # PG509-200 is the name of an early board with 40 GB
        r"\bA100\b.*(?:40GB|PG509)",
        "A100 40GB",
        "NVIDIA A100 40GB data sheet",
        fp64=19.5,
        fp32=19.5,
        tf32=156,
        bf16=312,
        fp16=312,
        int8=624,
        gb_per_s=1555,
    ),
    _row(
        r"\bA40\b",
        "A40",
        "NVIDIA A40 data sheet",
        fp32=37.4,
        tf32=74.8,
        bf16=149.7,
        fp16=149.7,
        int8=299.3,
        gb_per_s=696,
    ),
    _row(
        r"\bA30\b",
        "A30",
        "NVIDIA A30 data sheet",
        fp64=10.3,
        fp32=10.3,
        tf32=82,
        bf16=165,
        fp16=165,
        int8=330,
        gb_per_s=933,
    ),
    _row(
        r"\bA10G\b",
        "A10G",
        "NVIDIA A10G data sheet (Amazon EC2 G5)",
        fp32=35,
        tf32=35,
        bf16=70,
        fp16=70,
        int8=140,
        gb_per_s=600,
    ),
    _row(
        r"\bA10\b",
        "A10",
        "NVIDIA A10 data sheet",
        fp32=31.2,
        tf32=62.5,
        bf16=125,
        fp16=125,
        int8=250,
        gb_per_s=600,
    ),
    _row(
        r"\bRTX A6000\b",
        "RTX A6000",
        "NVIDIA Ampere GA102 GPU architecture white paper, appendix B",
        fp32=38.7,
        tf32=77.4,
        bf16=154.8,
        fp16=154.8,
        int8=309.7,
        gb_per_s=768,
    ),
    _row(
        r"\bRTX 3090\b(?! Ti)",
        "RTX 3090",
        "NVIDIA Ampere GA102 GPU architecture white paper, appendix A",
        fp32=35.6,
        tf32=35.6,
        bf16=71,
        fp16=71,
        int8=284,
        gb_per_s=936,
    ),
    # Turing
    _row(
        r"\bRTX 2080 Ti\b",
        "RTX 2080 Ti",
        "NVIDIA Turing GPU architecture white paper, Founders Edition",
        fp32=14.2,
        fp16=56.9,
        int8=227.7,
        gb_per_s=616,
    ),
    _row(r"\bT4\b", "T4", "NVIDIA T4 data sheet", fp32=8.1, fp16=65, int8=130, gb_per_s=320),
    # Volta
    _row(
        r"\bV100S\b",
        "V100S PCIe",
        "NVIDIA V100 data sheet",
        fp64=8.2,
        fp32=16.4,
        fp16=130,
        gb_per_s=1134,
    ),
    _row(
        r"\bV100-SXM2\b",
        "V100 SXM2",
        "NVIDIA V100 data sheet",
        fp64=7.8,
        fp32=15.7,
        fp16=125,
        gb_per_s=900,
    ),
    _row(
        r"\bV100-DGXS\b",
        "V100 DGX Station",
        "NVIDIA DGX Station data sheet (500 TFLOPS of four GPUs); other types as V100 SXM2, whose clock it has",
        fp64=7.8,
        fp32=15.7,
        fp16=125,
        gb_per_s=900,
    ),
    _row(
        r"\bV100-PCIE\b",
        "V100 PCIe",
        "NVIDIA V100 data sheet",
        fp64=7,
        fp32=14,
        fp16=112,
        gb_per_s=900,
    ),
    # Pascal: FP16 on the vector units
    _row(
        r"\bP100-SXM2\b",
        "P100 SXM2",
        "NVIDIA Tesla P100 data sheet",
        fp64=5.3,
        fp32=10.6,
        fp16=21.2,
        gb_per_s=732,
    ),
    _row(
        r"\bP100-PCIE-12GB",
        "P100 PCIe 12GB",
        "NVIDIA Tesla P100 PCIe data sheet",
        fp64=4.7,
        fp32=9.3,
        fp16=18.7,
        gb_per_s=549,
    ),
    _row(
        r"\bP100-PCIE\b",
        "P100 PCIe 16GB",
        "NVIDIA Tesla P100 PCIe data sheet",
        fp64=4.7,
        fp32=9.3,
        fp16=18.7,
        gb_per_s=732,
    ),
    _row(
        r"\bGP100\b",
        "Quadro GP100",
        "NVIDIA Quadro GP100 data sheet",
        fp64=5.2,
        fp32=10.3,
        fp16=20.7,
        gb_per_s=717,
    ),
    # AMD: matrix rates
    _row(
        r"\bMI325X\b",
        "MI325X",
        "AMD Instinct MI325X data sheet",
        fp64=163.4,
        fp32=163.4,
        tf32=653.7,
        bf16=1307.4,
        fp16=1307.4,
        fp8=2614.9,
        int8=2614.9,
        gb_per_s=6000,
    ),
    _row(
        r"\bMI300X\b",
        "MI300X",
        "AMD Instinct MI300X data sheet",
        fp64=163.4,
        fp32=163.4,
        tf32=653.7,
        bf16=1307.4,
        fp16=1307.4,
        fp8=2614.9,
        int8=2614.9,
        gb_per_s=5300,
    ),
    _row(
        r"\bMI250X\b",
        "MI250X, one die of two",
        "AMD Instinct MI250X data sheet, halved",
        fp64=47.85,
        fp32=47.85,
        bf16=191.5,
        fp16=191.5,
        int8=191.5,
        gb_per_s=1638.4,
    ),
    _row(
        r"\bMI250\b",
        "MI250, one die of two",
        "AMD Instinct MI250 data sheet, halved",
        fp64=45.25,
        fp32=45.25,
        bf16=181.05,
        fp16=181.05,
        int8=181.05,
        gb_per_s=1638.4,
    ),
    _row(
        r"\bMI210\b",
        "MI210",
        "AMD Instinct MI210 data sheet",
        fp64=45.3,
        fp32=45.3,
        bf16=181,
        fp16=181,
        int8=181,
        gb_per_s=1638.4,
    ),
)
