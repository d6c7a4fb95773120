"""The memory tables and the few lines that a terminal shows."""

from collections.abc import Iterable, Sequence

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.memory import (
    MEMORY_PHASES,
    DeviceMemory,
    Growth,
    Held,
    HeldPieces,
    Memory,
    MemoryHistory,
    OutOfMemory,
)
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, NAME, SIZE, TEXT, Column, Table, bar, facts

NO_DEVICE = "GPU memory: not measured (torch's caching allocator of no GPU was read)."
TERMINAL_HOLDERS = 5
MIN_GROWTH_RATIO = 0.01
MIN_GROWTH_STEPS = 1000
"""Caches fill in the first hundreds of steps: a line on the terminal is for what goes on."""
LARGEST_P = 0.01

_PHASE_TERMS = {
    "h2d": "the batch is on the device",
    "forward": "activations are held for the backward pass",
    "zero_grad": "Lightning clears the previous step's gradients here, after forward",
    "backward": "gradients exist, activations are freed",
    "optimizer": "the weights are updated",
    "step": "after the step: growth from step to step is a leak",
}


def memory_tables(memory: Memory) -> list[Table]:
    """All tables, those that have nothing to show left out; at least one."""
    tables = [_overview(memory)]
    if memory.out_of_memory is not None:
        tables += _out_of_memory(memory.out_of_memory)
    tables += [_phases(device) for device in memory.devices]
    if memory.held:
        tables.append(_held(memory))
    tables += [table for history in memory.histories for table in _history(history)]
    if memory.growth:
        tables.append(_growth(memory.growth))
    return tables


def memory_lines(memory: Memory) -> list[tuple[str, str]]:
    """Label and text of the lines that a terminal shows."""
    lines: list[tuple[str, str]] = []
    if memory.process_rss_peak_bytes is not None:
        lines.append(("memory:", f"process RSS peak {numbers.size(memory.process_rss_peak_bytes)}"))
    for device in memory.devices:
        lines.append((f"memory {plain.name(device.name)}:", _device_line(device, memory)))
    lines += [
        ("growing:", f"{plain.name(row.what)} by {numbers.size(row.bytes_per_step)} per step") for row in _leaks(memory)
    ]
    if memory.out_of_memory is not None:
        lines.append(("out of memory:", end_line(memory.out_of_memory)))
        holders = _end_rows(memory.out_of_memory)[:TERMINAL_HOLDERS]
        lines += [("", f"- {plain.name(who)}: {numbers.size(held)}") for who, held, _ in holders]
    return lines or [("memory:", "not measured")]


def _device_line(device: DeviceMemory, memory: Memory) -> str:
    parts = [f"reserved peak {numbers.size(device.reserved_peak_bytes)}"]
    if device.total_bytes is not None:
        share = numbers.exact_percent(device.peak_ratio)
        parts[0] += f" of {numbers.size(device.total_bytes)} ({share}), headroom {numbers.size(device.headroom_bytes)}"
    parts.append(f"allocated peak {numbers.size(device.allocated_peak_bytes)}")
    if device.peak_phase is not None:
        parts[-1] += f" in {words_of(device.peak_phase)}"
    held = _held_by_kind(memory)
    if held:
        parts.append("held by " + ", ".join(f"{name} {numbers.size(count)}" for name, count in held if count))
    if device.activations_bytes is not None:
        parts.append(f"activations {numbers.size(device.activations_bytes)}")
    parts.append(f"fragmentation at the peak {numbers.exact_percent(device.fragmentation_ratio)}")
    parts.append(f"retries {numbers.ABSENT if device.retries_count is None else device.retries_count}")
    return " · ".join(parts)


def _held_by_kind(memory: Memory) -> list[tuple[str, int]]:
    rows = [row for row in memory.held if row.device != "cpu"] if memory.devices else list(memory.held)
    return [(kind[0][0], sum(count for _, count in kind)) for kind in zip(*map(_kinds, rows), strict=True)]


def _kinds(row: Held) -> tuple[tuple[str, int], ...]:
    """What is held, and how many bytes of it."""
    return (
        ("parameters", row.parameters_bytes),
        ("gradients", row.gradients_bytes or 0),
        ("buffers", row.buffers_bytes),
        ("optimizer state", row.optimizer_state_bytes),
    )


def _leaks(memory: Memory) -> list[Growth]:
    return [
        row
        for row in memory.growth
        if row.steps >= MIN_GROWTH_STEPS
        and row.p_value < LARGEST_P
        and row.last_bytes - row.first_bytes > MIN_GROWTH_RATIO * max(1.0, row.first_bytes)
    ]


