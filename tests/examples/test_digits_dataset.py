import random
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from examples.digits.augment import augment
from examples.digits.datamodule import DigitsData
from examples.digits.dataset import DigitImages, split
from examples.digits.images import IMAGE_COUNT, IMAGE_SIZE_PX, list_images


def _first_batches(folder: Path, *, seed: int, num_workers: int) -> list[Tensor]:
    torch.manual_seed(seed)
    dataset = DigitImages(list_images(folder)[:16], augmented=True)
    return [images for images, _ in DataLoader(dataset, batch_size=8, num_workers=num_workers)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_seed_fixes_the_augmentation(digits_folder: Path, num_workers: int) -> None:
    once = _first_batches(digits_folder, seed=1, num_workers=num_workers)
    again = _first_batches(digits_folder, seed=1, num_workers=num_workers)
    other = _first_batches(digits_folder, seed=2, num_workers=num_workers)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once, other, strict=True))


def test_workers_do_not_repeat_each_other(digits_folder: Path) -> None:
    torch.manual_seed(1)
    same_file = [list_images(digits_folder)[0]] * 2
    loader = DataLoader(DigitImages(same_file, augmented=True), batch_size=1, num_workers=2)
    (of_worker_0, _), (of_worker_1, _) = loader
    assert not torch.equal(of_worker_0, of_worker_1)


def test_augmentation_takes_all_randomness_from_its_generator(digits_folder: Path) -> None:
    with Image.open(list_images(digits_folder)[0]) as file:
        image = file.convert("L")
    once, again = augment(image, random.Random(3)), augment(image, random.Random(3))
    assert once.tobytes() == again.tobytes() != image.tobytes()
    assert (once.size, once.mode) == (image.size, image.mode)


def test_augmentation_keeps_the_digit_in_the_image(digits_folder: Path) -> None:
    rng = random.Random(0)
    for path in list_images(digits_folder)[:30]:
        with Image.open(path) as file:
            image = file.convert("L")
        ink = sum(image.tobytes())
        assert 0.4 * ink < sum(augment(image, rng).tobytes()) < 2 * ink


def test_items_are_pixels_from_0_to_1_and_the_label_of_the_folder(digits_folder: Path) -> None:
    paths = list_images(digits_folder)[:20]
    for augmented in (False, True):
        for path, (pixels, label) in zip(paths, DigitImages(paths, augmented=augmented), strict=False):
            assert (pixels.shape, pixels.dtype) == ((1, IMAGE_SIZE_PX, IMAGE_SIZE_PX), torch.float32)
            assert 0 <= pixels.min() <= pixels.max() <= 1
            assert label == int(path.parent.name)


def test_validation_images_are_not_augmented(digits_folder: Path) -> None:
    dataset = DigitImages(list_images(digits_folder)[:1], augmented=False)
    assert torch.equal(dataset[0][0], dataset[0][0])


def test_the_split_is_seeded_disjoint_and_80_to_20(digits_folder: Path) -> None:
    paths = list_images(digits_folder)
    train, val = split(paths, 0.8, seed=0)
    assert len(train) == int(0.8 * IMAGE_COUNT)
    assert sorted([*train, *val]) == sorted(paths)
    assert split(paths, 0.8, seed=0) == (train, val)
    assert split(paths, 0.8, seed=1) != (train, val)


def test_loader_arguments_reach_the_loaders(digits_folder: Path) -> None:
    data = DigitsData(
        folder=str(digits_folder), batch_size=8, num_workers=2, persistent_workers=True, prefetch_factor=3
    )
    for loader in (data.train_dataloader(), data.val_dataloader()):
        assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (8, 2, 3)
        assert loader.persistent_workers
        assert not loader.pin_memory
