"""Reading a journal: exactly what was measured, and from a damaged one exactly what is whole."""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sample_journals import Ticking, header, write_journal, writer_to

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.step_clock import ClosedSegment, ClosedStep, StepClock
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import JOURNAL_VERSION, Notice, Segment, Slot, StepBlock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.jsonl"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_every_number_of_every_step_is_read_as_it_was_measured(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = int(rng.integers(1, 40))
    largest = 2.0 ** rng.uniform(0, 45, size=slots)
    written: list[ClosedStep] = []
    clock = StepClock(now=Ticking(), start_ns=0)
    for number in range(slots):
        clock.slot(f"s{number}", "forward")
    now = batch = global_step = 0
    writer = writer_to(open_journal(path), clock)
    for epoch in range(12):
        for _ in range(int(rng.integers(1, 2000))):
            charged = [int(n) for n in rng.uniform(0, largest) * (rng.random(slots) < 0.7)]
            sampled = rng.random() < 0.3
            step = ClosedStep(
                batch,
                now,
                now + sum(charged),
                global_step,
                epoch,
                int(rng.integers(0, 32)),
                charged,
                [n // 2 for n in charged] if sampled else None,
                int(rng.integers(0, 10**10)) if sampled else -1,
            )
            written.append(step)
            clock.closed.append(step)
            batch += 1
            global_step += int(rng.integers(0, 3))
            now = step.end_ns
        clock.closed.append(ClosedSegment("epoch_gap", now, now + 7, epoch, [7]))
        now += 7
        if rng.random() < 0.5:
            writer.sync()
    writer.close()

    journal = read_journal(path)
    steps = journal.steps
    assert journal.dropped_lines == 0
    assert steps.batch.tolist() == [s.batch for s in written]
    assert steps.start_ns.tolist() == [s.start_ns for s in written]
    assert steps.period_ns.tolist() == [s.end_ns - s.start_ns for s in written]
    assert steps.global_step.tolist() == [s.global_step for s in written]
    assert steps.epoch.tolist() == [s.epoch for s in written]
    assert steps.flags.tolist() == [s.flags for s in written]
    zeros = np.zeros(len(steps), np.int64)
    for slot in range(slots):
        assert steps.charged.get(slot, zeros).tolist() == [s.charged[slot] for s in written]

    cpu = journal.cpu
    sampled_steps = [s for s in written if s.cpu_charged is not None]
    assert cpu.batch.tolist() == [s.batch for s in sampled_steps]
    assert np.abs(cpu.run_delay_ns - [s.run_delay_ns for s in sampled_steps]).max() <= 500
    for slot in range(slots):
        measured = [s.cpu_charged[slot] for s in sampled_steps if s.cpu_charged is not None]
        assert np.abs(cpu.charged.get(slot, np.zeros(len(measured), np.int64)) - measured).max() <= 500


def test_a_journal_cut_anywhere_is_read_as_far_as_it_is_whole(path: Path) -> None:
    write_journal(path, 40)
    data = path.read_bytes()
    first_line = data.index(b"\n")
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        if cut < first_line:
            with pytest.raises(
                JournalError, match="not a gpuprof journal" if cut else "empty. The run has not written"
            ):
                read_journal(path)
        else:
            journal = read_journal(path)
            assert len(journal.steps) in (0, 40)
            assert journal.dropped_lines <= 1


def test_a_run_that_goes_on_is_read_as_far_as_it_is_written(path: Path) -> None:
    clock = StepClock(now=Ticking(), start_ns=0)
    writer = writer_to(open_journal(path), clock)
    clock.begin_training(-1, 0)
    clock.begin_epoch(0, -1)
    for number in range(1, 5):
        for _ in range(50):
            clock.begin_step()
        writer.sync()
        journal = read_journal(path)
        assert len(journal.steps) == 50 * number - 1
        assert journal.footer is None
        assert journal.dropped_lines == 0
    writer.close()


def test_foreign_lines_are_counted_and_left_out(path: Path) -> None:
    write_journal(path, 10)
    data = path.read_bytes().split(b"\n")
    foreign = [b'{"k":"future","x":1}', b"garbage \xff", b"null", b'{"k":"steps"}', data[0]]
    path.write_bytes(b"\n".join([data[0], *foreign, *data[1:]]))
    journal = read_journal(path)
    assert len(journal.steps) == 10
    assert journal.dropped_lines == len(foreign)


def test_damaged_bytes_never_raise_and_lost_steps_are_told(path: Path) -> None:
    write_journal(path, 300)
    whole = read_journal(path)
    data = path.read_bytes()
    body = data.index(b"\n") + 1
    chance = random.Random(5)
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(body, len(broken))
            if chance.random() < 0.5:
                broken[at] = chance.randrange(256)
            else:
                del broken[at : at + chance.randint(1, 40)]
        path.write_bytes(broken)
        journal = read_journal(path)
        metrics = analyze_metrics.build(journal, [])
        assert sum(metrics.wall.parts.values()) == pytest.approx(metrics.wall.total_s)
        if len(journal.steps):
            assert (journal.steps.start_ns == whole.steps.start_ns).all()
            assert (journal.steps.period_ns == whole.steps.period_ns).all()
        else:
            assert journal.dropped_lines > 0
            assert not metrics.validity.ok


def test_a_changed_digit_of_a_block_is_found(path: Path) -> None:
    write_journal(path, 300)
    lines = path.read_bytes().split(b"\n")
    (at,) = (n for n, line in enumerate(lines) if b'"k":"steps"' in line)
    block = msgspec.json.decode(lines[at], type=StepBlock)
    changed = [
        msgspec.structs.replace(block, first_batch=block.first_batch + 1),
        msgspec.structs.replace(block, start_ns=block.start_ns + 1),
        msgspec.structs.replace(block, start_ns=1 << 63),
        msgspec.structs.replace(block, global_step=block.global_step + 1),
        msgspec.structs.replace(block, epoch=-1),
        msgspec.structs.replace(block, count=block.count - 1),
        msgspec.structs.replace(block, widths=block.widths[::-1]),
        msgspec.structs.replace(block, data=block.data[:-1]),
        msgspec.structs.replace(block, data=b""),
    ]
    impossible = [
        msgspec.structs.replace(block, count=0),
        msgspec.structs.replace(block, count=1 << 40),
        msgspec.structs.replace(block, widths="99"),
        msgspec.structs.replace(block, start_ns=1 << 63),
        msgspec.structs.replace(block, first_batch=-1),
    ]
    for damaged in impossible:
        damaged.crc32 = damaged.checksum()
    for damaged in [*changed, *impossible]:
        path.write_bytes(b"\n".join([*lines[:at], msgspec.json.encode(damaged), *lines[at + 1 :]]))
        journal = read_journal(path)
        assert len(journal.steps) == 0
        assert journal.dropped_lines == 1


@pytest.mark.parametrize("damage", ["garbage", "missing", "another number", "a number of its own"])
def test_a_slot_whose_line_is_damaged_loses_its_name_but_not_its_time(path: Path, damage: str) -> None:
    write_journal(path, 50)
    whole = read_journal(path)
    lines = path.read_bytes().split(b"\n")
    (at,) = (n for n, line in enumerate(lines) if b'"k":"slot"' in line and b'"id":3,' in line)
    other = next(slot for slot in whole.steps.charged if slot != 3)
    lines[at] = {
        "garbage": b"\xff" + lines[at],
        "missing": b"",
        "another number": lines[at].replace(b'"id":3,', b'"id":%d,' % other),
        "a number of its own": lines[at].replace(b'"id":3,', b'"id":31,'),
    }[damage]
    path.write_bytes(b"\n".join(lines))
    journal = read_journal(path)
    lost = {3, other} if damage == "another number" else {3}
    assert {slot.id for slot in journal.slots if slot.action == "lost" and slot.id in whole.steps.charged} == lost
    assert journal.lost_slots == len(lost)
    assert journal.dropped_lines >= 1
    assert (journal.steps.period_ns == whole.steps.period_ns).all()
    assert journal.segments == whole.segments
    for slot, column in whole.steps.charged.items():
        assert (journal.steps.charged[slot] == column).all()
        assert journal.slots[slot] == (whole.slots[slot] if slot not in lost else lost_slot(slot))
    metrics = analyze_metrics.build(journal, [])
    assert metrics.wall.parts["unexplained"] == analyze_metrics.build(whole, []).wall.parts["unexplained"]
    assert sum("lost: their time is shown as loop" in caveat for caveat in metrics.validity.caveats) == 1


def lost_slot(number: int) -> Slot:
    return Slot(id=number, action="lost", phase="loop")


def test_the_last_slot_may_lose_its_name_too_and_an_impossible_one_loses_its_segment(path: Path) -> None:
    encode = msgspec.json.encode
    records = [
        Slot(id=0, action="other", phase="loop"),
        Segment(kind="setup", start_ns=0, end_ns=5, charged={1: 5}),
        Segment(kind="setup", start_ns=5, end_ns=10, charged={2: 5}),
    ]
    head = header()
    path.write_bytes(b"\n".join([encode(head), encode(records[0]), b'{"k":"slot', *map(encode, records[1:])]))
    journal = read_journal(path)
    assert [segment.charged for segment in journal.segments] == [{1: 5}]
    assert journal.slots[1] == lost_slot(1)
    assert (journal.dropped_lines, journal.lost_slots) == (2, 1)


@pytest.mark.parametrize(
    ("version", "way_out"),
    [
        (JOURNAL_VERSION + 1, "Update lightning-gpuprof"),
        (1, "no longer read. Make its report with lightning-gpuprof 0"),
    ],
)
def test_a_journal_of_another_version_is_refused_with_the_way_out(path: Path, version: int, way_out: str) -> None:
    encode = msgspec.json.encode
    path.write_bytes(encode(header(version=version)) + b"\n" + encode(Notice(part="p", message="m")) + b"\n")
    with pytest.raises(JournalError, match=way_out):
        read_journal(path)


@pytest.mark.parametrize("epoch_ns", [-1, 10**19 - 1, 9 * 10**18])
def test_a_run_that_began_at_no_time_is_damaged(path: Path, epoch_ns: int) -> None:
    damaged = header()
    damaged.epoch_ns = epoch_ns
    path.write_bytes(msgspec.json.encode(damaged) + b"\n")
    with pytest.raises(JournalError, match=r"damaged|not a header"):
        read_journal(path)


def test_a_header_of_a_newer_version_need_not_have_the_fields_of_this_one(path: Path) -> None:
    path.write_bytes(b'{"k":"header","version":99,"gpuprof":"9.1","era":"later"}\n')
    with pytest.raises(JournalError, match=r"written by gpuprof 9\.1 in journal version 99"):
        read_journal(path)
