"""One line and a few tables per GPU: what held it back, what it took, what it is."""

from collections.abc import Callable, Mapping

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.clock_events import NO_LIMIT, TERMS, WORDS
from lightning_gpuprof.model.device import MIN_SAMPLES, ErrorCounter, ThrottleShare, pcie_bytes_per_s, xid_words
from lightning_gpuprof.model.device_peaks import peaks_of
from lightning_gpuprof.model.report import Device, Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    NAME,
    PERCENT,
    SIGNIFICANT,
    US,
    Column,
    Table,
    bar,
    device_name,
)
from lightning_gpuprof.sinks.window_tables import short_names

_KERNEL_CELLS = 60
_KERNELS = 30
MIN_THROTTLE_RATIO = 0.05
"""Of the busy samples; a reason that holds less often is in the table only."""
LOW_UTILIZATION_RATIO = 0.7
HIGH_UTILIZATION_RATIO = 0.9

_MISSING: Mapping[str, str] = {
    "sm_active_ratio": "SM, tensor and DRAM activity",
    "pcie_generation": "PCIe link",
    "pcie_tx_bytes_per_s": "PCIe traffic",
    "compute_processes_count": "processes",
    "foreign_processes_count": "other processes",
    "sm_clock_mhz": "SM clock",
}
"""What people call a value that is missing, and those that are missing with it."""

_TOGETHER: Mapping[str, str] = {
    "sm_occupancy_ratio": "sm_active_ratio",
    "tensor_active_ratio": "sm_active_ratio",
    "tensor_hmma_active_ratio": "sm_active_ratio",
    "dram_active_ratio": "sm_active_ratio",
    "pcie_width": "pcie_generation",
    "pcie_rx_bytes_per_s": "pcie_tx_bytes_per_s",
    "memory_utilization_ratio": "utilization_ratio",
    "memory_free_bytes": "memory_used_bytes",
    "graphics_processes_count": "compute_processes_count",
    "memory_own_bytes": "foreign_processes_count",
    "memory_others_bytes": "foreign_processes_count",
}
"""Values that need no mention where another one is missing."""


def device_line(device: Device) -> str:
    """What matters of one GPU, in one line: how busy, how full, how hot, what held it back, what is not known."""
    parts = [part for piece in _PIECES if (part := piece(device))]
    missing = _missing(device)
    if missing:
        parts.append(f"not measured: {', '.join(missing)}")
    return f"{device_name(device)} · {_samples(device)}: {' · '.join(parts)}"


def throttle_table(report: Report) -> Table:
    """What held the clocks of each GPU down, and how often."""
    return Table.of(
        "Clock limits",
        [(device, share) for device in report.devices for share in device.throttle or ()],
        Column("GPU", lambda row: device_name(row[0])),
        Column("reason", lambda row: _reason(row[1]), hover=lambda row: TERMS.get(row[1].reason, "")),
        Column("samples", lambda row: row[1].ratio, PERCENT, help="of all samples during training"),
        Column("busy samples", lambda row: row[1].busy_ratio, PERCENT, help="of those with at least 10 % utilization"),
        absent="No clock limit was active, or the driver does not report them.",
    )


def fact_table(report: Report) -> Table:
    """What each GPU is, what it took, and how often its driver renews what it reports."""
    return Table.of(
        "GPU facts",
        [(device, *fact) for device in report.devices for fact in _facts(device)],
        Column("GPU", lambda row: device_name(row[0])),
        Column("what", lambda row: row[1], NAME),
        Column("value", lambda row: plain.name(row[2], 60), FIGURE),
        absent="The driver reports no facts about the GPUs.",
    )


def kernel_table(report: Report) -> Table:
    """Kernels of all steps, most time first."""
    found = report.kernels
    title = "Kernels of every step"
    if found is not None:
        title += f": {numbers.significant(found.kernels_per_step)} a step, {numbers.count(found.steps)} steps"
        title += f", {numbers.count(found.lost)} lost" if found.lost else ""
    return Table.of(
        title,
        () if found is None else found.kernels,
        short_names.column(_KERNEL_CELLS),
        bar(lambda row: row.share, "backward"),
        Column("share", lambda row: row.share, PERCENT, help="of the time of all kernels"),
        Column("calls", lambda row: row.calls_per_step, SIGNIFICANT, help="a step"),
        Column("median", lambda row: row.median_us, US, help="its sum in a step in which it ran"),
        Column("p95", lambda row: row.p95_us, US),
        Column("max", lambda row: row.max_us, US),
        Column(
            "in batch",
            lambda row: row.max_batch,
            COUNT,
            help="during which it took longest; the host may be some steps ahead",
        ),
        absent="Kernels of every step were not recorded.",
        limit=_KERNELS,
    )


