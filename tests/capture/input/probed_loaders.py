"""Datasets and transforms for tests of the input pipeline, and loaders made while they are measured or not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from lightning_gpuprof import annotate
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.input.sampler import InputSampler
from lightning_gpuprof.model.journal import Notice, Sample


class Compose:
    """As torchvision's."""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, item: Any) -> Any:
        for transform in self.transforms:
            item = transform(item)
        return item


class ShuffledCompose(Compose):
    """Applies its transforms in another order for each item, and keeps the list that way."""

    def __call__(self, item: Any) -> Any:
        random.shuffle(self.transforms)
        return super().__call__(item)


class RenewedCompose(Compose):
    """Puts another transform in the place of its first for each item."""

    def __call__(self, item: Any) -> Any:
        self.transforms[0] = Add(self.transforms[0].number + 1)
        return super().__call__(item)


class AliasedCompose(Compose):
    """Changes its list by another name of it."""

    def __init__(self, transforms: Any) -> None:
        super().__init__(transforms)
        self.order = transforms

    def __call__(self, item: Any) -> Any:
        random.shuffle(self.order)
        return super().__call__(item)


class Add:
    def __init__(self, number: float) -> None:
        self.number = number

    def __call__(self, item: Any) -> Any:
        return item + self.number


class Nap:
    """A transform that takes a known time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, item: Any) -> Any:
        time.sleep(self.seconds)
        return item


def negative(item: Any) -> Any:
    return -item


class Images(Dataset[torch.Tensor]):
    """Rows with all kinds of random numbers in them, decoded and transformed."""

    def __init__(self, size: int = 40, nap_s: float = 0.0, decode_s: float = 0.0, fails_at: int = -1) -> None:
        self.size = size
        self.decode_s = decode_s
        self.fails_at = fails_at
        self.transform = Compose([Nap(nap_s), negative])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.fails_at:
            raise ValueError(f"no image {index}")
        with annotate("decode"):
            time.sleep(self.decode_s)
        info = get_worker_info()
        worker = (-1, -1, 0) if info is None else (info.id, info.num_workers, info.seed % 1000)
        drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
        return self.transform(torch.tensor([float(index), *worker, *drawn], dtype=torch.float64))


class Together(Images):
    """Makes the items of a batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Stream(IterableDataset[torch.Tensor]):
    """An iterable dataset that its workers share."""

    def __init__(self, size: int = 40) -> None:
        self.size = size

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.size, step):
            yield torch.full((2,), float(number)) + torch.rand(())


class Measured:
    """A context in which loaders are measured, and what came out of it."""

    def __init__(self, *loaders: Any) -> None:
        self.loaders: tuple[Any, ...] = loaders
        self.errors: list[Exception] = []
        self.notices: list[str] = []
        self.measurement = InputMeasurement(
            lambda: list(self.loaders), on_failure=self.errors.append, notice=self.notices.append
        )
        self.sampler: InputSampler = self.measurement.sampler()
        self.values: dict[str, dict[str, float | None]] = {}
        self.samples: list[Sample] = []
        self.reported: list[Notice] = []

    def __enter__(self) -> Measured:
        self.measurement.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        for reading in (*self.sampler.sample(1), *self.sampler.close()):
            if isinstance(reading, Sample):
                self.values[reading.subject] = reading.values
                self.samples.append(reading)
            elif isinstance(reading, Notice):
                self.reported.append(reading)
        self.measurement.end()
        self.measurement.remove_files()
        # In our cycle, loaders would go by the collector: torch then waits five seconds for workers that persist.
        self.loaders = ()

    def count(self, subject: str, name: str) -> float:
        return self.values[subject][name]

    def measured_batches(self, of: str = "loader0") -> float:
        """Batches of all processes of a loader."""
        return sum(
            values["batches_count"] or 0.0
            for subject, values in self.values.items()
            if subject.startswith((f"{of}.worker", f"{of}.process"))
        )


def batches(loader: DataLoader[Any], epochs: int = 1) -> list[torch.Tensor]:
    """Everything that a loader gives, with what its random numbers depend on set."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    found = [batch.clone() for _ in range(epochs) for batch in loader]
    return [*found, torch.rand(2), torch.tensor([random.random(), np.random.rand()])]


def measured_run(loader: DataLoader[Any], epochs: int = 1) -> Measured:
    """What is measured of a loader while it gives everything."""
    with Measured(loader) as found:
        batches(loader, epochs)
    return found


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    plain: dict[str, Any] = {"batch_size": 4, "num_workers": 2, **options}
    if plain["num_workers"] and "multiprocessing_context" not in plain:
        plain["multiprocessing_context"] = "fork"
    return DataLoader(Images() if dataset is None else dataset, **plain)
