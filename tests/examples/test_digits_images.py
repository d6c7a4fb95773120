import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from examples.digits.images import IMAGE_COUNT, IMAGE_SIZE_PX, image_folder, list_images, write_images


def _scan_again(image: Image.Image) -> np.ndarray:
    """The image reduced to the 8x8 pixels and 17 levels that it was made from."""
    small = image.resize((8, 8), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64) * (16 / 255)


def test_every_digit_is_one_image_that_decodes_and_has_sklearns_label(digits_folder: Path) -> None:
    digits = load_digits()
    paths = list_images(digits_folder)
    assert len(paths) == IMAGE_COUNT == len(digits.target)
    for path, label, pixels in zip(paths, digits.target, digits.images, strict=True):
        with Image.open(path) as image:
            assert (image.size, image.mode) == ((IMAGE_SIZE_PX, IMAGE_SIZE_PX), "L")
            assert np.corrcoef(_scan_again(image).ravel(), pixels.ravel())[0, 1] > 0.95
        assert path.parent.name == str(label)


def test_a_complete_folder_is_not_written_again(digits_folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in list_images(digits_folder)}
    assert write_images(digits_folder) == 0
    assert {path: path.stat().st_mtime_ns for path in list_images(digits_folder)} == before


def test_interrupted_writing_leaves_nothing_half_done_and_is_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    saved: list[Path] = []

    def save_some(image: Image.Image, target: Path) -> None:
        if len(saved) == 100:
            raise KeyboardInterrupt
        saved.append(target)
        target.write_bytes(b"an image")

    with pytest.raises(KeyboardInterrupt):
        write_images(folder, save=save_some)
    assert list(tmp_path.iterdir()) == []
    assert write_images(folder, save=lambda image, target: target.write_bytes(b"an image")) == IMAGE_COUNT
    assert len(list_images(folder)) == IMAGE_COUNT


def test_missing_and_empty_images_are_written_again_and_other_files_stay(digits_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    shutil.copytree(digits_folder, folder)
    missing, empty, *_ = list_images(folder)
    intact = missing.read_bytes()
    missing.unlink()
    empty.write_bytes(b"")
    (folder / "notes.txt").write_text("mine")
    assert write_images(folder) == 2
    assert missing.read_bytes() == intact
    assert empty.stat().st_size > 0
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]


def test_an_incomplete_folder_is_not_listed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="must hold 1797 images, found 0"):
        list_images(tmp_path)


def test_the_folder_is_the_argument_then_the_environment_then_the_default() -> None:
    assert image_folder(environment={}) == Path("data", "digits")
    assert image_folder(environment={"DIGITS_DATA": "/somewhere"}) == Path("/somewhere")
    assert image_folder("here", environment={"DIGITS_DATA": "/somewhere"}) == Path("here")
