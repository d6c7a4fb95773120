"""A report's memory flows in, tables and the few lines that a terminal shows flow out."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_gpuprof.model.memory import (
    MEMORY_PHASES,
    DeviceMemory,
    Growth,
    HeldPieces,
    Memory,
    MemoryHistory,
    OutOfMemory,
)
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table

NO_DEVICE = "GPU memory: not measured (torch's caching allocator of no GPU was read)."
TERMINAL_HOLDERS = 5
LEAST_GROWTH_RATIO = 0.01
LEAST_GROWTH_STEPS = 1000
"""Caches fill in the first hundreds of steps: a line on the terminal is for what goes on."""
LARGEST_P = 0.01

_PHASE_TERMS = {
    "h2d": "the batch is on the device",
    "forward": "activations are held for the backward pass",
    "zero_grad": "Lightning clears the gradients of the step before here: after forward",
    "backward": "gradients are there, activations are not",
    "optimizer": "the weights are updated",
    "step": "the step is over: what grows here from step to step leaks",
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
        lines.append(("memory:", f"process rss peak {numbers.size(memory.process_rss_peak_bytes)}"))
    for device in memory.devices:
        lines.append((f"memory {plain.name(device.name)}:", _device_line(device, memory)))
    lines += [
        ("growing:", f"{plain.name(row.what)} by {numbers.size(row.bytes_per_step)} a step") for row in _leaks(memory)
    ]
    if memory.out_of_memory is not None:
        lines.append(("out of memory:", _end_line(memory.out_of_memory)))
        lines += [("", f"- {text}") for text in _holders_at_end(memory.out_of_memory)]
    return lines or [("memory:", "not measured")]


def _device_line(device: DeviceMemory, memory: Memory) -> str:
    parts = [f"reserved peak {numbers.size(device.reserved_peak_bytes)}"]
    if device.total_bytes is not None:
        share = numbers.percent(device.peak_ratio)
        parts[0] += f" of {numbers.size(device.total_bytes)} ({share}), headroom {numbers.size(device.headroom_bytes)}"
    parts.append(f"allocated peak {numbers.size(device.allocated_peak_bytes)}")
    if device.peak_phase is not None:
        parts[-1] += f" in {device.peak_phase}"
    held = _held_by_kind(memory)
    if held:
        parts.append("held by " + ", ".join(f"{name} {numbers.size(count)}" for name, count in held if count))
    if device.activations_bytes is not None:
        parts.append(f"activations {numbers.size(device.activations_bytes)}")
    parts.append(f"fragmentation at the peak {numbers.percent(device.fragmentation_ratio)}")
    parts.append(f"retries {numbers.ABSENT if device.retries_count is None else device.retries_count}")
    return " · ".join(parts)


def _held_by_kind(memory: Memory) -> list[tuple[str, int]]:
    rows = [row for row in memory.held if row.device != "cpu"] if memory.devices else list(memory.held)
    if not rows:
        return []
    return [
        ("parameters", sum(row.parameters_bytes for row in rows)),
        ("gradients", sum(row.gradients_bytes or 0 for row in rows)),
        ("buffers", sum(row.buffers_bytes for row in rows)),
        ("optimizer state", sum(row.optimizer_state_bytes for row in rows)),
    ]


def _leaks(memory: Memory) -> list[Growth]:
    return [
        row
        for row in memory.growth
        if row.steps >= LEAST_GROWTH_STEPS
        and row.p_value < LARGEST_P
        and row.last_bytes - row.first_bytes > LEAST_GROWTH_RATIO * max(1.0, row.first_bytes)
    ]


def _end_line(end: OutOfMemory) -> str:
    where = f" in {plain.name(end.phase)}" if end.phase else ""
    place = f" at {plain.name(end.place)}" if end.place else ""
    parts = [f"step {end.global_step}, batch {end.batch}{where}{place}"]
    if end.requested_bytes is not None:
        parts.append(f"{numbers.size(end.requested_bytes)} were wanted")
    if end.device_free_bytes is not None:
        parts.append(f"{numbers.size(end.device_free_bytes)} free on the device")
    if end.reserved_bytes is not None:
        parts.append(f"{numbers.size(end.allocated_bytes)} allocated of {numbers.size(end.reserved_bytes)} reserved")
    if end.largest_free_bytes is not None:
        parts.append(
            f"{numbers.size(end.free_in_reserved_bytes)} of that free, the largest piece "
            f"{numbers.size(end.largest_free_bytes)}"
        )
    return " · ".join(parts)


def _holders_at_end(end: OutOfMemory) -> list[str]:
    return [f"{cells[0].text}: {cells[1].text}" for cells in _end_rows(end)[:TERMINAL_HOLDERS]]


def _end_rows(end: OutOfMemory) -> list[tuple[Cell, ...]]:
    if end.history is not None and end.history.at_failure:
        return [
            (Cell(text=plain.name(row.place)), Cell(text=numbers.size(row.held_bytes)), Cell(text=str(row.count)))
            for row in end.history.at_failure
        ]
    named = [
        (f"{kind} ({plain.name(row.dtype)}, {plain.name(row.device)})", count)
        for row in end.held
        for kind, count in (
            ("parameters", row.parameters_bytes),
            ("gradients", row.gradients_bytes or 0),
            ("buffers", row.buffers_bytes),
            ("optimizer state", row.optimizer_state_bytes),
        )
        if count
    ]
    if end.other_bytes is not None:
        named.append(("activations and everything else on the device", end.other_bytes))
    named.sort(key=lambda pair: -pair[1])
    return [(Cell(text=name), Cell(text=numbers.size(count)), Cell(text=numbers.ABSENT)) for name, count in named]


def _overview(memory: Memory) -> Table:
    rows: list[tuple[Cell, ...]] = []
    if memory.process_rss_peak_bytes is not None:
        rows.append((Cell(text="process rss peak"), Cell(text=numbers.size(memory.process_rss_peak_bytes))))
    for device in memory.devices:
        rows += [
            (Cell(text=f"{plain.name(device.name)} {text}", term=term), Cell(text=value))
            for text, value, term in (
                ("total", numbers.size(device.total_bytes), "the device's memory"),
                (
                    "reserved peak",
                    numbers.size(device.reserved_peak_bytes),
                    "most that torch had taken from it",
                ),
                ("of the total", numbers.percent(device.peak_ratio), "reserved peak over total"),
                (
                    "headroom",
                    numbers.size(device.headroom_bytes),
                    "total less reserved peak; others' use is in it",
                ),
                ("allocated peak", numbers.size(device.allocated_peak_bytes), "most that tensors held at one time"),
                ("peak in", device.peak_phase or numbers.ABSENT, "phase in which the run's peak was reached"),
                (
                    "activations",
                    numbers.size(device.activations_bytes),
                    "allocated at forward's end beside model, optimizer and live gradients",
                ),
                (
                    "fragmentation at the peak",
                    numbers.percent(device.fragmentation_ratio),
                    "free pieces of blocks that are partly in use, of the reserved bytes",
                ),
                ("retries", _number(device.retries_count), "allocations that first gave cached memory back"),
                ("cudaMalloc in steady steps", _per(device.device_allocs_steady_count, device.steady_steps), ""),
                ("cudaFree in steady steps", _per(device.device_frees_steady_count, device.steady_steps), ""),
            )
        ]
    if rows and not memory.devices:
        rows.append((Cell(text="GPU memory"), Cell(text="not measured")))
    return Table(
        title="Memory",
        columns=(Column(title="what"), Column(title="value", numeric=True)),
        rows=tuple(rows),
        absent=f"Memory: not measured. {NO_DEVICE}",
    )


def _number(value: int | None) -> str:
    return numbers.ABSENT if value is None else numbers.count(value)


def _per(value: int | None, steps: int | None) -> str:
    return numbers.ABSENT if value is None or not steps else f"{numbers.count(value)} in {numbers.count(steps)} steps"


def _phases(device: DeviceMemory) -> Table:
    most = max((row.allocated_bytes for row in device.phases), default=0.0)
    rows = tuple(
        (
            Cell(text=row.phase, term=_PHASE_TERMS[row.phase]),
            Cell(text="", ratio=row.allocated_bytes / most if most else 0.0, key=row.phase),
            Cell(text=numbers.size(row.allocated_bytes)),
            Cell(text=numbers.size(row.growth_bytes)),
            Cell(text=numbers.size(row.reserved_bytes)),
            Cell(text=numbers.size(row.inactive_split_bytes)),
            Cell(text=numbers.size(row.peak_rise_bytes)),
            Cell(text=numbers.count(row.samples)),
        )
        for row in sorted(device.phases, key=lambda row: MEMORY_PHASES.index(row.phase))
    )
    return Table(
        title=f"Memory of {plain.name(device.name)} at the phases' ends",
        columns=(
            Column(title="phase"),
            Column(title="", bar=True),
            Column(title="allocated", term="by tensors; median over sampled steps", numeric=True),
            Column(title="grows by", term="over the end of the phase before", numeric=True),
            Column(title="reserved", term="taken from the device by torch", numeric=True),
            Column(title="inactive split", term="free pieces of blocks that are partly in use", numeric=True),
            Column(title="peak rises by", term="the run's peak, in the first steps", numeric=True),
            Column(title="samples", numeric=True),
        ),
        rows=rows,
        absent="No phase's end was read.",
    )


def _held(memory: Memory) -> Table:
    rows = tuple(
        (
            Cell(text=plain.name(row.device)),
            Cell(text=plain.name(row.dtype)),
            Cell(text=numbers.size(row.parameters_bytes)),
            Cell(text=numbers.size(row.gradients_bytes)),
            Cell(text=numbers.size(row.buffers_bytes)),
            Cell(text=numbers.size(row.optimizer_state_bytes)),
            Cell(text=numbers.size(row.total_bytes)),
        )
        for row in memory.held
    )
    return Table(
        title="What model and optimizers hold",
        columns=(
            Column(title="device"),
            Column(title="dtype"),
            Column(title="parameters", term="exact bytes of their storages; shared ones count once", numeric=True),
            Column(title="gradients", numeric=True),
            Column(title="buffers", numeric=True),
            Column(title="optimizer state", numeric=True),
            Column(title="all", numeric=True),
        ),
        rows=rows,
        absent="What model and optimizers hold was not counted.",
    )


def _growth(growth: tuple[Growth, ...]) -> Table:
    rows = tuple(
        (
            Cell(text=plain.name(row.what)),
            Cell(text=numbers.size(row.first_bytes)),
            Cell(text=numbers.size(row.last_bytes)),
            Cell(text=f"{numbers.size(row.bytes_per_step)}/step"),
            Cell(text=numbers.significant(row.p_value)),
            Cell(text=numbers.count(row.steps)),
        )
        for row in growth
    )
    return Table(
        title="Growth of memory",
        columns=(
            Column(title="what"),
            Column(title="at first", term="after warm-up, on the line of that slope", numeric=True),
            Column(title="at last", numeric=True),
            Column(title="slope", term="median of the slopes between samples (Theil, Sen)", numeric=True),
            Column(title="p", term="chance of such a trend without growth (Mann, Kendall)", numeric=True),
            Column(title="steps", numeric=True),
        ),
        rows=rows,
        absent="Too few samples to tell growth.",
    )


_HOLDER_COLUMNS = (
    Column(title="held by", term="innermost source line of the user's code that allocated it"),
    Column(title="bytes", numeric=True),
    Column(title="pieces", numeric=True),
)


def _history(history: MemoryHistory) -> list[Table]:
    steps = f"{history.start_step} to {history.stop_step}"
    tables = [
        Table(
            title=f"What held the memory at its peak of {numbers.size(history.peak_bytes)} in steps {steps}",
            columns=_HOLDER_COLUMNS,
            rows=tuple(
                (Cell(text=plain.name(row.place)), Cell(text=numbers.size(row.held_bytes)), Cell(text=str(row.count)))
                for row in history.at_peak
            ),
            absent=f"No memory history in steps {steps}: {plain.sentence(history.problem) or 'nothing was held'}.",
        )
    ]
    if history.peaks_by_phase:
        tables.append(
            Table(
                title=f"Peak of each phase in steps {steps}",
                columns=(Column(title="phase"), Column(title="peak", numeric=True)),
                rows=tuple(
                    (Cell(text=plain.name(phase)), Cell(text=numbers.size(peak)))
                    for phase, peak in history.peaks_by_phase.items()
                ),
                absent="",
            )
        )
    return tables


def _out_of_memory(end: OutOfMemory) -> list[Table]:
    facts = [
        ("message", plain.sentence(end.message)),
        ("where", _end_line(end).partition(" · ")[0]),
        ("wanted", numbers.size(end.requested_bytes)),
        ("free on the device", numbers.size(end.device_free_bytes)),
        ("allocated", numbers.size(end.allocated_bytes)),
        ("reserved", numbers.size(end.reserved_bytes)),
        ("free in what is reserved", numbers.size(end.free_in_reserved_bytes)),
        ("largest piece of it", numbers.size(end.largest_free_bytes)),
        ("retries", _number(end.retries_count)),
    ]
    if end.history_absent:
        facts.append(("by source line", plain.sentence(end.history_absent)))
    if end.snapshot_file:
        facts.append(("snapshot, for pytorch.org/memory_viz", plain.name(end.snapshot_file)))
    return [
        Table(
            title="Out of memory",
            columns=(Column(title="what"), Column(title="value")),
            rows=tuple((Cell(text=name), Cell(text=value)) for name, value in facts),
            absent="",
        ),
        Table(
            title="What held the memory then",
            columns=_HOLDER_COLUMNS,
            rows=tuple(_end_rows(end)),
            absent="What held the memory then is not known.",
        ),
        *([_pieces(end.pieces)] if end.pieces else []),
    ]


def _pieces(pieces: Sequence[HeldPieces]) -> Table:
    return Table(
        title="Allocated pieces by size then",
        columns=(
            Column(title="size of each", numeric=True),
            Column(title="pieces", numeric=True),
            Column(title="together", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=numbers.size(one.size_bytes)),
                Cell(text=numbers.count(one.count)),
                Cell(text=numbers.size(one.size_bytes * one.count)),
            )
            for one in pieces
        ),
        absent="",
    )
