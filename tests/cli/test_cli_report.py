"""``gpuprof report``: a folder in, terminal, page and JSON out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from saved_runs import save_run

from lightning_gpuprof.cli.main import main


def test_the_summary_is_printed_and_the_page_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_run(tmp_path / "run")
    assert main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "steps could be up to" in shown
    assert "report.html" in shown
    assert "<!DOCTYPE html>" in (folder / "report.html").read_text()


def test_json_is_the_report_and_leaves_the_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_run(tmp_path / "run")
    content = (folder / "report.json").read_bytes()
    assert main(["report", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(content)
    assert sorted(path.name for path in folder.iterdir()) == ["report.json"]


def test_the_page_goes_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = save_run(tmp_path / "run"), tmp_path / "elsewhere.html"
    assert main(["report", str(folder), "--html", str(page)]) == 0
    assert page.is_file()
    assert not (folder / "report.html").exists()
    assert page.name in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(save_run(tmp_path / "run")), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_reported_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_run(tmp_path / "run")
    (folder / "report.html").mkdir()
    assert main(["report", str(folder)]) == 0
    captured = capsys.readouterr()
    assert "steps could be up to" in captured.out
    assert "gpuprof: warning: cannot write" in captured.err
