"""The journal of a stage from header to footer, and what is said of failures."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture.stage_journal import FINISHED, Entry, StageJournal, interrupted_by, stage_header
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock


def ignore(steps: Sequence[ClosedStep]) -> None:
    pass


def journal_in(folder: Path) -> StageJournal:
    trainer = SimpleNamespace(global_rank=0, world_size=1)
    header = stage_header(trainer, "validate", Entry(perf_ns=5, epoch_ns=7), "1.2.3", "key")
    return StageJournal(folder, "key", header, StepClock(), ignore)


def test_header_records_and_footer_are_read_back(tmp_path: Path) -> None:
    journal = journal_in(tmp_path / "run")
    journal.start()
    journal.post(journal.footer(interrupted_by(ValueError()), {"edge_ns": 1.0}))
    journal.close([journal.footer(FINISHED, {"edge_ns": 2.0})])
    journal.close()
    found = read_journal(tmp_path / "run" / "rank0.jsonl")
    assert (found.header.stage, found.header.gpuprof, found.header.start_ns) == ("validate", "1.2.3", 5)
    assert (found.footer.status, found.footer.overhead) == ("finished", {"edge_ns": 2.0})


def test_what_was_switched_off_is_warned_of_and_noted_in_the_journal_and_for_the_report(tmp_path: Path) -> None:
    journal = journal_in(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="gpuprof: nvtx: switched off after RuntimeError: planted"):
        journal.switched_off("nvtx", RuntimeError("planted"))
    journal.close()
    assert [notice.part for notice in journal.notices] == ["nvtx"]
    assert read_journal(tmp_path / "run" / "rank0.jsonl").notices == journal.notices


def test_a_folder_that_cannot_be_written_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    journal = journal_in(tmp_path / "file" / "run")
    assert journal.notices == []
    with pytest.warns(RuntimeWarning, match="gpuprof: dirpath: .* is recorded in .* instead"):
        journal.start()
    journal.close()
    assert journal.folder.is_dir()
