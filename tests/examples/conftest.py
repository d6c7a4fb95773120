"""Puts the repository root on the path, as ``python -m examples.digits`` does, and writes the images once."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    from examples.digits.images import write_images

    folder = tmp_path_factory.mktemp("data") / "digits"
    write_images(folder)
    return folder
