"""Dense peak rates and memory bandwidths of devices, from data sheets."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from lightning_gpuprof.model.trace.kernels import KernelDtype


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
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

    A trace shows each die of an AMD card with two dies as a device of its own: the peaks are those of one die.

    Args:
        device_name: As ``deviceProperties`` of a trace or ``torch.cuda.get_device_name`` has it, e.g.
            ``NVIDIA H100 80GB HBM3``.

    Returns:
        None if the device is not in the table, as also for names that more than one product has
        (``AMD Radeon Graphics``, ``NVIDIA Graphics Device``).
    """
    if "MIG" in device_name.split():
        return None  # a slice of a device has a fraction of its peaks, and the name does not give it
    return next((peaks for pattern, peaks in _table() if re.search(pattern, device_name, re.IGNORECASE)), None)


@cache
def _table() -> tuple[tuple[str, Peaks], ...]:
    """Expressions for the names of devices, and the peaks of each, from the text below."""
    found, source = [], ""
    for line in _DATA_SHEETS.strip().splitlines():
        if not line.startswith(" "):
            source = line
            continue
        name, pattern, numbers = re.split(r"\s{2,}", line.strip(), maxsplit=2)
        gb_per_s, *tera = numbers.split()
        rates = {dtype: float(rate) * 1e12 for dtype, rate in zip(_DTYPES, tera, strict=True) if rate != "-"}
        bandwidth = float(gb_per_s) * 1e9
        peaks = Peaks(name=name, flops_per_s=MappingProxyType(rates), bytes_per_s=bandwidth, source=source)
        found.append((pattern, peaks))
    return tuple(found)


