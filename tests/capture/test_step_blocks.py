"""Steps in blocks: nothing of them is lost, and what does not follow goes into another block."""

from typing import Any

import numpy as np
import pytest

from lightning_gpuprof.capture.step_blocks import cpu_block, step_blocks
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import STEP_COLUMNS
from lightning_gpuprof.model.packing import unpack


def steps(count: int, *, slots: int = 3, **fields: Any) -> list[ClosedStep]:
    """Steps that follow each other; step n spends n ns in every slot."""
    found = []
    start = 100
    for number in range(count):
        charged = [number] * slots
        end = start + sum(charged)
        found.append(ClosedStep(number, start, end, number, 0, 0, charged, None, -1)._replace(**fields))
        start = end
    return found


def no_problem(step: ClosedStep, error: ValueError) -> None:
    raise AssertionError(f"{step}: {error}")


def test_steps_that_follow_each_other_are_one_block() -> None:
    (block,) = step_blocks(steps(1000), no_problem)
    assert (block.first_batch, block.start_ns, block.count) == (0, 100, 1000)
    assert block.widths == "10" + "222"
    assert block.crc32 == block.checksum()


def shifted(step: ClosedStep) -> ClosedStep:
    return step._replace(start_ns=step.start_ns + 5, end_ns=step.end_ns + 5)


@pytest.mark.parametrize(
    "change",
    [
        shifted,
        lambda step: step._replace(batch=step.batch + 1),
        lambda step: step._replace(epoch=1),
        lambda step: step._replace(global_step=0),
    ],
    ids=["a gap in time", "a batch left out", "another epoch", "optimizer steps begin anew"],
)
def test_what_does_not_follow_begins_another_block(change: Any) -> None:
    before = steps(40)
    after = [change(step) if change is not None else step for step in before[17:]]
    blocks = step_blocks([*before[:17], *after], no_problem)
    begins = np.cumsum([0] + [block.count for block in blocks])
    assert 17 in begins
    assert begins[-1] == 40
    starts = [step.start_ns for step in [*before[:17], *after]]
    assert [block.start_ns for block in blocks] == [starts[begin] for begin in begins[:-1]]
    assert len(blocks) < 40


def test_steps_before_a_new_slot_have_no_time_in_it() -> None:
    before = ClosedStep(0, 0, 7, 0, 0, 0, [7], None, -1)
    (block,) = step_blocks([before, ClosedStep(1, 7, 12, 1, 0, 0, [2, 3], None, -1)], no_problem)
    assert len(block.widths) == STEP_COLUMNS + 2


@pytest.mark.parametrize(
    "charged", [[1, 1, 1], [-3, 6, 51], [2**70, 54 - 2**70, 0], [54], [2**58, -(2**58), 54], [1.5, 2.5, 50]]
)
def test_a_step_that_cannot_be_is_reported_and_left_out(charged: list[int]) -> None:
    given = steps(40)
    given[18] = given[18]._replace(charged=charged)
    reported: list[int] = []
    blocks = step_blocks(given, lambda step, error: reported.append(step.batch))
    assert sum(block.count for block in blocks) + len(reported) == 40
    assert reported == ([] if charged == [54] else [18])


def sum_of(widths: str, rows: int, data: bytes) -> int:
    """All numbers of a packed table."""
    places = [256**place for place in range(8)]
    return sum(
        place * int(plane.sum(dtype=np.int64))
        for group in unpack(widths, rows, data)
        for place, plane in zip(places, group.planes, strict=False)
    )


def test_cpu_times_of_sampled_steps_are_in_a_block() -> None:
    sampled = [
        step._replace(cpu_charged=[4_000, 0, 999_499], run_delay_ns=1_600) for step in steps(10) if step.batch % 3 == 1
    ]
    block = cpu_block(sampled)
    assert (block.first_batch, block.count, block.delay_known) == (1, 3, True)
    assert block.widths == "11" + "102"
    unknown = cpu_block([*sampled[:2], sampled[2]._replace(run_delay_ns=-1)])
    assert not unknown.delay_known


@pytest.mark.parametrize("ns", [2**31 - 501, 2**31 - 500, 2**31 - 1, 2**31, 2**40 + 499, 2**40 + 500])
def test_times_at_the_end_of_32_bits_are_kept(ns: int) -> None:
    given = [step._replace(charged=[ns], end_ns=step.batch * ns + ns, start_ns=step.batch * ns) for step in steps(3)]
    (block,) = step_blocks(given, no_problem)
    assert sum_of(block.widths, block.count, block.data) == 3 * ns + 2  # and an optimizer step in each but the first
    block = cpu_block([step._replace(cpu_charged=[ns], run_delay_ns=0) for step in given])
    assert sum_of(block.widths, block.count, block.data) == 3 * ((ns + 500) // 1000) + 2