def error_table(report: Report) -> Table:
    """Error counters at their first and last reading."""
    return Table.of(
        "GPU error counters",
        [(device, counter) for device in report.devices for counter in device.errors],
        Column("GPU", lambda row: device_name(row[0])),
        Column("counter", lambda row: _error_words(row[1])),
        Column("at the start", lambda row: row[1].first, SIGNIFICANT),
        Column("at the end", lambda row: row[1].last, SIGNIFICANT),
        absent="No error counter was read.",
    )


def more_tables(report: Report) -> tuple[Table, ...]:
    """The tables that have rows."""
    tables = kernel_table(report), throttle_table(report), error_table(report), fact_table(report)
    return tuple(table for table in tables if table.rows)


def _samples(device: Device) -> str:
    if device.distinct_samples is None or device.distinct_samples == device.samples:
        return f"{device.samples} samples, medians"
    return f"{device.samples} samples ({device.distinct_samples} distinct), medians"


def _utilization(device: Device) -> str:
    found = device.values.get("utilization_ratio")
    if found is None:
        return ""
    shown = f"utilization {numbers.exact_percent(found.median)} (p95 {numbers.exact_percent(found.p95)})"
    samples = device.samples if device.distinct_samples is None else device.distinct_samples
    return f"{shown}, {_utilization_word(found.median)}" if samples >= MIN_SAMPLES else shown


def _utilization_word(ratio: float) -> str:
    """A first sorting, as the method has it: what kernels do while they run is another question."""
    if ratio < LOW_UTILIZATION_RATIO:
        return "often idle"
    return "partly idle" if ratio <= HIGH_UTILIZATION_RATIO else "nearly always busy"


def _memory(device: Device) -> str:
    found, total = device.values.get("memory_used_bytes"), device.facts.memory_total_bytes
    if found is None:
        return ""
    return f"memory {numbers.size(found.max)}" + ("" if total is None else f" of {numbers.size(total)}")


def _others(device: Device) -> str:
    count, memory = device.values.get("foreign_processes_count"), device.values.get("memory_others_bytes")
    if count is None or count.max < 1:
        return ""
    plural = "es" if count.max > 1 else ""
    held = "" if memory is None else f" with {numbers.size(memory.max)}"
    return f"{numbers.significant(count.max)} other process{plural}{held}"


def _power(device: Device) -> str:
    found, limit = device.values.get("power_w"), device.values.get("power_limit_w")
    if found is None:
        return ""
    most = device.facts.power_limit_default_w if limit is None else limit.median
    return f"power {numbers.significant(found.median)}" + (
        " W" if most is None else f" of {numbers.significant(most)} W"
    )


def _temperature(device: Device) -> str:
    found, fan = device.values.get("temperature_c"), device.values.get("fan_ratio")
    if found is None:
        return ""
    return f"{numbers.significant(found.max)} °C at most" + (
        "" if fan is None else f" (fan {numbers.exact_percent(fan.max)})"
    )


def _activity(device: Device) -> str:
    words = {"sm_active_ratio": "SMs active", "tensor_active_ratio": "tensor cores", "dram_active_ratio": "DRAM"}
    known = [
        f"{word} {numbers.exact_percent(found.median)}"
        for name, word in words.items()
        if (found := device.values.get(name)) is not None
    ]
    return ", ".join(known)


def _clocks(device: Device) -> str:
    limits = [
        share
        for share in device.throttle or ()
        if share.reason not in NO_LIMIT and (share.busy_ratio or 0.0) >= MIN_THROTTLE_RATIO
    ]
    if not limits or device.busy is None:
        return ""
    clock, most = device.busy.sm_clock_median_mhz, device.facts.sm_clock_max_mhz
    shown = "clocks"
    if clock is not None:
        shown = f"SM clock {numbers.significant(clock)}"
        shown += " MHz" if most is None else f" of {numbers.significant(most)} MHz"
    reasons = ", ".join(f"{_reason(share)} in {numbers.exact_percent(share.busy_ratio)}" for share in limits)
    return f"{shown} throttled: {reasons} of busy samples"


def _reason(share: ThrottleShare) -> str:
    return WORDS.get(share.reason) or plain.name(share.reason)


def _pcie(device: Device) -> str:
    """A link that never was at its best: idle ones are slow to save power, so the best reading counts."""
    generation, width = device.values.get("pcie_generation"), device.values.get("pcie_width")
    most, widest = device.facts.pcie_generation_max, device.facts.pcie_width_max
    if generation is None or width is None or most is None or widest is None:
        return ""
    if generation.max >= most and width.max >= widest:
        return ""
    now = f"{numbers.significant(generation.max)} x{numbers.significant(width.max)}"
    return f"PCIe {now} of {numbers.significant(most)} x{numbers.significant(widest)}"