_DTYPES: tuple[KernelDtype, ...] = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
_DATA_SHEETS = r"""
NVIDIA GB200 NVL72 data sheet, column of the superchip, per GPU
  GB200                   \bGB200\b                                 8000    40    80  1250   2500   2500   5000   5000
NVIDIA HGX platform data sheet, column of HGX B200, per GPU
  B200                    \bB200\b                                  8000    37    75  1125   2250   2250   4500   4500
NVIDIA H200 data sheet
  H200 NVL                \bH200 NVL\b                              4800    60    60 417.5  835.5  835.5 1670.5 1670.5
  H200 SXM                \bH200\b                                  4800    67    67 494.5  989.5  989.5   1979   1979
NVIDIA H100 data sheet (one card of the pair)
  H100 NVL                \bH100 NVL\b                              3900    60    60 417.5  835.5  835.5 1670.5 1670.5
NVIDIA H100 PCIe product brief PB-11133
  H100 PCIe               \bH100\b.*(?:PCIe|HBM2e)                  2000    51    51   378  756.5  756.5   1513   1513
NVIDIA H100 data sheet
  H100 SXM                \bH100\b.*(?:HBM3|SXM)                    3350    67    67 494.5  989.5  989.5   1979   1979
NVIDIA L40S data sheet
  L40S                    \bL40S\b                                   864     -  91.6   183 362.05 362.05    733    733
NVIDIA L40 data sheet
  L40                     \bL40\b                                    864     -  90.5  90.5 181.05 181.05    362    362
NVIDIA L4 data sheet
  L4                      \bL4\b                                     300     -  30.3    60    121    121  242.5  242.5
NVIDIA Ada GPU architecture white paper, appendix B
  RTX 6000 Ada            \bRTX 6000 Ada\b                           960     -  91.1 182.1  364.2  364.2  728.5  728.5
NVIDIA Ada GPU architecture white paper, appendix A
  RTX 4090                \bRTX 4090\b(?! (?:D|Laptop))             1008     -  82.6  82.6  165.2  165.2  330.3  660.6
NVIDIA A100 80GB data sheet
  A100 80GB PCIe          \bA100\b.*\b80GB PCIe|\bA100-PCIE-80GB    1935  19.5  19.5   156    312    312      -    624
  A100 80GB SXM           \bA100\b.*80GB                            2039  19.5  19.5   156    312    312      -    624
NVIDIA A100 40GB data sheet
  A100 40GB               \bA100\b.*(?:40GB|PG509)                  1555  19.5  19.5   156    312    312      -    624
NVIDIA A40 data sheet
  A40                     \bA40\b                                    696     -  37.4  74.8  149.7  149.7      -  299.3
NVIDIA A30 data sheet
  A30                     \bA30\b                                    933  10.3  10.3    82    165    165      -    330
NVIDIA A10G data sheet (Amazon EC2 G5)
  A10G                    \bA10G\b                                   600     -    35    35     70     70      -    140
NVIDIA A10 data sheet
  A10                     \bA10\b                                    600     -  31.2  62.5    125    125      -    250
NVIDIA Ampere GA102 GPU architecture white paper, appendix B
  RTX A6000               \bRTX A6000\b                              768     -  38.7  77.4  154.8  154.8      -  309.7
NVIDIA Ampere GA102 GPU architecture white paper, appendix A
  RTX 3090                \bRTX 3090\b(?! Ti)                        936     -  35.6  35.6     71     71      -    284
NVIDIA Turing GPU architecture white paper, Founders Edition
  RTX 2080 Ti             \bRTX 2080 Ti\b                            616     -  14.2     -      -   56.9      -  227.7
NVIDIA T4 data sheet
  T4                      \bT4\b                                     320     -   8.1     -      -     65      -    130
NVIDIA V100 data sheet
  V100S PCIe              \bV100S\b                                 1134   8.2  16.4     -      -    130      -      -
  V100 SXM2               \bV100-SXM2\b                              900   7.8  15.7     -      -    125      -      -
  V100 PCIe               \bV100-PCIE\b                              900     7    14     -      -    112      -      -
NVIDIA DGX Station data sheet (500 TFLOPS of four GPUs); other types as V100 SXM2, whose clock it has
  V100 DGX Station        \bV100-DGXS\b                              900   7.8  15.7     -      -    125      -      -
NVIDIA Tesla P100 data sheet
  P100 SXM2               \bP100-SXM2\b                              732   5.3  10.6     -      -   21.2      -      -
NVIDIA Tesla P100 PCIe data sheet
  P100 PCIe 12GB          \bP100-PCIE-12GB                           549   4.7   9.3     -      -   18.7      -      -
  P100 PCIe 16GB          \bP100-PCIE\b                              732   4.7   9.3     -      -   18.7      -      -
NVIDIA Quadro GP100 data sheet
  Quadro GP100            \bGP100\b                                  717   5.2  10.3     -      -   20.7      -      -
AMD Instinct MI325X data sheet
  MI325X                  \bMI325X\b                                6000 163.4 163.4 653.7 1307.4 1307.4 2614.9 2614.9
AMD Instinct MI300X data sheet
  MI300X                  \bMI300X\b                                5300 163.4 163.4 653.7 1307.4 1307.4 2614.9 2614.9
AMD Instinct MI250X data sheet, halved
  MI250X, one die of two  \bMI250X\b                              1638.4 47.85 47.85     -  191.5  191.5      -  191.5
AMD Instinct MI250 data sheet, halved
  MI250, one die of two   \bMI250\b                               1638.4 45.25 45.25     - 181.05 181.05      - 181.05
AMD Instinct MI210 data sheet
  MI210                   \bMI210\b                               1638.4  45.3  45.3     -    181    181      -    181
"""
"""A document, and below it what it says of each product: name, expression for the device's name, bandwidth in
10**9 bytes per second, rates in 10**12 per second in the order of the types above.

The first expression that fits counts, so a variant stands before the name that it contains. Data sheets of Hopper, Ada
and Blackwell print rates with sparsity: half of them is here. The sheet of Blackwell's superchip is for two GPUs, that
of the HGX board for eight; PG509-200 is an early A100 board with 40 GB; Pascal does FP16 on the vector units; rates of
AMD are those of the matrix cores.
"""
