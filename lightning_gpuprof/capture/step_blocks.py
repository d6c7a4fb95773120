"""Packs the steps that the clock closed into blocks of the journal."""

import struct
from collections.abc import Callable, Sequence

import numpy as np

from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import CPU_COLUMNS, CPU_UNIT_NS, STEP_COLUMNS, CpuBlock, StepBlock
from lightning_gpuprof.model.packing import Ints, pack


def step_blocks(steps: Sequence[ClosedStep], on_problem: Callable[[ClosedStep, ValueError], None]) -> list[StepBlock]:
    """Pack steps: one block if they follow each other without anything between them, else as many as it takes.

    Args:
        steps: At least one.
        on_problem: Called with a step that cannot be written: its slots do not sum to its step time, or a time is
            negative or longer than two years. The others are packed without it.

    Returns:
        In the order of the steps; empty if none can be written.
    """
    try:
        return [_step_block(steps)]
    except ValueError as error:
        if len(steps) == 1:
            on_problem(steps[0], error)
            return []
    middle = len(steps) // 2
    return step_blocks(steps[:middle], on_problem) + step_blocks(steps[middle:], on_problem)


def _step_block(steps: Sequence[ClosedStep]) -> StepBlock:
    first, last = steps[0], steps[-1]
    count = len(steps)
    rows = _table([s.charged for s in steps])
    if int(rows.sum()) != last.end_ns - first.start_ns:
        raise ValueError("its slots do not sum to its step time")
    optimizer_steps = np.array([s.global_step for s in steps], np.int64)
    completed = np.diff(optimizer_steps, prepend=optimizer_steps[:1])
    if last.batch - first.batch != count - 1 or last.epoch != first.epoch or (completed < 0).any():
        raise ValueError("steps that do not follow each other")
    table = np.empty((STEP_COLUMNS + rows.shape[1], count), np.int64)
    table[0] = completed
    table[1] = [s.flags for s in steps]
    table[STEP_COLUMNS:] = rows.T
    widths, data = pack(table)
    block = StepBlock(
        first_batch=first.batch,
        start_ns=first.start_ns,
        global_step=first.global_step,
        epoch=first.epoch,
        count=count,
        widths=widths,
        crc32=0,
        data=data,
    )
    block.crc32 = block.checksum()
    return block


def cpu_block(steps: Sequence[ClosedStep]) -> CpuBlock | None:
    """The CPU times of those of the steps that were sampled; None if none was.

    Raises:
        ValueError: A time is negative or longer than two years.
    """
    sampled = [s for s in steps if s.cpu_charged is not None]
    if not sampled:
        return None
    rows = _table([s.cpu_charged for s in sampled if s.cpu_charged is not None])
    batches = np.array([s.batch for s in sampled], np.int64)
    delay_ns = np.array([s.run_delay_ns for s in sampled], np.int64)
    delay_known = bool((delay_ns >= 0).all())
    table = np.zeros((CPU_COLUMNS + rows.shape[1], len(sampled)), np.int64)
    table[0] = np.diff(batches, prepend=batches[:1])
    if delay_known:
        table[1] = _in_units(delay_ns)
    table[CPU_COLUMNS:] = _in_units(rows.T)
    widths, data = pack(table)
    block = CpuBlock(
        first_batch=sampled[0].batch,
        count=len(sampled),
        delay_known=delay_known,
        widths=widths,
        crc32=0,
        data=data,
    )
    block.crc32 = block.checksum()
    return block


def _table(rows: Sequence[list[int]]) -> Ints:
    """Shape (steps, slots). ``struct`` reads lists of integers in less than half of numpy's time."""
    width = len(rows[-1])
    if len(rows[0]) != width:  # rows before a new slot are shorter
        rows = [row + [0] * (width - len(row)) for row in rows]
    row_bytes = struct.Struct(f"={width}q").pack
    try:
        return np.frombuffer(b"".join([row_bytes(*row) for row in rows]), np.int64).reshape(len(rows), width)
    except struct.error as error:
        raise ValueError(f"a time does not fit 64 bits: {error}") from error


def _in_units(times_ns: Ints) -> Ints:
    return (times_ns + CPU_UNIT_NS // 2) // CPU_UNIT_NS