def _energy(device: Device) -> str:
    if device.energy is None:
        return ""
    total = device.energy.total_j
    shown = f"{numbers.significant(total / 1e3)} kJ" if total >= 1e3 else f"{numbers.significant(total)} J"
    return f"{shown}, {numbers.significant(device.energy.per_step_j)} J/step"


_ERROR_WORDS: Mapping[str, str] = {
    "ecc_corrected_count": "corrected ECC errors",
    "ecc_uncorrected_count": "uncorrected ECC errors",
    "remapped_rows_count": "remapped rows of memory",
    "retired_pages_count": "retired pages of memory",
    "memory_repair_pending_count": "memory repairs pending a reset",
    "nvlink_replay_count": "NVLink replays",
    "nvlink_recovery_count": "NVLink recoveries",
    "nvlink_crc_count": "NVLink CRC errors",
}


def _error_words(counter: ErrorCounter) -> str:
    return _ERROR_WORDS.get(counter.name) or plain.name(numbers.label(counter.name))


def _errors(device: Device) -> str:
    risen = [
        f"{_error_words(counter)} +{numbers.significant(counter.last - counter.first)}"
        for counter in device.errors
        if counter.last > counter.first
    ]
    return ", ".join((*map(xid_words, dict.fromkeys(device.xids)), *risen))


_PIECES: tuple[Callable[[Device], str], ...] = (
    _utilization,
    _activity,
    _memory,
    _others,
    _power,
    _temperature,
    _clocks,
    _pcie,
    _energy,
    _errors,
)


def _missing(device: Device) -> list[str]:
    names = {name for name, values in device.values.items() if values is None}
    if "compute_processes_count" in names:
        names.discard("foreign_processes_count")
        names -= {"memory_own_bytes", "memory_others_bytes"}
    if not device.facts.fans_count:
        names.discard("fan_ratio")
    if not device.facts.nvlink_active_count:
        names -= {"nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"}
    shown = [name for name in device.values if name in names and _TOGETHER.get(name) not in names]
    return [_MISSING.get(name) or plain.name(numbers.label(name)) for name in shown]


def _rates(device: Device) -> list[tuple[str, float | None]]:
    """What its links and its memory can do, in bytes per second."""
    facts = device.facts
    now = [None if (found := device.values.get(f"pcie_{of}")) is None else found.max for of in ("generation", "width")]
    return [
        ("PCIe link at most, each way", facts.pcie_bytes_per_s),
        ("PCIe link in this run, each way", pcie_bytes_per_s(*now)),
        ("NVLinks together, each way", facts.nvlink_bytes_per_s),
        ("memory bandwidth by bus and clock", facts.memory_bytes_per_s),
    ]


def _facts(device: Device) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in msgspec.structs.asdict(device.facts).items():
        if value is None:
            continue
        if isinstance(value, bool):
            shown = "on" if value else "off"
        elif isinstance(value, int) and name.endswith("_count"):
            shown = numbers.count(value)
        elif isinstance(value, (int, float)):
            shown = numbers.quantity(name, float(value))
        else:
            shown = str(value)
        rows.append((numbers.label(name), shown))
    rows += [(what, f"{numbers.significant(rate / 1e9)} GB/s") for what, rate in _rates(device) if rate is not None]
    peaks = None if device.facts.mig else peaks_of(device.name)
    if peaks is not None:
        rows += [
            (
                f"peak in {dtype} ({peaks.source})",
                f"{numbers.significant(rate / 1e12)} {'TOP/s' if dtype == 'int8' else 'TFLOP/s'}",
            )
            for dtype, rate in peaks.flops_per_s.items()
        ]
    if device.distinct_samples is not None:
        rows.append(("distinct samples", f"{device.distinct_samples} of {device.samples}"))
    if device.longest_repeat_samples is not None:
        rows.append(("most equal samples in a row", str(device.longest_repeat_samples)))
    if device.busy is not None and device.busy.sm_clock_median_mhz is not None:
        rows.append(("median SM clock while busy", numbers.quantity("_mhz", device.busy.sm_clock_median_mhz)))
    if device.energy is not None:
        rows.append(("energy", numbers.quantity("_j", device.energy.total_j)))
        rows.append(("energy per step", numbers.quantity("_j", device.energy.per_step_j)))
        rows.append(("mean power by energy", numbers.quantity("_w", device.energy.mean_w)))
    return rows
