"""From image files to tensors: each access opens, decodes and, for training, augments one file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from examples.digits.augment import augment


class DigitImages(Dataset[tuple[Tensor, int]]):
    """Images of digits with their labels; the label is the name of the file's folder.

    An item is an image of shape (1, height, width), float32, 0 to 1, and a label from 0 to 9.

    Args:
        paths: The image files.
        augmented: Distort each image at random. The randomness comes from torch's generator, which Lightning's
            ``seed_everything`` and the DataLoader seed per process and worker.
    """

    def __init__(self, paths: Sequence[Path], *, augmented: bool) -> None:
        self.paths = list(paths)
        self.augmented = augmented

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as file:
            image = file.convert("L")
        if self.augmented:
            image = augment(image, random.Random(int(torch.randint(2**31, ()))))
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).unsqueeze(0), int(path.parent.name)


def split(paths: Sequence[Path], train_ratio: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Divide the files at random into training and validation; every file is in exactly one of them.

    Args:
        paths: The image files.
        train_ratio: Part of the files for training, 0 to 1.
        seed: Fixes the division.
    """
    shuffled = list(paths)
    random.Random(seed).shuffle(shuffled)
    border = int(train_ratio * len(shuffled))
    return shuffled[:border], shuffled[border:]
