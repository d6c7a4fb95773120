"""Faults of the input pipeline; each function gives what plants the fault in a fit."""

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Sampler, default_collate

from truths.costs import Cost, burn
from truths.models import SHAPES, Items
from truths.setup import Fault, Setup


def workers(number: int, **settings: Any) -> Fault:
    """Batches from worker processes; no fault by itself."""

    def plant(setup: Setup) -> None:
        setup.loader |= {"num_workers": number, "persistent_workers": number > 0, **settings}

    return plant


def slow_items(ms: float, *, burns: bool = False) -> Fault:
    """Every sample takes its time."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["items"] = Cost(ms=ms, burns=burns)
        setup.items.before.append(lambda index: cost.take())

    return plant


def slow_batch(ms: float) -> Fault:
    """The first sample of every batch takes its time: a cost per step of a known size."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["items"] = Cost(ms=ms)
        size = setup.batch_size
        setup.items.before.append(lambda index: None if index % size else cost.take())

    return plant


def single_samples() -> Fault:
    """Each batch is one sample."""

    def plant(setup: Setup) -> None:
        setup.items.size = setup.items.size // setup.batch_size
        setup.batch_size = 1

    return plant


def threads_in_workers(threads: int, *, size: int = 300) -> Fault:
    """Each sample multiplies matrices, on so many threads in each worker."""

    def plant(setup: Setup) -> None:
        def multiply(index: int) -> None:
            torch.set_num_threads(threads)  # DataLoader workers begin with one
            matrix = torch.ones(size, size)
            for _ in range(2):
                matrix = torch.tanh(matrix @ matrix)

        setup.items.before.append(multiply)

    return plant


def rare_slow_items(ms: float, *, every_batches: int) -> Fault:
    """One sample in so many batches stalls."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["stalls"] = Cost(ms=ms)
        distance = every_batches * setup.batch_size
        at = distance // 2
        setup.items.before.append(lambda index: cost.take() if index % distance == at else None)

    return plant


def changing_items(before_ms: float, after_ms: float, *, at: float = 0.5) -> Fault:
    """Samples cost one thing in the first part of the run and another in the rest."""

    def plant(setup: Setup) -> None:
        early, late = Cost(ms=before_ms), Cost(ms=after_ms)
        change = int(len(setup.items) * at)
        setup.items.before.append(lambda index: (early if index < change else late).take())

    return plant


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


def slow_transform(ms: float) -> Fault:
    """One of three transforms computes for long."""

    def plant(setup: Setup) -> None:
        setup.items.transform = Steps([Scale(), Jitter(ms), Shift()])

    return plant


def cheap_transforms() -> Fault:
    """Two cheap transforms; no fault."""

    def plant(setup: Setup) -> None:
        setup.items.transform = Steps([Scale(), Shift()])

    return plant


def slow_collate(ms: float) -> Fault:
    """Putting samples together computes for long."""

    def plant(setup: Setup) -> None:
        setup.loader["collate_fn"] = functools.partial(_collate, ms)

    return plant


def _collate(ms: float, samples: list[Any]) -> Any:
    burn(ms)
    return default_collate(samples)


def late_workers(ms: float, *, epochs: int) -> Fault:
    """Workers that end with each of so many epochs and take their time to start."""

    def plant(setup: Setup) -> None:
        setup.loader |= {
            "num_workers": 1,
            "persistent_workers": False,
            "worker_init_fn": functools.partial(_start, ms),
        }
        setup.items.size = setup.steps // epochs * setup.batch_size

    return plant


def _start(ms: float, worker: int) -> None:
    time.sleep(ms / 1e3)


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """The samples without a length."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.items[index] for index in range(len(self.items)))


def streamed() -> Fault:
    """An iterable dataset; no fault by itself."""

    def plant(setup: Setup) -> None:
        setup.make_loader = _stream_loader

    return plant


def _stream_loader(setup: Setup) -> Any:
    return DataLoader(Stream(setup.items), batch_size=setup.batch_size, **setup.loader)


def lengths(*values: int, every: int = 1) -> Fault:
    """Batches of sequences whose length changes from batch to batch, or every so many batches."""

    def plant(setup: Setup) -> None:
        setup.loader["collate_fn"] = _Cut(values, every)

    return plant


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


def padded(width: int, longest: int) -> Fault:
    """Rows of tokens of up to ``longest``, all of them padded to ``width``; a cure pads to the longest of the batch."""

    def plant(setup: Setup) -> None:
        step, size = setup.model.training_step, SHAPES[setup.kind][-1]
        setup.model.embedding = torch.nn.Embedding(100, size)
        setup.loader["collate_fn"] = Padded(width, longest)
        setup.model.training_step = lambda batch, batch_idx: step(  # type: ignore[method-assign]
            (setup.model.embedding(batch["input_ids"]), batch["labels"]), batch_idx
        )

    return plant


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


def moved_slowly(ms: float) -> Fault:
    """A batch whose move to the device takes its time."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["transfer"] = Cost(ms=ms)

        def transfer(batch: Any, device: torch.device, dataloader_idx: int) -> Any:
            cost.take()
            return batch

        setup.model.transfer_batch_to_device = transfer  # type: ignore[method-assign]

    return plant


def of_objects(number: int) -> Fault:
    """Batches with pairs of numbers beside the samples, as lists of edges or boxes are."""

    def plant(setup: Setup) -> None:
        pairs = [(index, index + 1) for index in range(number)]
        step = setup.model.training_step
        setup.loader["collate_fn"] = lambda samples: (*default_collate(samples), pairs)
        setup.model.training_step = lambda batch, batch_idx: step(batch[:2], batch_idx)  # type: ignore[method-assign]

    return plant


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


def chosen_slowly(ms: float, *, burns: bool = False) -> Fault:
    """A sampler that takes its time for each batch; none with 0 ms."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["sampler"] = Cost(ms=ms, burns=burns)
        setup.loader["sampler"] = Choosing(len(setup.items), setup.batch_size, cost)

    return plant


def prepared_after_the_move(ms: float) -> Fault:
    """``on_after_batch_transfer`` computes in Python; nothing with 0 ms."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["transfer"] = Cost(ms=ms, burns=True)

        def prepare(batch: Any, dataloader_idx: int) -> Any:
            cost.take()
            return batch

        setup.model.on_after_batch_transfer = prepare  # type: ignore[method-assign]

    return plant


def fewer_epoch_steps(epochs: int) -> Fault:
    """The same steps in so many epochs; no fault."""

    def plant(setup: Setup) -> None:
        setup.items.size = setup.steps // epochs * setup.batch_size

    return plant
