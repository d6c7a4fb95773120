import json
import sys
from pathlib import Path

import lightning_suite
import pytest
from suite_expected import CLASSES, Expected
from suite_runs import Outcome, Suite, read

SUITE = "tests/tests_pytorch"
LISTS = Expected(name="lists files", why="one more folder", error="gpuprof", tests=("test_a.py::test_files",))


def outcomes(**words: str) -> dict[str, Outcome]:
    """Outcomes of tests in one file: ``failed: ERROR`` or a word."""
    made = {}
    for name, word in words.items():
        outcome, _, why = word.partition(": ")
        test = f"{SUITE}/test_a.py::{name.replace('__1', '[1]')}"
        made[test] = Outcome(test=test, outcome=outcome, seconds=0.1, why=why)
    return made


def checkout(folder: Path, **files: str) -> Path:
    """A checkout with these test files."""
    (folder / SUITE).mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = ['--color=yes']\n")
    for name, text in files.items():
        (folder / SUITE / f"{name}.py").write_text(text)
    return folder


def test_only_what_fails_both_times_with_the_profiler_and_never_without_is_new() -> None:
    without = outcomes(test_files="passed", test_ours_not="failed: x", test_flaky="passed", test_flaky_too="passed")
    with_ = outcomes(
        test_files="failed: gpuprof", test_ours_not="failed: x", test_flaky="hung", test_flaky_too="crashed"
    )
    found = lightning_suite.compare(
        without,
        with_,
        outcomes(test_files="passed", test_flaky="passed", test_flaky_too="failed: z"),
        outcomes(test_files="failed: gpuprof", test_flaky="passed", test_flaky_too="failed: z"),
        [LISTS],
    )
    assert found.classes == {"lists files": ["test_a.py::test_files"]}
    assert found.not_again == ["test_a.py::test_flaky", "test_a.py::test_flaky_too"]


def test_a_listed_test_with_another_error_is_unexpected_and_so_is_one_that_is_not_listed() -> None:
    new = outcomes(test_files__1="failed: gpuprof is in the way", test_files="crashed: -11", test_b="failed: gpuprof")
    assert lightning_suite.classify(new, [LISTS]) == {
        "lists files": ["test_a.py::test_files[1]"],
        "unexpected": ["test_a.py::test_b", "test_a.py::test_files"],
    }


def test_each_class_has_a_reason_and_no_test_is_twice_in_one() -> None:
    for known in CLASSES:
        assert known.why
        assert len(set(known.tests)) == len(known.tests)
        assert all("::" in test and "[" not in test for test in known.tests)
    assert len({known.name for known in CLASSES}) == len(CLASSES)


def test_warnings_are_counted_by_test_without_numbers_and_paths() -> None:
    told = [
        ("a", "gpuprof: dirpath: /tmp/x-1/gpuprof cannot be written"),
        ("a", "gpuprof: dirpath: /tmp/x-2/gpuprof cannot be written"),
        ("b", "gpuprof: dirpath: /tmp/x-3/gpuprof cannot be written"),
        ("b", "gpuprof: windows: switched off after 3 steps"),
    ]
    assert lightning_suite.warnings_of(told) == {
        "gpuprof: dirpath: PATH cannot be written": 2,
        "gpuprof: windows: switched off after N steps": 1,
    }


@pytest.mark.slow
def test_crashes_and_hangs_end_one_test_and_the_others_run_on(tmp_path: Path) -> None:
    source = checkout(
        tmp_path / "checkout",
        test_ends="import os\ndef test_first(): pass\ndef test_crash(): os._exit(3)\ndef test_after(): assert 1 > 2\n",
        test_hangs="import time\ndef test_hang(): time.sleep(60)\ndef test_after(): pass\n",
        test_cannot_be_read="import no_such_module\n",
    )
    suite = Suite(checkout=source, python=Path(sys.executable), processes=1, timeout_s=5)
    files = suite.files(["**/test_*.py"])
    suite.run(files, tmp_path / "out", {})
    found = {test.removeprefix(f"{SUITE}/"): outcome for test, outcome in read(tmp_path / "out").items()}
    assert {test: outcome.outcome for test, outcome in found.items()} == {
        "test_ends.py::test_first": "passed",
        "test_ends.py::test_crash": "crashed",
        "test_ends.py::test_after": "failed",
        "test_hangs.py::test_hang": "hung",
        "test_hangs.py::test_after": "passed",
        "test_cannot_be_read.py": "failed",
    }
    assert "assert 1 > 2" in found["test_ends.py::test_after"].why
    assert "in test_hang" in found["test_hangs.py::test_hang"].why
    assert sorted(path.name for path in (source / SUITE).iterdir()) == sorted(path.rpartition("/")[2] for path in files)


@pytest.mark.slow
def test_a_suite_is_run_without_and_with_the_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = checkout(
        tmp_path / "checkout",
        test_fits="""
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

def fit(folder):
    trainer = Trainer(default_root_dir=folder, max_steps=2, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(BoringModel())
    return trainer

def test_steps(tmp_path): assert fit(tmp_path).global_step == 2
def test_callbacks(tmp_path): assert "GpuProfiler" not in {type(one).__name__ for one in fit(tmp_path).callbacks}
def test_fails(tmp_path): assert fit(tmp_path).global_step == 3
""",
    )
    target = tmp_path / "results.json"
    ran = [str(source), "--work", str(tmp_path / "work"), "--json", str(target)]
    assert lightning_suite.main(ran) == 1
    document = json.loads(target.read_text())
    assert document["classes"] == {"unexpected": ["test_fits.py::test_callbacks"]}
    assert (document["without"]["passed"], document["without"]["failed"]) == (2, 1)
    assert (document["with_gpuprof"]["passed"], document["with_gpuprof"]["failed"]) == (1, 2)
    assert str(tmp_path) not in target.read_text()
    assert "test_callbacks" in capsys.readouterr().out


def test_what_is_no_checkout_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lightning_suite.main([str(tmp_path)])
    assert "must be a checkout of Lightning's repository: it has no tests/tests_pytorch" in capsys.readouterr().err


def test_a_python_without_the_profiler_is_refused_before_an_hour_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nunset GPUPROF\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    source = checkout(tmp_path / "checkout", test_a="def test_a(): pass")
    with pytest.raises(SystemExit):
        lightning_suite.main([str(source), "--python", str(python), "--work", str(tmp_path / "work")])
    assert "whose Trainer has no GpuProfiler with GPUPROF=1" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
