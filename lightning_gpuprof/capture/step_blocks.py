"""Packs the steps that the clock closed into blocks of the journal."""

import struct
from collections.abc import Callable, Sequence

import numpy as np

from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import CPU_UNIT_NS, STEP_COLUMNS, CpuBlock, StepBlock
from lightning_gpuprof.model.packing import Numbers, pack


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
    table = _table([(s.global_step, s.flags, s.charged) for s in steps])
    if int(table[STEP_COLUMNS:].sum(dtype=np.int64)) != last.end_ns - first.start_ns:
        raise ValueError("its slots do not sum to its step time")
    if last.batch - first.batch != count - 1 or last.epoch != first.epoch:
        raise ValueError("steps that do not follow each other")
    _make_differences(table[0])
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


def cpu_block(sampled: Sequence[ClosedStep]) -> CpuBlock:
    """The CPU times of at least one step, all of which were sampled.

    Raises:
        ValueError: A time is negative or longer than two years.
    """
    delay_known = all(s.run_delay_ns >= 0 for s in sampled)
    table = _table([(s.batch, s.run_delay_ns if delay_known else 0, s.cpu_charged or []) for s in sampled])
    _make_differences(table[0])
    table[1:] //= CPU_UNIT_NS // 2  # rounded, without a sum that 32 bits may not hold
    table[1:] += 1
    table[1:] //= 2
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


_Row = tuple[int, int, list[int]]


def _table(rows: Sequence[_Row]) -> Numbers:
    """Shape (columns, steps); 32 bits where these hold all numbers, which take half the time."""
    width = len(rows[-1][2])
    if len(rows[0][2]) != width:  # rows before a new slot are shorter
        rows = [(one, other, times + [0] * (width - len(times))) for one, other, times in rows]
    try:
        return _packed(rows, f"=2i{width}i", np.int32)
    except struct.error:
        pass
    try:
        return _packed(rows, f"=2q{width}q", np.int64)
    except struct.error as error:
        raise ValueError(f"a time does not fit 64 bits: {error}") from error


def _packed(rows: Sequence[_Row], row_format: str, kind: type[np.int32 | np.int64]) -> Numbers:
    """``struct`` reads lists of integers in less than half of numpy's time."""
    row_bytes = struct.Struct(row_format).pack
    whole = bytearray().join([row_bytes(one, other, *times) for one, other, times in rows])
    return np.ascontiguousarray(np.frombuffer(whole, kind).reshape(len(rows), -1).T)


def _make_differences(numbers: Numbers) -> None:
    """Each becomes what it is more than the one before, the first 0."""
    numbers[1:] -= numbers[:-1].copy()
    numbers[0] = 0
