"""The journal's file: written from a thread, readable at every byte, harmless when the disk is full."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal import Journal, read_journal
from lightning_gpuprof.capture import output_folder
from lightning_gpuprof.capture.journal_writer import JournalWriter, open_journal
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import JOURNAL_VERSION, Footer, Header, Notice


def header(version: int = JOURNAL_VERSION) -> Header:
    return Header(
        version=version,
        gpuprof="0",
        run_id="r",
        stage="fit",
        rank=0,
        world_size=1,
        host="h",
        pid=1,
        start_ns=0,
        epoch_ns=0,
    )


class Ticking:
    """A clock that moves by a given amount at each look."""

    def __init__(self, step: int = 10) -> None:
        self.t = 0
        self.step = step

    def __call__(self) -> int:
        self.t += self.step
        return self.t


def run_steps(clock: StepClock, steps: int) -> None:
    forward = clock.context(clock.slot("forward", "forward"))
    clock.begin_training(clock.counters()[0], 0)
    clock.begin_epoch(0, clock.counters()[0])
    for _ in range(steps):
        clock.begin_step()
        with forward:
            pass
    clock.end_epoch()


def written(path: Path, steps: int, thread: bool = False) -> Journal:
    clock = StepClock(now=Ticking(), cpu_now=Ticking(), start_ns=0)
    writer = JournalWriter(open_journal(path), clock, header=header(), on_failure=pytest.fail, flush_s=0.01)
    if thread:
        writer.start()
    run_steps(clock, steps)
    writer.post(Notice(part="p", message="m"))
    clock.open_segment(None)
    writer.close([Footer(end_ns=clock._now(), status="finished", overhead={})])
    return read_journal(path)


@pytest.mark.parametrize("thread", [False, True])
def test_what_is_written_is_read_back(tmp_path: Path, thread: bool) -> None:
    journal = written(tmp_path / "rank0.jsonl", 2500, thread)
    steps = journal.steps
    assert list(steps.batch) == list(range(2500))
    assert journal.dropped_lines == 0
    total = sum(column for column in steps.charged.values())
    assert (total == steps.period_ns).all()
    assert (steps.start_ns[1:] == steps.start_ns[:-1] + steps.period_ns[:-1]).all()
    assert journal.footer is not None
    assert [n.message for n in journal.notices] == ["m"]
    assert len(journal.cpu.batch) == 1


def test_a_journal_cut_anywhere_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    written(path, 40)
    data = path.read_bytes()
    first_line = data.index(b"\n")
    for cut in range(first_line, len(data), 37):
        path.write_bytes(data[:cut])
        journal = read_journal(path)
        assert len(journal.steps) in (0, 40)
        assert journal.dropped_lines <= 1
    path.write_bytes(data[: first_line // 2])
    with pytest.raises(JournalError, match="no journal"):
        read_journal(path)


def test_foreign_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    written(path, 10)
    data = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([data[0], b'{"k":"future","x":1}', b"garbage \xff", *data[1:]]))
    journal = read_journal(path)
    assert len(journal.steps) == 10
    assert journal.dropped_lines == 2


def test_damaged_bytes_never_raise_and_lost_steps_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    whole = written(path, 300)
    data = path.read_bytes()
    body = data.index(b"\n") + 1
    chance = random.Random(5)
    for _ in range(400):
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
        if len(journal.steps) < len(whole.steps):
            assert journal.dropped_lines > 0
            assert not metrics.validity.ok


def test_a_lost_slot_takes_its_blocks_with_it(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    written(path, 50)
    lines = path.read_bytes().split(b"\n")
    kept = [line for line in lines if b'"id":3,' not in line]
    assert len(kept) == len(lines) - 1
    path.write_bytes(b"\n".join(kept))
    journal = read_journal(path)
    assert len(journal.steps) == 0
    assert journal.dropped_lines >= 1


def test_a_newer_journal_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    clock = StepClock(now=Ticking())
    writer = JournalWriter(open_journal(path), clock, header=header(JOURNAL_VERSION + 1), on_failure=pytest.fail)
    writer.close()
    with pytest.raises(JournalError, match="Update lightning-gpuprof"):
        read_journal(path)


class FullDisk(io.RawIOBase):
    """Takes so many bytes and then fails as a full disk does."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, data: object) -> int:
        size = len(memoryview(cast(bytes, data)))
        if self.room < size:
            raise OSError(28, "No space left on device")
        self.room -= size
        return size


def test_a_full_disk_is_told_once_and_memory_stays_bounded() -> None:
    clock = StepClock(now=Ticking())
    failures: list[OSError] = []
    writer = JournalWriter(
        cast(BinaryIO, FullDisk(5000)), clock, header=header(), on_failure=failures.append, flush_s=60
    )
    for _ in range(5):
        run_steps(clock, 1000)
        writer.flush()
        assert not clock.closed
    writer.close()
    assert len(failures) == 1
    assert writer.failed
    assert writer.dropped_steps > 3000


def test_a_record_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    clock = StepClock(now=Ticking(), start_ns=0)
    writer = JournalWriter(open_journal(path), clock, header=header(), on_failure=pytest.fail)
    run_steps(clock, 3)
    writer.post(Notice(part="p", message="\udcff of a file name that is no text"))
    writer.post(Notice(part="p", message="fine"))
    writer.close()
    journal = read_journal(path)
    assert len(journal.steps) == 3
    assert [n.message for n in journal.notices][1] == "fine"
    assert "could not be written" in journal.notices[0].message


def test_an_earlier_run_is_never_touched(tmp_path: Path) -> None:
    wanted = tmp_path / "gpuprof"
    folders = []
    for _ in range(3):
        folder, file, problem = output_folder.create(wanted, rank=0)
        file.write(b"x")
        file.close()
        folders.append(folder.name)
        assert problem == ""
    other_rank, file, _ = output_folder.create(wanted, rank=1)
    file.close()
    assert folders == ["gpuprof", "gpuprof-2", "gpuprof-3"]
    assert other_rank.name == "gpuprof"
    assert (wanted / "rank0.jsonl").read_bytes() == b"x"


def test_a_folder_that_cannot_be_written_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder, file, problem = output_folder.create(tmp_path / "file" / "gpuprof", rank=0)
    file.close()
    assert "cannot be written" in problem
    assert str(folder) in problem
    (folder / "rank0.jsonl").unlink()
    folder.rmdir()


def test_variables_and_home_in_a_path_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH_FOR_TEST", "/scratch")
    assert output_folder.expand("$SCRATCH_FOR_TEST/run") == Path("/scratch/run")
    assert "~" not in str(output_folder.expand("~/run"))
