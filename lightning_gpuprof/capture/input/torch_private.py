"""The one place that touches private parts of torch's DataLoader: worker loop, fetchers, iterators, the pinning loop.

Read and tested with torch 2.13 and 2.14. Used are: ``torch.utils.data._utils.worker._worker_loop``, looked up by
``_MultiProcessingDataLoaderIter`` when it starts workers, with arguments named ``dataset`` (from torch 2.14 on
``dataset_holder``, a list of one), ``data_queue``, ``base_seed`` and ``worker_id``, which takes its fetcher from
``torch.utils.data._utils.fetch`` and gives each batch to ``data_queue.put``; ``_MapDatasetFetcher`` and
``_IterableDatasetFetcher`` with ``fetch``, ``dataset``, ``dataset_iter``, ``collate_fn``, ``auto_collation``;
``DataLoader._get_iterator``; of iterators ``_workers``, ``_base_seed``, ``_worker_result_queue``, ``_data_queue``,
``_dataset_fetcher``, ``_shutdown``, ``_index_sampler``, ``_next_index``, which asks the sampler or batch sampler for
the indices of a batch, in the main process, and ``_next_data``, which hands over the batch.

Moments are noted when torch *looks up* an attribute (``fetcher.fetch``, ``fetcher.dataset``, ``fetcher.collate_fn``,
``data_queue.put``) and never by a function around a call: no frame of ours is in the traceback that a worker sends.

Imports torch in functions only: spawned workers import this before anything else.
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

from lightning_gpuprof.capture.input.probe import Probe

if TYPE_CHECKING:
    from lightning_gpuprof.capture.input.padding import Looks

_REQUIRED = ("data_queue", "base_seed", "worker_id")
MAX_TIMES = 4096
"""Times of a sampler that wait to be taken out, which happens once a second."""
_MAX_NESTED = 4
"""Samplers in samplers that are looked into."""


class LoopArguments(msgspec.Struct, frozen=True, kw_only=True):
    """At which places the worker loop takes what we look at."""

    dataset: int
    data_queue: int
    base_seed: int
    worker_id: int
    in_list: bool
    """Whether the dataset is handed over in a list, from which the loop takes it."""

    def dataset_of(self, arguments: Sequence[Any]) -> Any:
        """The dataset among the loop's arguments, before the loop runs."""
        return arguments[self.dataset][0] if self.in_list else arguments[self.dataset]


def worker_module() -> Any:
    """Where the worker loop is looked up."""
    from torch.utils.data._utils import worker

    return worker


def loop_arguments(loop: object) -> LoopArguments | None:
    """Places of the worker loop's arguments; None if this is not the loop that is known."""
    if not isinstance(loop, FunctionType) or loop.__module__ != "torch.utils.data._utils.worker":
        return None
    names = list(inspect.signature(loop).parameters)
    dataset = next((name for name in ("dataset", "dataset_holder") if name in names), None)
    if loop.__qualname__ != "_worker_loop" or dataset is None or not set(_REQUIRED) <= set(names):
        return None
    places = {name: names.index(name) for name in _REQUIRED}
    return LoopArguments(dataset=names.index(dataset), in_list=dataset == "dataset_holder", **places)


def missing_parts() -> str:
    """Which of the private parts this version of torch does not have as they are known; empty if all are there."""
    from torch.utils.data import DataLoader
    from torch.utils.data._utils import fetch

    missing = []
    if loop_arguments(getattr(worker_module(), "_worker_loop", None)) is None:
        missing.append("the worker loop")
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        if not callable(getattr(getattr(fetch, name, None), "fetch", None)):
            missing.append(name)
    if not callable(getattr(DataLoader, "_get_iterator", None)):
        missing.append("DataLoader._get_iterator")
    return ", ".join(missing)


def shutdown_check(iterator: Any) -> Callable[[], bool]:
    """How to ask whether an iterator is gone, or has let its workers go, without keeping it."""
    found = weakref.ref(iterator)

    def ended() -> bool:
        iterator = found()
        return iterator is None or getattr(iterator, "_shutdown", False) is True

    return ended


def nested_samplers(iterator: Any) -> list[Any]:
    """The batch sampler of an iterator, with the sampler in it and what that may wrap; outermost first."""
    found: list[Any] = []
    one = getattr(iterator, "_index_sampler", None)
    while one is not None and len(found) < _MAX_NESTED:
        found.append(one)
        one = getattr(one, "sampler", None)
    return found