def end_line(end: OutOfMemory) -> str:
    """Where memory ran out, what was asked for and what was there."""
    where = "".join(f", in {plain.name(one)}" for one in (words_of(end.phase), in_words(end.place)) if one)
    parts = [f"step {end.global_step}, batch {end.batch}{where}"]
    if end.requested_bytes is not None:
        parts.append(f"{numbers.size(end.requested_bytes)} requested")
    if end.device_free_bytes is not None:
        parts.append(f"{numbers.size(end.device_free_bytes)} free on the device")
    if end.reserved_bytes is not None:
        parts.append(f"{numbers.size(end.allocated_bytes)} allocated of {numbers.size(end.reserved_bytes)} reserved")
    if end.largest_free_bytes is not None:
        parts.append(
            f"{numbers.size(end.free_in_reserved_bytes)} of that free, the largest block "
            f"{numbers.size(end.largest_free_bytes)}"
        )
    return " · ".join(parts)


def _end_rows(end: OutOfMemory) -> list[tuple[str, int, int | None]]:
    if end.history is not None and end.history.at_failure:
        return [(row.place, row.held_bytes, row.count) for row in end.history.at_failure]
    named = [
        (f"{kind} ({plain.name(row.dtype)}, {plain.name(row.device)})", count)
        for row in end.held
        for kind, count in _kinds(row)
        if count
    ]
    if end.other_bytes is not None:
        named.append(("activations and everything else on the device", end.other_bytes))
    return [(name, count, None) for name, count in sorted(named, key=lambda pair: -pair[1])]


def _overview(memory: Memory) -> Table:
    size = numbers.size
    rows: list[tuple[str, ...]] = []
    if memory.process_rss_peak_bytes is not None:
        rows.append(("process RSS peak", size(memory.process_rss_peak_bytes)))
    for device in memory.devices:
        of_device = (
            ("total", size(device.total_bytes), "the device's memory"),
            ("reserved peak", size(device.reserved_peak_bytes), "most that torch reserved"),
            ("of the total", numbers.exact_percent(device.peak_ratio), "reserved peak over total"),
            ("headroom", size(device.headroom_bytes), "total less reserved peak, memory of other processes included"),
            ("allocated peak", size(device.allocated_peak_bytes), "most that tensors used at one time"),
            ("peak in", words_of(device.peak_phase or numbers.ABSENT), "phase in which the run peaked"),
            ("activations", size(device.activations_bytes), _ACTIVATIONS),
            ("fragmentation at the peak", numbers.exact_percent(device.fragmentation_ratio), _SPLIT),
            ("retries", _number(device.retries_count), "allocations for which torch had to free its cache first"),
            ("allocations per step", numbers.significant(device.allocations_per_step), "mostly from torch's cache"),
            ("cudaMalloc in steady steps", _per(device.device_allocs_steady_count, device.steady_steps)),
            ("cudaFree in steady steps", _per(device.device_frees_steady_count, device.steady_steps)),
        )
        rows += [(f"{plain.name(device.name)} {what}", *rest) for what, *rest in of_device]
    if rows and not memory.devices:
        rows.append(("GPU memory", "not measured"))
    return facts("Memory", rows, absent=f"Memory: not measured. {NO_DEVICE}")


_SPLIT = "free parts of blocks that are partly in use, as share of the reserved bytes"
_ACTIVATIONS = "allocated at the end of forward, besides model, optimizer and live gradients"


def _number(value: int | None) -> str:
    return numbers.ABSENT if value is None else numbers.count(value)


def _per(value: int | None, steps: int | None) -> str:
    return numbers.ABSENT if value is None or not steps else f"{numbers.count(value)} in {numbers.count(steps)} steps"


def _phases(device: DeviceMemory) -> Table:
    most = max((row.allocated_bytes for row in device.phases), default=0.0)
    return Table.of(
        f"Memory of {plain.name(device.name)} at the end of each phase",
        sorted(device.phases, key=lambda row: MEMORY_PHASES.index(row.phase)),
        Column("phase", lambda row: words_of(row.phase), hover=lambda row: _PHASE_TERMS[row.phase]),
        bar(lambda row: row.allocated_bytes / most if most else 0.0, lambda row: row.phase),
        Column("allocated", lambda row: row.allocated_bytes, SIZE, help="by tensors; median over sampled steps"),
        Column("growth", lambda row: row.growth_bytes, SIZE, help="since the end of the previous phase"),
        Column("reserved", lambda row: row.reserved_bytes, SIZE, help="taken from the device by torch"),
        Column(
            "inactive split",
            lambda row: row.inactive_split_bytes,
            SIZE,
            help="free parts of blocks that are partly in use",
        ),
        Column("rise of the peak", lambda row: row.peak_rise_bytes, SIZE, help="the run's peak, in the first steps"),
        Column("samples", lambda row: row.samples, COUNT),
        absent="No phase's end was read.",
    )


