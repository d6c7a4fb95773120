"""From the 1,797 handwritten digits that scikit-learn ships to a folder of PNG files, one folder per class.

The scans are those of the "Optical Recognition of Handwritten Digits" data set (Alpaydin and Kaynak, UCI Machine
Learning Repository, 1998), 8x8 pixels with 17 levels of grey. They are enlarged so that opening, decoding and
augmenting a file is the work that a real image data set makes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

IMAGE_COUNT = 1797
IMAGE_SIZE_PX = 128
FOLDER_VARIABLE = "DIGITS_DATA"
DEFAULT_FOLDER = Path("data", "digits")

_BRIGHTEST = 16
"""Highest grey level in scikit-learn's arrays."""


def image_folder(folder: str | Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the images are.

    Args:
        folder: The folder, or None for the one that the environment variable ``DIGITS_DATA`` names, or, if that is
            not set, ``data/digits`` below the current directory.
        environment: The environment variables.
    """
    return Path(folder or environment.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def write_images(folder: Path, save: Callable[[Image.Image, Path], None] = Image.Image.save) -> int:
    """Make ``folder`` hold all images as ``<class>/<number>.png``; what is there already is left alone.

    Images are written beside the folder and moved into place when they are complete, so that an interrupted call
    leaves no half-written file and the next call adds what is missing. Nothing is ever deleted from ``folder``.

    Args:
        folder: Need not exist.
        save: Writes one image to a file; the format is that of the suffix.

    Returns:
        How many images were missing and are now written.

    Raises:
        OSError: The folder cannot be made or written.
    """
    digits = load_digits()
    wanted = {Path(str(label), f"{number:04d}.png"): number for number, label in enumerate(digits.target)}
    missing = {path: number for path, number in wanted.items() if not _is_written(folder / path)}
    if not missing:
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    staging.chmod(0o755)
    try:
        for path, number in missing.items():
            (staging / path).parent.mkdir(exist_ok=True)
            save(enlarge(digits.images[number]), staging / path)
        _move_into_place(staging, folder, list(missing))
    finally:
        _remove(staging)
    return len(missing)


def enlarge(pixels: np.ndarray) -> Image.Image:
    """An 8x8 scan as a greyscale image of ``IMAGE_SIZE_PX`` pixels a side, strokes smoothed by Lanczos' filter.

    Args:
        pixels: Shape (8, 8), values 0 to 16.
    """
    levels = np.rint(pixels * (255 / _BRIGHTEST)).astype(np.uint8)
    return Image.fromarray(levels).resize((IMAGE_SIZE_PX, IMAGE_SIZE_PX), Image.Resampling.LANCZOS)


def list_images(folder: Path) -> list[Path]:
    """All images in the order of their numbers, which is scikit-learn's.

    Raises:
        FileNotFoundError: The folder does not hold all images.
    """
    paths = sorted(folder.glob("[0-9]/*.png"), key=lambda path: path.name)
    if len(paths) != IMAGE_COUNT:
        raise FileNotFoundError(
            f"{folder} must hold {IMAGE_COUNT} images, found {len(paths)}. "
            "Run write_images(folder) of examples.digits.images."
        )
    return paths


def _is_written(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _move_into_place(staging: Path, folder: Path, paths: list[Path]) -> None:
    if not folder.exists():
        try:
            staging.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
            # Another process was quicker: its images and ours are the same.
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (staging / path).replace(folder / path)


def _remove(staging: Path) -> None:
    for path in sorted(staging.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if staging.exists():
        staging.rmdir()
