"""Where the steps of an arm get their batches: the user's loaders, those with other arguments, or one batch."""

import copy
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import BatchSampler, DataLoader

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.journal import Value

IDLE_TIMEOUT_S = 5.0
"""Longest wait for workers of the arm before to have filled their queue."""
_POLL_S = 0.002
_MOST_AT_ONCE = 16
"""Workers beyond which a block is long enough without a whole number of their turns."""

_PLAIN = (
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "in_order",
    "timeout",
    "drop_last",
    "batch_size",
)
"""Arguments of a DataLoader that can be changed on a copy."""


class Source:
    """Batches without end. Unless a source says otherwise it has no workers, and no queue to wait for."""

    burst: int = 1
    """Batches that come at once where workers are behind: other blocks hold too few waits, or too many."""

    def take(self) -> tuple[Any, int, int]:
        """The next batch, its number and that of its loader, as CombinedLoader gives them.

        Raises:
            TrialError: The loaders gave no batch at all.
        """
        raise NotImplementedError

    def is_steady(self) -> bool:
        """Whether the queue stands as it will stand on."""
        return True

    def rest(self) -> None:
        """Wait until nothing is loaded any more, since another arm is measured next."""

    def begin_block(self) -> None:
        """Steps are measured from now on."""

    def spread_s(self, steps: int) -> float:
        """Seconds to add to a block: its steps' share in the starts of epochs, less the starts that fell in it."""
        return 0.0

    def worker_pids(self) -> list[int]:
        """Processes of its workers that run."""
        return []

    def unstarted_workers(self) -> int:
        """Workers that its next batch starts, because none have been yet."""
        return 0

    def close(self) -> None:
        """End the workers."""


class LoaderSource(Source):
    """Batches of a CombinedLoader, epoch after epoch.

    Args:
        combined: Of Lightning, with all loaders of the training.
        iterator: One that has begun; None begins one with the first batch.
    """

    def __init__(self, combined: Any, iterator: Iterator[Any] | None = None) -> None:
        self._combined = combined
        self.burst = math.lcm(*(min(_MOST_AT_ONCE, max(1, loader.num_workers)) for loader in _data_loaders(combined)))
        self._iterator = None if self._starts_anew() else iterator  # what a start costs is measured
        self._starts_s: list[float] = []
        self._in_block_s = 0.0
        self._taken = 0
        self._full = 0

    def take(self) -> tuple[Any, int, int]:
        """See :class:`Source`."""
        if self._iterator is None:
            return self._begin()
        try:
            batch: tuple[Any, int, int] = next(self._iterator)
        except StopIteration:
            return self._begin()
        self._taken += 1
        return batch

    def _begin(self) -> tuple[Any, int, int]:
        begin = time.perf_counter()
        self._iterator = iter(self._combined)
        try:
            batch: tuple[Any, int, int] = next(self._iterator)
        except StopIteration:
            raise TrialError("the training's DataLoader has no batches") from None
        self._starts_s.append(time.perf_counter() - begin)
        self._in_block_s += self._starts_s[-1]
        self._taken, self._full = 1, 0
        return batch

    def begin_block(self) -> None:
        """See :class:`Source`."""
        self._in_block_s = 0.0

    def spread_s(self, steps: int) -> float:
        """See :class:`Source`; 0 where workers stay, or no length is known."""
        if not self._starts_s or not self._starts_anew():
            return 0.0
        start_s = sum(self._starts_s) / len(self._starts_s)
        return steps * start_s / len(self._combined) - self._in_block_s

    def _starts_anew(self) -> bool:
        """Whether workers start in each epoch, and how many batches it has is known."""
        try:
            length = len(self._combined)
        except (TypeError, NotImplementedError, RuntimeError):
            return False  # the last: it has not begun
        again = any(loader.num_workers and not loader.persistent_workers for loader in _data_loaders(self._combined))
        return again and 0 < length < float("inf")

    def worker_pids(self) -> list[int]:
        """See :class:`Source`."""
        return [worker.pid for one in self._iterators() for worker in getattr(one, "_workers", ())]

    def unstarted_workers(self) -> int:
        """See :class:`Source`."""
        return worker_count(self._combined) if self._iterator is None else 0

    def is_steady(self) -> bool:
        """See :class:`Source`: the queue is empty, or stays full, or all that it held at first is used."""
        queues = self._queues()
        held = sum(size for size, _ in queues)
        outstanding = sum(most for _, most in queues)
        self._full = self._full + 1 if held >= 0.75 * outstanding else 0
        return not outstanding or held <= 1 or self._full >= 3 or self._taken > outstanding

    def rest(self) -> None:
        """See :class:`Source`."""
        end = time.perf_counter() + IDLE_TIMEOUT_S
        while any(held < outstanding for held, outstanding in self._queues()) and time.perf_counter() < end:
            time.sleep(_POLL_S)
        self._taken = self._full = 0

    def close(self) -> None:
        """See :class:`Source`."""
        self._combined.reset()
        self._iterator = None

    def _queues(self) -> list[tuple[int, int]]:
        """Of each loader with workers: batches that are ready, and batches that are asked for."""
        found = []
        for one in self._iterators():
            queue, asked = getattr(one, "_data_queue", None), getattr(one, "_tasks_outstanding", None)
            if queue is not None and asked is not None:
                early = sum(len(info) == 2 for info in getattr(one, "_task_info", {}).values())
                found.append((queue.qsize() + early, int(asked)))
        return found

    def _iterators(self) -> list[Any]:
        return list(getattr(getattr(self._combined, "_iterator", None), "iterators", ()))


