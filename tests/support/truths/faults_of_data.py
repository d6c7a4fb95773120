"""Faults of the input pipeline; each function gives what plants the fault in a fit."""

import functools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Sampler, default_collate

from truths.costs import Cost, burn
from truths.models import SHAPES, Items
from truths.setup import Setup, fault

_FILE_SAMPLES = 32
_PIECE = 128 << 10


@fault
def workers(setup: Setup, number: int, **settings: Any) -> None:
    """Batches from worker processes; no fault by itself."""
    setup.loader |= {"num_workers": number, "persistent_workers": number > 0, **settings}


@fault
def slow_items(setup: Setup, ms: float, *, burns: bool = False) -> None:
    """Every sample takes its time."""
    cost = setup.costs["items"] = Cost(ms=ms, burns=burns)
    setup.items.before.append(lambda index: cost.take())


@fault
def slow_batch(setup: Setup, ms: float) -> None:
    """The first sample of every batch takes its time: a cost per step of a known size."""
    cost = setup.costs["items"] = Cost(ms=ms)
    size = setup.batch_size
    setup.items.before.append(lambda index: None if index % size else cost.take())


@fault
def read_from_disk(setup: Setup, mib: int, *, epochs: int, cached: bool = False) -> None:
    """Every sample reads so much of a file, in each of so many epochs from the disk, unless it stays in memory."""
    path, size = Path(setup.folder) / "samples.bin", mib << 20
    with path.open("wb") as file:
        file.write(bytes(_FILE_SAMPLES * size))
        os.fsync(file.fileno())  # what is not on the disk yet stays in memory

    def read(index: int) -> None:
        with path.open("rb", buffering=0) as file:
            for begin in range(index % _FILE_SAMPLES * size, (index % _FILE_SAMPLES + 1) * size, _PIECE):
                file.seek(begin)
                file.read(_PIECE)
                if not cached:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    setup.items.before.append(read)
    setup.items.size = setup.steps // epochs * setup.batch_size


@fault
def single_samples(setup: Setup) -> None:
    """Each batch is one sample."""
    setup.items.size = setup.items.size // setup.batch_size
    setup.batch_size = 1


@fault
def threads_in_workers(setup: Setup, threads: int, *, size: int = 300) -> None:
    """Each sample multiplies matrices, on so many threads in each worker."""

    def multiply(index: int) -> None:
        torch.set_num_threads(threads)  # DataLoader workers begin with one
        matrix = torch.ones(size, size)
        for _ in range(2):
            matrix = torch.tanh(matrix @ matrix)

    setup.items.before.append(multiply)


@fault
def rare_slow_items(setup: Setup, ms: float, *, every_batches: int) -> None:
    """One sample in so many batches stalls."""
    cost = setup.costs["stalls"] = Cost(ms=ms)
    distance = every_batches * setup.batch_size
    at = distance // 2
    setup.items.before.append(lambda index: cost.take() if index % distance == at else None)


@fault
def changing_items(setup: Setup, before_ms: float, after_ms: float, *, at: float = 0.5) -> None:
    """Samples cost one thing in the first part of the run and another in the rest."""
    early, late = Cost(ms=before_ms), Cost(ms=after_ms)
    change = int(len(setup.items) * at)
    setup.items.before.append(lambda index: (early if index < change else late).take())


@dataclass
class Steps:
    """A chain of transforms, as torchvision's Compose."""

    transforms: list[Any]

    def __call__(self, sample: Tensor) -> Tensor:
        """Apply them in order."""
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Jitter:
    """A transform that computes in Python."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, sample: Tensor) -> Tensor:
        """Compute, and change nothing."""
        burn(self.ms)
        return sample


class Scale:
    """A cheap transform."""

    def __call__(self, sample: Tensor) -> Tensor:
        """Half of it."""
        return sample * 0.5


class Shift:
    """Another cheap transform."""

    def __call__(self, sample: Tensor) -> Tensor:
        """A little more of it."""
        return sample + 0.1


@fault
def slow_transform(setup: Setup, ms: float) -> None:
    """One of three transforms computes for long."""
    setup.items.transform = Steps([Scale(), Jitter(ms), Shift()])


@fault
def cheap_transforms(setup: Setup) -> None:
    """Two cheap transforms; no fault."""
    setup.items.transform = Steps([Scale(), Shift()])


@fault
def slow_collate(setup: Setup, ms: float) -> None:
    """Putting samples together computes for long."""
    setup.loader["collate_fn"] = functools.partial(_collate, ms)


def _collate(ms: float, samples: list[Any]) -> Any:
    burn(ms)
    return default_collate(samples)


@fault
def late_workers(setup: Setup, ms: float, *, epochs: int) -> None:
    """Workers that end with each of so many epochs and take their time to start."""
    setup.loader |= {
        "num_workers": 1,
        "persistent_workers": False,
        "worker_init_fn": functools.partial(_start, ms),
    }
    setup.items.size = setup.steps // epochs * setup.batch_size


def _start(ms: float, worker: int) -> None:
    time.sleep(ms / 1e3)


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """The samples without a length."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.items[index] for index in range(len(self.items)))