def _held(memory: Memory) -> Table:
    return Table.of(
        "What model and optimizers hold",
        memory.held,
        Column("device", lambda row: row.device, NAME),
        Column("dtype", lambda row: row.dtype, NAME),
        Column(
            "parameters",
            lambda row: row.parameters_bytes,
            SIZE,
            help="exact bytes of their storages; shared ones count once",
        ),
        Column("gradients", lambda row: row.gradients_bytes, SIZE),
        Column("buffers", lambda row: row.buffers_bytes, SIZE),
        Column("optimizer state", lambda row: row.optimizer_state_bytes, SIZE),
        Column("all", lambda row: row.total_bytes, SIZE),
        absent="What model and optimizers hold was not counted.",
    )


def _growth(growth: tuple[Growth, ...]) -> Table:
    return Table.of(
        "Growth of memory",
        growth,
        Column("what", lambda row: row.what, NAME),
        Column("start", lambda row: row.first_bytes, SIZE, help="after warm-up, on the line of that slope"),
        Column("end", lambda row: row.last_bytes, SIZE),
        Column(
            "slope",
            lambda row: f"{numbers.size(row.bytes_per_step)}/step",
            FIGURE,
            help="median slope between samples (Theil-Sen)",
        ),
        Column(
            "trend",
            lambda row: "none" if row.p_value >= LARGEST_P else "rises" if row.bytes_per_step > 0 else "falls",
            help=f"Mann-Kendall test, p below {LARGEST_P}",
        ),
        Column("steps", lambda row: row.steps, COUNT),
        absent="Too few samples for a trend.",
    )


def _history(history: MemoryHistory) -> list[Table]:
    steps = f"{history.start_step} to {history.stop_step}"
    tables = [
        _holders(
            f"What held the memory at its peak of {numbers.size(history.peak_bytes)} in steps {steps}",
            [(row.place, row.held_bytes, row.count) for row in history.at_peak],
            f"No memory history in steps {steps}: {plain.sentence(history.problem) or 'nothing was held'}.",
        )
    ]
    if history.peaks_by_phase:
        peaks = Table.of(
            f"Peak of each phase in steps {steps}",
            history.peaks_by_phase.items(),
            Column("phase", lambda row: words_of(row[0]), NAME),
            Column("peak", lambda row: row[1], SIZE),
        )
        tables.append(peaks)
    return tables


def _out_of_memory(end: OutOfMemory) -> list[Table]:
    rows = [
        ("message", plain.sentence(end.message)),
        ("where", end_line(end).partition(" · ")[0]),
        ("requested", numbers.size(end.requested_bytes)),
        ("free on the device", numbers.size(end.device_free_bytes)),
        ("allocated", numbers.size(end.allocated_bytes)),
        ("reserved", numbers.size(end.reserved_bytes)),
        ("free within the reserved memory", numbers.size(end.free_in_reserved_bytes)),
        ("largest free block in it", numbers.size(end.largest_free_bytes)),
        ("retries", _number(end.retries_count)),
    ]
    if end.history_absent:
        rows.append(("by source line", plain.sentence(end.history_absent)))
    if end.snapshot_file:
        rows.append(("snapshot, for pytorch.org/memory_viz", plain.name(end.snapshot_file)))
    return [
        facts("Out of memory", rows, absent="", value=TEXT),
        _holders("What held the memory then", _end_rows(end), "Which tensors held the memory is not known."),
        *([_pieces(end.pieces)] if end.pieces else []),
    ]


def _pieces(pieces: Sequence[HeldPieces]) -> Table:
    return Table.of(
        "Allocated blocks by size then",
        pieces,
        Column("size of each", lambda one: one.size_bytes, SIZE),
        Column("blocks", lambda one: one.count, COUNT),
        Column("together", lambda one: one.size_bytes * one.count, SIZE),
        absent="",
    )


def _holders(title: str, rows: Iterable[tuple[str, int, int | None]], absent: str) -> Table:
    return Table.of(
        title,
        rows,
        Column("held by", lambda row: row[0], NAME, help="innermost line of your code that allocated it"),
        Column("bytes", lambda row: row[1], SIZE),
        Column("blocks", lambda row: row[2], FIGURE),
        absent=absent,
    )