def uses_torch_sampling(iterator: Any) -> bool:
    """Whether an iterator asks for the indices of a batch as torch's own do."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    known = getattr(_BaseDataLoaderIter, "_next_index", None)
    return known is not None and getattr(type(iterator), "_next_index", None) is known


class TimedOrder:
    """Times how long an iterator waits for the indices of a batch; its class is exchanged, and given back.

    In each batch, for two looks at the clock and an append cost less than to decide when to leave them out. A few
    batches are looked at when they are handed over: before they go to a device.

    Args:
        iterator: Of a DataLoader. It is not kept alive.
        looks: Looks at batches of its loader.
        on_failure: Called when a time could not be taken; none is taken any more.
    """

    def __init__(self, iterator: Any, looks: Looks, on_failure: Callable[[Exception], None]) -> None:
        base = type(iterator)
        self.times_ns: deque[int] = deque(maxlen=MAX_TIMES)
        """Taken out by another thread; of too many the newest."""
        self._iterator = weakref.ref(iterator)
        self._base = base
        note, own_next, is_due, now = self.times_ns.append, base._next_index, looks.is_due, time.perf_counter_ns

        def _next_index(self: Any) -> Any:
            begin = -1
            try:
                begin = now()
            except Exception as error:
                on_failure(error)
            index = own_next(self)
            try:
                if begin >= 0:
                    note(now() - begin)
                if looking is not None and is_due():
                    self.__class__ = looking
            except Exception as error:
                on_failure(error)
            return index

        timing = self._timing = _stand_in(base, _next_index=_next_index)
        looking = self._looking = self._looking_class(timing, looks.look)
        iterator.__class__ = self._timing

    @property
    def alive(self) -> bool:
        """Whether anybody still has the iterator."""
        return self._iterator() is not None

    def give_back(self) -> None:
        """The iterator is its own again."""
        iterator = self._iterator()
        if iterator is not None and type(iterator) in (self._timing, self._looking):
            iterator.__class__ = self._base

    def _looking_class(self, timing: Any, look: Callable[[object], None]) -> type | None:
        """Of an iterator that looks at the next batch it hands over, and at no other."""
        own_data = getattr(timing, "_next_data", None)
        if own_data is None:
            return None

        def _next_data(self: Any) -> Any:
            self.__class__ = timing
            batch = own_data(self)
            look(batch)
            return batch

        return _stand_in(timing, _next_data=_next_data)


class FetcherClasses:
    """Classes that stand in for a fetcher's own: they note moments into one probe.

    Args:
        probe: Where moments go.
        base: The fetcher's own class.
    """

    def __init__(self, probe: Probe, base: type) -> None:
        self.base = base
        self._probe = probe
        self._leading: int | None = None
        self._grouped = False
        self._item_name = "dataset_iter" if "Iterable" in base.__name__ else "dataset"
        self.measuring = self._recording_class(base)
        """Notes when a fetch, its items and their collation begin."""

    def end(self, fetcher: Any) -> None:
        """A batch is there."""
        if self._leading is None:
            self._look_at(fetcher)
        self._probe.end(self._leading or 0, self._grouped)

    def _look_at(self, fetcher: Any) -> None:
        """How many moments come before the first item: ``dataset`` is asked for ``__getitems__`` first."""
        try:
            batched = self._item_name == "dataset" and bool(fetcher.auto_collation)
            self._grouped = batched and bool(getattr(vars(fetcher)["dataset"], "__getitems__", None))
            self._leading = 1 if batched else 0
        except Exception as error:
            self._probe.fail(error)

    def _recording_class(self, base: Any) -> type:
        begin, collate, moment, now, fail = (
            self._probe.begin,
            self._probe.collate,
            self._probe.moment,
            self._probe.now,
            self._probe.fail,
        )
        item_name = self._item_name
        bound = base.fetch.__get__

        def fetch(self: Any) -> Any:
            begin()
            return bound(self)

        def item(self: Any) -> Any:
            try:
                moment(now())
            except Exception as error:
                fail(error)
            return vars(self)[item_name]

        def collate_fn(self: Any) -> Any:
            collate()
            return vars(self)["collate_fn"]

        collating, items = property(collate_fn, _setter("collate_fn")), property(item, _setter(item_name))
        return _stand_in(base, fetch=property(fetch), collate_fn=collating, **{item_name: items})


def _stand_in(base: type, **attributes: Any) -> type:
    """A class that is called and described as its base, with some attributes of its own."""
    shown = {"__module__": base.__module__, "__doc__": base.__doc__, "__qualname__": base.__qualname__}
    return type(base.__name__, (base,), {**shown, **attributes})


def _setter(name: str) -> Callable[[Any, Any], None]:
    def store(self: Any, value: Any) -> None:
        vars(self)[name] = value

    return store


class WorkerFetchers:
    """In a worker: lets its fetchers be made of noting classes, and of ones that count while nothing is measured."""

    def __init__(self, probe: Probe, on_arm: Callable[[bool], object]) -> None:
        from torch.utils.data._utils import fetch

        self._probe = probe
        self._on_arm = on_arm
        self._current: tuple[Any, FetcherClasses, type] | None = None
        """The fetcher that has been at work since the last batch was handed over, its classes and the counting one."""
        self._noting = True
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            classes = FetcherClasses(probe, getattr(fetch, name))
            setattr(fetch, name, self._measuring_class(classes, self._counting_class(classes)))

    def _measuring_class(self, classes: FetcherClasses, counting: type) -> type:
        """The noting class, of which each fetch says which fetcher is in use."""
        found, noting = self, classes.measuring
        looked_up = vars(noting)["fetch"].fget

        def fetch(self: Any) -> Any:
            if vars(self).get("dataset") is not found._probe.dataset:  # of a DataLoader inside the dataset
                self.__class__ = classes.base
                return self.fetch
            if not found._noting:  # torch makes another one for each epoch
                self.__class__ = counting
                return self.fetch
            found._current = (self, classes, counting)
            return looked_up(self)

        noting.fetch = property(fetch)  # type: ignore[attr-defined]
        return noting

    def _counting_class(self, classes: FetcherClasses) -> type:
        """Of a fetcher while nothing is measured: only reports when a batch is begun and that its items are there."""
        found, base, start = self, classes.base, self._probe.start
        bound = base.fetch.__get__  # type: ignore[attr-defined]

        def fetch(self: Any) -> Any:
            start()
            return bound(self)

        def collate_fn(self: Any) -> Any:
            found._current = (self, classes, type(self))
            return vars(self)["collate_fn"]

        return _stand_in(base, fetch=property(fetch), collate_fn=property(collate_fn, _setter("collate_fn")))

    def end_of_batch(self) -> None:
        """The worker hands over a batch, or something else."""
        try:
            current, self._current = self._current, None
            if current is None:
                self._probe.no_batch()
                return
            fetcher, classes, counting = current
            classes.end(fetcher)
            armed = self._probe.armed
            wanted = classes.measuring if armed else counting
            if type(fetcher) is not wanted:
                fetcher.__class__ = wanted
            if armed is not self._noting:
                self._noting = armed
                self._on_arm(armed)
        except Exception as error:
            self._probe.fail(error)


class QueueOfWorker:
    """The queue that a worker puts its batches into; reports when ``put`` is asked for."""

    __slots__ = ("_end_of_batch", "_queue")

    def __init__(self, queue: Any, end_of_batch: Callable[[], None]) -> None:
        self._queue = queue
        self._end_of_batch = end_of_batch

    @property
    def put(self) -> Any:
        """The queue's own method."""
        self._end_of_batch()
        return self._queue.put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class OwnFetcher:
    """A fetcher that works in the main process; its class is exchanged, and given back. It is not kept alive.

    Args:
        fetcher: The fetcher of a single-process iterator.
        probe: Where moments go.
    """

    def __init__(self, fetcher: Any, probe: Probe) -> None:
        # Dataset and transforms are let go of with the fetcher; classes are in reference cycles and go much later.
        self._fetcher = weakref.ref(fetcher, lambda gone: probe.forget())
        self._probe = probe
        self._classes = FetcherClasses(probe, type(fetcher))
        self._measuring, self._counting = self._working_classes()
        fetcher.__class__ = self._measuring

    def give_back(self) -> None:
        """The fetcher is its own again."""
        fetcher = self._fetcher()
        if type(fetcher) in (self._measuring, self._counting):
            fetcher.__class__ = self._classes.base
        self._probe.forget()

    @property
    def alive(self) -> bool:
        """Whether anybody still has the fetcher."""
        return self._fetcher() is not None

    def _end(self, fetcher: Any) -> None:
        try:
            probe = self._probe
            if type(fetcher) not in (self._measuring, self._counting):
                return  # given back while it was at work
            self._classes.end(fetcher)
            wanted = self._classes.base if probe.off else self._measuring if probe.armed else self._counting
            if type(fetcher) is not wanted:
                fetcher.__class__ = wanted
        except Exception as error:
            self._probe.fail(error)

    def _working_classes(self) -> tuple[type, type]:
        probe, end, base = self._probe, self._end, self._classes.base
        own_fetch = base.fetch  # type: ignore[attr-defined]

        def measured(self: Any, index: Any) -> Any:
            probe.begin()
            try:
                data = own_fetch(self, index)
            except BaseException:
                probe.abort()
                raise
            end(self)
            return data

        def counted(self: Any, index: Any) -> Any:
            probe.start()
            data = own_fetch(self, index)
            end(self)
            return data

        return _stand_in(self._classes.measuring, fetch=measured), _stand_in(base, fetch=counted)