@fault
def streamed(setup: Setup) -> None:
    """An iterable dataset; no fault by itself."""
    setup.make_loader = _stream_loader


def _stream_loader(setup: Setup) -> Any:
    return DataLoader(Stream(setup.items), batch_size=setup.batch_size, **setup.loader)


@fault
def lengths(setup: Setup, *values: int, every: int = 1) -> None:
    """Batches of sequences whose length changes from batch to batch, or every so many batches."""
    setup.loader["collate_fn"] = _Cut(values, every)


class _Cut:
    """Makes a batch of sequences of one length, the next one of another."""

    def __init__(self, values: tuple[int, ...], every: int) -> None:
        self.values = values
        self.every = every
        self.made = 0

    def __call__(self, samples: list[Any]) -> Any:
        batch, labels = default_collate(samples)
        length = self.values[self.made // self.every % len(self.values)]
        self.made += 1
        times = -(-length // batch.shape[1])
        return batch.repeat(1, times, 1)[:, :length], labels


@fault
def padded(setup: Setup, width: int, longest: int) -> None:
    """Rows of tokens of up to ``longest``, all of them padded to ``width``; a cure pads to the longest of the batch."""
    step, size = setup.model.training_step, SHAPES[setup.kind][-1]
    setup.model.embedding = torch.nn.Embedding(100, size)
    setup.loader["collate_fn"] = Padded(width, longest)
    setup.model.training_step = lambda batch, batch_idx: step(  # type: ignore[method-assign]
        (setup.model.embedding(batch["input_ids"]), batch["labels"]), batch_idx
    )


class Padded:
    """Makes rows of tokens, of half to all of the longest, and pads them."""

    def __init__(self, width: int, longest: int) -> None:
        self.width, self.longest = width, longest

    def __call__(self, samples: list[Any]) -> dict[str, Tensor]:
        lengths = torch.randint(self.longest // 2, self.longest + 1, (len(samples),)).tolist()
        ids = torch.zeros(len(samples), self.width or max(lengths), dtype=torch.long)
        for row, length in zip(ids, lengths, strict=True):
            row[:length] = torch.randint(1, 100, (length,))
        return {"input_ids": ids, "labels": torch.stack([label for _, label in samples])}


@fault
def moved_slowly(setup: Setup, ms: float) -> None:
    """A batch whose move to the device takes its time."""
    cost = setup.costs["transfer"] = Cost(ms=ms)

    def transfer(batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        cost.take()
        return batch

    setup.model.transfer_batch_to_device = transfer  # type: ignore[method-assign]


@fault
def of_objects(setup: Setup, number: int) -> None:
    """Batches with pairs of numbers beside the samples, as lists of edges or boxes are."""
    pairs = [(index, index + 1) for index in range(number)]
    step = setup.model.training_step
    setup.loader["collate_fn"] = lambda samples: (*default_collate(samples), pairs)
    setup.model.training_step = lambda batch, batch_idx: step(batch[:2], batch_idx)  # type: ignore[method-assign]


class Choosing(Sampler[int]):
    """Gives the samples in order, and takes its time before each batch."""

    def __init__(self, size: int, batch_size: int, cost: Cost) -> None:
        self.size, self.batch_size, self.cost = size, batch_size, cost

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        for index in range(self.size):
            if index % self.batch_size == 0:
                self.cost.take()
            yield index


@fault
def chosen_slowly(setup: Setup, ms: float, *, burns: bool = False) -> None:
    """A sampler that takes its time for each batch; none with 0 ms."""
    cost = setup.costs["sampler"] = Cost(ms=ms, burns=burns)
    setup.loader["sampler"] = Choosing(len(setup.items), setup.batch_size, cost)


@fault
def prepared_after_the_move(setup: Setup, ms: float) -> None:
    """``on_after_batch_transfer`` computes in Python; nothing with 0 ms."""
    cost = setup.costs["transfer"] = Cost(ms=ms, burns=True)

    def prepare(batch: Any, dataloader_idx: int) -> Any:
        cost.take()
        return batch

    setup.model.on_after_batch_transfer = prepare  # type: ignore[method-assign]


@fault
def half_last_batch(setup: Setup, epochs: int) -> None:
    """The same steps in so many epochs, each of which ends with half a batch; no fault."""
    setup.items.size = setup.steps // epochs * setup.batch_size - setup.batch_size // 2


@fault
def fewer_epoch_steps(setup: Setup, epochs: int) -> None:
    """The same steps in so many epochs; no fault."""
    setup.items.size = setup.steps // epochs * setup.batch_size
