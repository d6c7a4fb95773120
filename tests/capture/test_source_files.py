"""The user's source files: those of the program and its modules, as they were when it began."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lightning_gpuprof.capture.source_files import MAX_BYTES, source_files


def shown(file: str) -> str:
    return Path(file).name


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "type[Modules]":
    monkeypatch.syspath_prepend(tmp_path)
    Modules.folder = tmp_path
    return Modules


class Modules:
    """Makes modules whose files are older than this process."""

    folder: Path

    @classmethod
    def of(cls, name: str, text: str, age_s: float = 1e6) -> ModuleType:
        file = cls.folder / f"{name}.py"
        file.write_text(text)
        os.utime(file, (file.stat().st_mtime - age_s,) * 2)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        return importlib.util.module_from_spec(spec)


def test_the_program_comes_first_and_secrets_are_hidden(module: type[Modules]) -> None:
    data, train = module.of("data", "BATCH = 64  # samples\n"), module.of("train", "KEY = 'hunter2'\n")
    found = source_files(shown, {"data": data, "__main__": train})
    assert list(found.items()) == [("train.py", "KEY = '***'"), ("data.py", "BATCH = 64")]


def test_what_was_edited_since_the_process_began_is_left_out(module: type[Modules]) -> None:
    modules = {"old": module.of("old", "a = 1\n"), "new": module.of("new", "a = 1\n", age_s=-10.0)}
    assert source_files(shown, modules) == {"old.py": "a = 1"}


def test_what_is_no_file_of_the_user_is_passed_over(module: type[Modules]) -> None:
    bare = ModuleType("bare")
    gone = module.of("gone", "a = 1\n")
    (Modules.folder / "gone.py").unlink()
    broken = module.of("broken", "a = (\n")
    modules = {"os": os, "pytest": pytest, "number": 3, "bare": bare, "gone": gone, "broken": broken}
    assert source_files(shown, modules) == {}
    assert source_files(lambda file: "", {"user": module.of("user", "a = 1\n")}) == {}


def test_files_that_do_not_fit_are_left_out(module: type[Modules]) -> None:
    modules = {
        "large": module.of("large", "a = 1\n" * MAX_BYTES),
        "small": module.of("small", "a = 1\n"),
        "half": module.of("half", "a = 1\n" * (MAX_BYTES // 12)),
        "rest": module.of("rest", "a = 1\n" * (MAX_BYTES // 12)),
    }
    assert list(source_files(shown, modules)) == ["small.py", "half.py"]


def test_a_module_that_imports_itself_when_it_is_used_is_not_imported(
    module: type[Modules], monkeypatch: pytest.MonkeyPatch
) -> None:
    module.of("lazily", "raise RuntimeError('it was imported')\n")
    spec = importlib.util.find_spec("lazily")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazily", lazy)
    spec.loader.exec_module(lazy)
    assert list(source_files(shown, {"lazily": lazy})) == ["lazily.py"]
