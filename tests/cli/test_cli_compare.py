"""``gpuprof compare``: paths in, words and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from saved_runs import save_run

from lightning_gpuprof.cli.compare import EXIT_CODES
from lightning_gpuprof.cli.main import main


@pytest.mark.parametrize(
    ("after_ms", "outcome", "code"), [(12.0, "improved", 0), (20.1, "within noise", 0), (30.0, "regressed", 1)]
)
def test_the_exit_code_tells_a_regression(
    tmp_path: Path, after_ms: float, outcome: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=after_ms)
    assert main(["compare", str(before), str(after)]) == code
    assert f"\n{outcome}\n" in capsys.readouterr().out


def test_what_cannot_be_compared_does_not_pass_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", steady=3)
    assert main(["compare", str(before), str(after)]) == 2
    assert "3 steady unprofiled steps" in " ".join(capsys.readouterr().out.split())


def test_every_outcome_has_an_exit_code() -> None:
    assert EXIT_CODES == {"improved": 0, "within noise": 0, "regressed": 1, "not comparable": 2}


def test_files_and_folders_name_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=12.0)
    assert main(["compare", str(before / "report.json"), str(after / "report.json"), "--json"]) == 0
    by_file = json.loads(capsys.readouterr().out)
    assert main(["compare", str(before), str(after), "--json"]) == 0
    by_folder = json.loads(capsys.readouterr().out)
    assert by_file["training"] == by_folder["training"]
    assert by_file["outcome"] == "improved"
    assert by_file["before"] == str(before / "report.json")


def test_the_loggers_folder_stands_for_the_run_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_run(tmp_path / "version_0/gpuprof")
    after = save_run(tmp_path / "b", period_ms=12.0)
    assert main(["compare", str(after.parent / "version_0"), str(after)]) == 0
    assert "improved" in capsys.readouterr().out


def test_a_folder_with_several_runs_asks_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = save_run(tmp_path / "version_0/gpuprof"), save_run(tmp_path / "version_0/gpuprof-1")
    assert main(["compare", str(first.parent), str(second)]) == 2
    error = capsys.readouterr().err
    assert "holds 2 runs, name one" in error
    assert str(second) in error


@pytest.mark.parametrize("content", ["{}", "nonsense", '{"schema_version": 99}'])
def test_a_bad_report_is_an_error(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    assert main(["compare", str(save_run(tmp_path / "a")), str(bad)]) == 2
    assert capsys.readouterr().err.startswith(f"gpuprof: {bad} ")


def test_an_empty_folder_is_an_error_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "neither a journal" in capsys.readouterr().err
