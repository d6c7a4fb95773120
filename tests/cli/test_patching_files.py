"""Which files a command runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuprof.cli.patching.files import files_of

FILES = {
    "train.py": "import torch\nfrom package import data\nimport helpers as h\nimport broken\n",
    "helpers.py": "import json\n",
    "broken.py": "def (:\n",
    "unused.py": "",
    "package/__init__.py": "",
    "package/__main__.py": "from package.data import Data\n",
    "package/data.py": "from .inner.loading import loader\nfrom . import model\n",
    "package/model.py": "",
    "package/inner/__init__.py": "",
    "package/inner/loading.py": "from ..model import Net\n",
    "package/only_in_yaml.py": "",
    ".venv/lib/site-packages/installed.py": "",
    "my.yaml": "data:\n  class_path: package.only_in_yaml.Data\nmodel:\n  class_path: torch.nn.Linear\n",
    "other.yaml": "",
}
PACKAGE = {
    "package/__init__.py",
    "package/data.py",
    "package/model.py",
    "package/inner/__init__.py",
    "package/inner/loading.py",
}


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "sources", "config"),
    [
        ("python train.py", {"train.py", "helpers.py", *PACKAGE}, None),
        ("python -u train.py --lr 1", {"train.py", "helpers.py", *PACKAGE}, None),
        ("torchrun --nproc-per-node 2 train.py", {"train.py", "helpers.py", *PACKAGE}, None),
        ("python -m package", {"package/__main__.py", *PACKAGE}, None),
        ("python -m package.model", {"package/model.py"}, None),
        ("python helpers.py fit -c other.yaml", {"helpers.py"}, "other.yaml"),
        ("python helpers.py --config other.yaml --config=missing.yaml", {"helpers.py"}, "other.yaml"),
        (
            "python helpers.py --config my.yaml",
            {"helpers.py", "package/only_in_yaml.py", "package/__init__.py"},
            "my.yaml",
        ),
        ("python -c pass", set(), None),
        ("python broken.py", {"broken.py"}, None),
    ],
)
def test_the_files_of_a_command(command: str, sources: set[str], config: str | None) -> None:
    found = files_of(command.split())
    assert {path.as_posix() for path in found.sources} == sources
    assert found.config == (None if config is None else Path(config))
    assert len(found.sources) == len(sources)
