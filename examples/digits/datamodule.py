"""The DataLoaders of the digits; every argument that decides how fast they are can be set from a configuration."""

from __future__ import annotations

from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from examples.digits.dataset import DigitImages, split
from examples.digits.images import image_folder, list_images, write_images

TRAIN_RATIO = 0.8


class DigitsData(LightningDataModule):
    """Training and validation loaders over the image files.

    Args:
        folder: Folder of the images, made if it is not there. None: the environment variable ``DIGITS_DATA``, or
            ``data/digits``.
        batch_size: Images per step.
        num_workers: Processes that load batches beside the training process; 0 loads them in it, between two steps.
        pin_memory: Load into page-locked memory, from which a GPU copies faster. Has no use without a GPU.
        persistent_workers: Keep the workers from one epoch to the next. Needs workers.
        prefetch_factor: Batches that each worker loads ahead. None: torch's default. Needs workers.
        split_seed: Fixes which images are for training (80 %) and which for validation.
    """

    def __init__(
        self,
        folder: str | None = None,
        batch_size: int = 32,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        split_seed: int = 0,
    ) -> None:
        super().__init__()
        self.folder = image_folder(folder)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.persistent_workers = persistent_workers
        self.prefetch_factor = prefetch_factor
        self.split_seed = split_seed

    def prepare_data(self) -> None:
        """Write the image files unless they are there; called in one process only."""
        write_images(self.folder)

    def train_dataloader(self) -> DataLoader[tuple[Tensor, int]]:
        """Augmented images in a new order each epoch."""
        train, _ = split(list_images(self.folder), TRAIN_RATIO, self.split_seed)
        return self._loader(DigitImages(train, augmented=True), shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, int]]:
        """Images as they are."""
        _, val = split(list_images(self.folder), TRAIN_RATIO, self.split_seed)
        return self._loader(DigitImages(val, augmented=False), shuffle=False)

    def _loader(self, dataset: DigitImages, *, shuffle: bool) -> DataLoader[tuple[Tensor, int]]:
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            shuffle=shuffle,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            persistent_workers=self.persistent_workers,
            prefetch_factor=self.prefetch_factor,
        )
