"""Reads what ``ncu --csv --page raw`` prints: counters of single kernels, which no trace has."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.trace.kernels import KernelFacts, MeasuredKernel

_NAME = "Kernel Name"
_HOW = "Print it with: ncu --csv --page raw --import FILE.ncu-rep > FILE.csv"
_MAX_LINES_BEFORE = 1000
"""Lines of ncu and of the program before the table."""
_UNITS = {"": 1.0, "%": 0.01, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
_UNITS |= {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6}
"""Of ratios, bytes and microseconds; names of units until 2023 and later."""
_METRICS: Mapping[str, Sequence[Sequence[str]]] = {
    "duration_us": (("gpu__time_duration.sum",), ("gpu__time_duration.avg",)),
    "occupancy_ratio": (("sm__warps_active.avg.pct_of_peak_sustained_active",),),
    "l1_hit_ratio": (("l1tex__t_sector_hit_rate.pct",), ("l1tex__t_sector_hit_rate.avg.pct",)),
    "l2_hit_ratio": (("lts__t_sector_hit_rate.pct",), ("lts__t_sector_hit_rate.avg.pct",)),
    "compute_throughput_ratio": (("sm__throughput.avg.pct_of_peak_sustained_elapsed",),),
    "memory_throughput_ratio": (("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),),
    "dram_bytes": (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes.sum",)),
}
"""Field -> columns whose values add up to it, by version; the first that are all there count."""
COLLECTED = tuple(name for versions in _METRICS.values() for name in versions[0])
"""What ncu is to measure; its own choice has no hit rates."""
_BRACKETS = re.compile(r"<[^<>()]*>|\([^<>()]*\)")
_TEMPLATE = re.compile(r"[<(]")


def read_ncu(path: Path) -> tuple[MeasuredKernel, ...]:
    """Averages of the measured launches of each kernel.

    Args:
        path: The output of ``ncu --csv --page raw``.

    Returns:
        Kernels in order of their first launch; a value that ncu did not collect is None.

    Raises:
        TraceError: It cannot be read, or is something else.
    """
    sums: dict[str, dict[str, list[float]]] = {}
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for name, values in _launches(csv.reader(file), path):
                of_kernel = sums.setdefault(name, {field: [] for field in _METRICS})
                for field, value in values.items():
                    of_kernel[field].append(value)
                of_kernel.setdefault("", []).append(1.0)
    except (OSError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read ({error}). {_HOW}") from None
    if not sums:
        raise TraceError(f"{path}: has no kernels. {_HOW}")
    return tuple(
        MeasuredKernel(
            name=name,
            launches=len(found.pop("")),
            **{field: sum(values) / len(values) if values else None for field, values in found.items()},
        )
        for name, found in sums.items()
    )


def by_kernel(names: Iterable[str], measured: Sequence[MeasuredKernel]) -> dict[str, MeasuredKernel]:
    """What ncu measured of kernels of the same name, or else of a function that both know once.

    Args:
        names: Of the kernels of a trace.
        measured: What ncu measured.

    Returns:
        By the trace's name of the kernel; those that ncu did not measure are left out.
    """
    functions = {name: function_of(name) for name in names}
    by_name = {one.name: one for one in measured}
    known, counted = Counter(functions.values()), Counter(function_of(one.name) for one in measured)
    by_function = {name: one for one in measured if counted[name := function_of(one.name)] == known[name] == 1}
    found = ((name, by_name.get(name) or by_function.get(function)) for name, function in functions.items())
    return {name: one for name, one in found if one is not None}


def with_measured(found: KernelFacts, measured: Mapping[str, MeasuredKernel]) -> KernelFacts:
    """Kernels beside what ncu measured of them.

    Args:
        found: The kernels of a trace.
        measured: By name, see :func:`by_kernel`.

    Returns:
        A copy; ``measured`` is None for kernels that ncu did not measure.
    """
    return replace(found, kernels=tuple(replace(row, measured=measured.get(row.name)) for row in found.kernels))


def function_of(kernel: str) -> str:
    """The name by which ``ncu --kernel-name`` knows a kernel: without its type, namespaces, template, parameters."""
    name, before = kernel.replace("(anonymous namespace)", ""), ""
    while name != before:
        name, before = _BRACKETS.sub("", name), name
    return _TEMPLATE.split(name, maxsplit=1)[0].split("::")[-1].split(" ")[-1] or kernel


def _launches(lines: Iterator[list[str]], path: Path) -> Iterator[tuple[str, dict[str, float]]]:
    header = next((line for line in islice(lines, _MAX_LINES_BEFORE) if _NAME in line), None)
    if header is None:
        raise TraceError(f"{path}: has no column {_NAME!r}. {_HOW}")
    if "Metric Name" in header:
        raise TraceError(f"{path}: is of another page than raw. {_HOW}")
    columns = {name: number for number, name in enumerate(header)}
    chosen = {
        field: next((names for names in versions if all(name in columns for name in names)), ())
        for field, versions in _METRICS.items()
    }
    units = next(lines, [])
    for line in lines:
        if len(line) == len(header) == len(units):
            values = {
                field: [_value(line[columns[name]], units[columns[name]]) for name in names]
                for field, names in chosen.items()
            }
            yield (
                line[columns[_NAME]],
                {field: sum(map(float, known)) for field, known in values.items() if known and None not in known},  # type: ignore[arg-type]
            )


def _value(text: str, unit: str) -> float | None:
    """A number in the unit of its field; None where ncu wrote none."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    factor = _UNITS.get(unit)
    return None if factor is None or not 0 <= number < 1e18 else number * factor
