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
NVIDIA RTX Blackwell GPU architecture white paper
  RTX 5090                \bRTX 5090$                               1792     - 104.8 104.8  209.5  209.5    419    838
  RTX 5080                \bRTX 5080$                                960     -  56.3  56.3  112.6  112.6  225.1  450.2
  RTX 5070 Ti             \bRTX 5070 Ti$                             896     -  43.9  43.9   87.9   87.9  175.8  351.5
  RTX 5070                \bRTX 5070$                                672     -  30.9  30.9   61.7   61.7  123.5  246.9
NVIDIA H200 data sheet
  H200 NVL                \bH200 NVL\b                              4800    60    60 417.5  835.5  835.5 1670.5 1670.5
  H200 SXM                \bH200\b                                  4800    67    67 494.5  989.5  989.5   1979   1979
NVIDIA GH200 Grace Hopper superchip data sheet
  GH200 144GB             \bGH200\b.*HBM3e                          4900    67    67 494.5  989.5  989.5   1979   1979
  GH200 96GB              \bGH200 480GB                             4000    67    67 494.5  989.5  989.5   1979   1979
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
NVIDIA RTX 5000 Ada data sheet
  RTX 5000 Ada            \bRTX 5000 Ada Generation$                 576     -  65.3 130.6  261.1  261.1  522.2  522.2
NVIDIA Ada GPU architecture white paper, appendix A
  RTX 4090                \bRTX 4090\b(?! (?:D|Laptop))             1008     -  82.6  82.6  165.2  165.2  330.3  660.6
  RTX 4080                \bRTX 4080$                              716.8     -  48.7  48.7   97.5   97.5  194.9  389.9
NVIDIA GeForce product pages: cores, boost clock and memory; rates per core as in the Ada white paper
  RTX 4080 SUPER          \bRTX 4080 SUPER$                          736     -  52.2  52.2  104.4  104.4  208.9  417.8
  RTX 4070 Ti SUPER       \bRTX 4070 Ti SUPER$                       672     -  44.1  44.1   88.2   88.2  176.4  352.8
  RTX 4070 Ti             \bRTX 4070 Ti$                             504     -  40.1  40.1   80.2   80.2  160.4  320.7
  RTX 4070 SUPER          \bRTX 4070 SUPER$                          504     -  35.5  35.5     71     71  141.9  283.9
  RTX 4070                \bRTX 4070$                                504     -  29.1  29.1   58.3   58.3  116.6  233.2
  RTX 4060 Ti             \bRTX 4060 Ti$                             288     -  22.1  22.1   44.1   44.1   88.2  176.5
  RTX 4060                \bRTX 4060$                                272     -  15.1  15.1   30.2   30.2   60.5  120.9
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
NVIDIA RTX A5500, A5000, A4500 and A4000 data sheets
  RTX A5500               \bRTX A5500$                               768     -  34.1  68.2  136.4  136.4      -  272.8
  RTX A5000               \bRTX A5000$                               768     -  27.8  55.6  111.1  111.1      -  222.2
  RTX A4500               \bRTX A4500$                               640     -  23.7  47.3   94.6   94.6      -  189.2
  RTX A4000               \bRTX A4000$                               448     -  19.2  38.3   76.7   76.7      -  153.4
NVIDIA Ampere GA102 GPU architecture white paper, appendix A
  RTX 3090                \bRTX 3090\b(?! Ti)                        936     -  35.6  35.6     71     71      -    284
  RTX 3080                \bRTX 3080$                                760     -  29.8  29.8   59.5   59.5      -    238
NVIDIA Ampere GA102 GPU architecture white paper, table of the GA104
  RTX 3070                \bRTX 3070$                                448     -  20.3  20.3   40.6   40.6      -  162.6
NVIDIA GeForce product pages: cores, boost clock and memory; rates per core as in the GA102 white paper
  RTX 3090 Ti             \bRTX 3090 Ti$                            1008     -    40    40     80     80      -    320
  RTX 3080 Ti             \bRTX 3080 Ti$                             912     -  34.1  34.1   68.2   68.2      -  272.8
  RTX 3070 Ti             \bRTX 3070 Ti$                             608     -  21.7  21.7   43.5   43.5      -    174
  RTX 3060 Ti             \bRTX 3060 Ti$                             448     -  16.2  16.2   32.4   32.4      -  129.6
  RTX 3060                \bRTX 3060$                                360     -  12.7  12.7   25.5   25.5      -  101.9
NVIDIA Turing GPU architecture white paper, Founders Edition
  RTX 2080 Ti             \bRTX 2080 Ti\b                            616     -  14.2     -      -   56.9      -  227.7
  RTX 2080                \bRTX 2080$                                448     -  10.6     -      -   42.4      -  169.6
  RTX 2070                \bRTX 2070$                                448     -   7.9     -      -   31.5      -    126
  Titan RTX               \bTITAN RTX$                               672     -  16.3     -      -  130.5      -    261
  Quadro RTX 6000, 8000   \bQuadro RTX (?:6000|8000)$                672     -  16.3     -      -  130.5      -    261
NVIDIA Quadro RTX 5000 data sheet
  Quadro RTX 5000         \bQuadro RTX 5000$                         448     -  11.2     -      -   89.2      -  178.4
NVIDIA Ampere GA102 GPU architecture white paper, columns of Turing
  RTX 2080 SUPER          \bRTX 2080 SUPER$                          496     -  11.2     -      -   44.6      -  178.4
  RTX 2070 SUPER          \bRTX 2070 SUPER$                          448     -   9.1     -      -   36.3      -    145
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