class ReplaySource(Source):
    """One batch again and again: what a perfect loader would give.

    Containers are made again for each step; tensors are the same until a step has changed one in place.
    """

    def __init__(self, first: tuple[Any, int, int]) -> None:
        self._batch, self._number, self._loader = first
        self._versions: list[int] | None = None
        self._kept: Any = None

    def take(self) -> tuple[Any, int, int]:
        """See :class:`Source`."""
        return self._fresh(), self._number, self._loader

    def _fresh(self) -> Any:
        if self._kept is None and self._versions is not None and self._versions != self._now():
            self._kept = tree_map_only(torch.Tensor, torch.clone, self._batch)  # from now on a copy for each step
        self._versions = self._now()
        # detached: what a step asks of a tensor (a gradient) does not last
        make = torch.clone if self._kept is not None else lambda tensor: tensor.detach()
        return tree_map_only(torch.Tensor, make, self._batch if self._kept is None else self._kept)

    def _now(self) -> list[int]:
        found: list[int] = []
        tree_map_only(torch.Tensor, lambda tensor: found.append(tensor._version), self._batch)
        return found


def worker_count(combined: Any) -> int:
    """Workers of all loaders of a CombinedLoader, each on its own."""
    return sum(loader.num_workers for loader in _data_loaders(combined))


def has_already(combined: Any, arguments: Mapping[str, Value]) -> bool:
    """Whether a CombinedLoader has DataLoaders, and all of them these arguments.

    Args:
        combined: With all loaders of the training.
        arguments: Of ``DataLoader``.
    """
    loaders = _data_loaders(combined)
    absent = object()
    return bool(loaders) and all(
        getattr(loader, name, absent) == value for loader in loaders for name, value in arguments.items()
    )


def changed(combined: Any, arguments: Mapping[str, Value]) -> Any:
    """A CombinedLoader whose DataLoaders have other arguments, and workers of their own.

    Args:
        combined: As it is; not touched.
        arguments: Of ``DataLoader``.

    Returns:
        A copy that nobody iterates yet; datasets, and loaders that are no DataLoaders, are shared.

    Raises:
        TrialError: An argument cannot be changed on a copy, the values exclude each other, or none is a DataLoader.
    """
    loaders = [_changed_loader(one, arguments) if isinstance(one, DataLoader) else one for one in combined.flattened]
    if not any(isinstance(one, DataLoader) for one in loaders):
        kinds = ", ".join(sorted({type(one).__name__ for one in loaders}))
        raise TrialError(f"the training's batches come from {kinds}, not from a DataLoader")
    other = copy.copy(combined)
    other._iterator = None
    other.flattened = loaders
    return other


def mean_samples(combined: Any) -> float | None:
    """Samples of a batch of the first DataLoader, mean over an epoch; None: not known."""
    loader = next(iter(_data_loaders(combined)), None)
    size = None if loader is None else getattr(loader.batch_sampler, "batch_size", loader.batch_size)
    if loader is None or not isinstance(size, int):
        return None
    try:
        return float(min(size, len(loader.sampler) / len(loader)))  # type: ignore[arg-type]
    except (TypeError, NotImplementedError, ZeroDivisionError):
        return float(size)  # a stream


def _data_loaders(combined: Any) -> list[DataLoader[Any]]:
    return [loader for loader in combined.flattened if isinstance(loader, DataLoader)]


def _changed_loader(loader: DataLoader[Any], arguments: Mapping[str, Value]) -> DataLoader[Any]:
    unknown = sorted(set(arguments) - set(_PLAIN))
    if unknown:
        raise TrialError(f"DataLoader({unknown[0]}=...) cannot be changed while training runs")
    if "in_order" in arguments and not hasattr(loader, "in_order"):
        raise TrialError("DataLoader(in_order=...) needs torch 2.6")
    other = copy.copy(loader)
    state = vars(other)
    state |= {name: value for name, value in arguments.items() if name not in ("batch_size", "drop_last")}
    state["_iterator"] = None
    workers = other.num_workers
    if not workers:
        for name in ("prefetch_factor", "persistent_workers"):
            if arguments.get(name):
                raise TrialError(f"{name} needs workers: num_workers is 0")
        state |= {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
    elif other.prefetch_factor is None:
        state["prefetch_factor"] = 2  # torch's default
    if "batch_size" in arguments or "drop_last" in arguments:
        sampler = getattr(loader.batch_sampler, "sampler", None)
        if type(loader.batch_sampler) is not BatchSampler or sampler is None:
            raise TrialError("the loader has a batch sampler of its own: its batch size cannot be changed here")
        size = arguments.get("batch_size", loader.batch_size)
        drop = bool(arguments.get("drop_last", loader.drop_last))
        state |= {"batch_size": size, "drop_last": drop}
        state["batch_sampler"] = BatchSampler(sampler, size, drop)  # type: ignore[arg-type]
    return other
