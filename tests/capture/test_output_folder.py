"""Ranks that never talk find one folder; runs that begin at the same moment do not."""

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_gpuprof.capture import output_folder


def create(target: Path, rank: int, key: str) -> Path:
    folder, file, _ = output_folder.create(target, rank, key)
    file.close()
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def unwritable(tmp_path: Path) -> Path:
    """A place where no folder can be made, for root as well."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "run"


def test_ranks_of_a_run_share_a_folder_and_runs_do_not(tmp_path: Path) -> None:
    assert [create(tmp_path / "run", rank, "a") for rank in (1, 0, 2)] == [tmp_path / "run"] * 3
    assert [create(tmp_path / "run", rank, "b") for rank in (3, 0)] == [tmp_path / "run-2"] * 2
    assert create(tmp_path / "run", 3, "a") == tmp_path / "run"


def test_a_program_that_changes_its_working_folder_does_not_lose_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert create(Path("run"), 0, "a") == tmp_path / "run"


def test_an_earlier_run_is_never_touched(tmp_path: Path) -> None:
    for number, name in enumerate(("run", "run-2", "run-3")):
        folder = create(tmp_path / "run", 0, output_folder.run_key("", 1))
        assert folder == tmp_path / name
        (folder / "rank0.jsonl").write_text(str(number))
    assert (tmp_path / "run" / "rank0.jsonl").read_text() == "0"


def test_journals_that_somebody_copied_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rank7.jsonl").touch()
    assert create(tmp_path, 0, "a") == tmp_path.with_name(f"{tmp_path.name}-2")


def test_runs_that_begin_together_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes the folder just after another one saw that nobody had it."""
    glob = Path.glob

    def late(folder: Path, pattern: str) -> list[Path]:
        seen = list(glob(folder, pattern))
        monkeypatch.setattr(Path, "glob", glob)
        create(tmp_path / "run", 0, "b")
        return seen

    monkeypatch.setattr(Path, "glob", late)
    assert create(tmp_path / "run", 1, "a") == tmp_path / "run-2"
    assert create(tmp_path / "run", 0, "a") == tmp_path / "run-2"
    assert create(tmp_path / "run", 1, "b") == tmp_path / "run"


def test_ranks_of_a_node_share_the_temporary_folder_too(tmp_path: Path, temporary: Path) -> None:
    folders = [create(unwritable(tmp_path), rank, "a") for rank in range(3)]
    assert folders == [temporary / "gpuprof-a"] * 3
    assert folders[0].stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in folders[0].glob("rank*")) == ["rank0.jsonl", "rank1.jsonl", "rank2.jsonl"]
    _, file, problem = output_folder.create(unwritable(tmp_path), 3, "a")
    file.close()
    assert "cannot be written" in problem
    assert str(folders[0]) in problem


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path, temporary: Path) -> None:
    (temporary / "gpuprof-a").symlink_to(tmp_path)
    folder = create(unwritable(tmp_path), 0, "a")
    assert folder.parent == temporary
    assert not folder.is_symlink()
    assert not list(tmp_path.glob("rank*"))


def test_each_stage_of_a_run_has_a_key_of_its_own() -> None:
    assert output_folder.run_key("a job", 2) != output_folder.run_key("a job", 2)
    assert output_folder.run_key("", 1) != output_folder.run_key("", 1)


@pytest.mark.parametrize(
    ("kind", "log_folder", "folder"),
    [
        ("local", "work/logs", "store/run/gpuprof-test"),
        ("s3", "work/logs", "work/logs/gpuprof-test"),
        ("local", "elsewhere", "elsewhere/gpuprof-test"),
    ],
)
def test_what_a_worker_of_ray_would_lose_with_its_working_folder_is_in_the_storage_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, log_folder: str, folder: str
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    storage = SimpleNamespace(
        storage_filesystem=SimpleNamespace(type_name=kind), experiment_fs_path=str(tmp_path / "store/run")
    )
    context = SimpleNamespace(get_storage=lambda: storage)
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=lambda: context))
    trainer = SimpleNamespace(
        profiler=SimpleNamespace(dirpath=tmp_path / log_folder), default_root_dir=tmp_path, world_size=2
    )
    assert output_folder.target_folder(None, "test", trainer) == tmp_path / folder


def test_variables_and_home_in_a_path_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH_FOR_TEST", "/scratch")
    assert output_folder.expand("$SCRATCH_FOR_TEST/run") == Path("/scratch/run")
    assert "~" not in str(output_folder.expand("~/run"))
