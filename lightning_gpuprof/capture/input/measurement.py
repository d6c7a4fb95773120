"""Measures each DataLoader iterator of a stage from inside while the stage runs."""

import os
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch.utils.data import DataLoader

from lightning_gpuprof.capture.conditions.loader_facts import flattened
from lightning_gpuprof.capture.input import torch_private
from lightning_gpuprof.capture.input.order import find_order_source
from lightning_gpuprof.capture.input.padding import Looks
from lightning_gpuprof.capture.input.probe import Probe
from lightning_gpuprof.capture.input.sampler import InputSampler, LiveIterator, queue_length
from lightning_gpuprof.capture.input.slots import SlotWriter, Table
from lightning_gpuprof.capture.input.worker import ProbedLoop
from lightning_gpuprof.capture.replaced_method import replace_method


@dataclass(eq=False, repr=False)
class InputMeasurement:
    """Puts a probe into the workers of a trainer's loaders, at the moment in which torch starts them.

    ``DataLoader._get_iterator`` has ours in its place from :meth:`begin` to :meth:`end`; it does nothing but call its
    own one for any loader that is not of this trainer. Only during that call torch's worker loop has ours in its place.
    Loaders, datasets and their attributes are not touched.
    """

    loaders: Callable[[], object]
    """Gives the loaders of the stage: one, or a collection."""
    _: KW_ONLY
    on_failure: Callable[[Exception], None]
    """Called with a failure of ours; nothing is measured then."""
    notice: Callable[[str], None]
    """Called with a sentence that says why nothing, or some of it, is not measured."""

    def __post_init__(self) -> None:
        self.iterators: list[LiveIterator] = []
        self._thread, self._process = threading.get_ident(), os.getpid()
        self._undo: Callable[[], None] | None = None
        self._own: list[torch_private.OwnFetcher | torch_private.TimedOrder] = []
        """Those at work in this process; of earlier iterators nothing is kept."""
        self._looks: dict[int, Looks] = {}
        """By the number of the loader."""
        self._loop: Any = None
        """Torch's worker loop, while ours is in its place."""
        self._next: LiveIterator | None = None
        """What the iterator that is being made will be."""
        self._outer: list[LiveIterator | None] = []
        """What those will be during whose making it is made: a dataset may make iterators in its own."""

    def begin(self) -> None:
        """From now on iterators are measured."""
        missing = torch_private.missing_parts()
        if missing:
            self.notice(f"DataLoader workers are not measured: this version of torch has changed {missing}")
            return
        self._undo = replace_method(DataLoader, "_get_iterator", self._make_iterator)

    def sampler(self) -> InputSampler:
        """What reads the measurements."""
        return InputSampler(self.iterators)

    def end(self) -> None:
        """Torch is as it was; what runs goes on unmeasured, or measures for nobody. A second call does nothing."""
        self._uninstall_probe()
        if self._undo is not None:
            self._undo()
        self._undo = None
        while self._own:
            self._own.pop().give_back()

    def remove_files(self) -> None:
        """No file of ours is left, whatever became of the sampler."""
        for one in (*self.iterators, *self._outer, self._next):
            if one is not None:
                one.table.remove_file()

    # ----------------------------------------------------------------------------------------------------------------

    def _make_iterator(self, original: Callable[[Any], Any], loader: Any) -> Any:
        self._fenced(self._before_iterator, loader)
        try:
            iterator = original(loader)
        except BaseException:
            self._fenced(self._after_iterator, loader, None)
            raise
        self._fenced(self._after_iterator, loader, iterator)
        return iterator

    def _fenced(self, step: Callable[..., None], *arguments: Any) -> None:
        """Torch called; a failure of ours ends here, and the measuring with it."""
        try:
            step(*arguments)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        try:
            self.end()
        finally:
            self.on_failure(error)

    def _failed_look(self, error: Exception) -> None:
        """Most likely in code of the user's: nothing else ends with it."""
        self.notice(f"padding and shapes of batches are no longer measured: {type(error).__name__} in a look at one")

    def _before_iterator(self, loader: Any) -> None:
        if not self._in_own_thread():
            return
        self._outer.append(self._next)
        self._next = None
        if self._undo is not None:
            self._install_probe(loader)

    def _after_iterator(self, loader: Any, iterator: Any) -> None:
        if not self._in_own_thread():
            return
        try:
            self._uninstall_probe()
            if iterator is not None:
                self._take(loader, iterator)
        finally:
            self._discard_next()
            self._next = self._outer.pop() if self._outer else None

    def _in_own_thread(self) -> bool:
        """A forked worker has inherited all this, and must not take for its own what was under way."""
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def _install_probe(self, loader: Any) -> None:
        number = next((n for n, one in enumerate(flattened(self.loaders())) if one is loader), None)
        if number is None:
            return
        workers = int(loader.num_workers)
        batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        batch_size = batch_size if isinstance(batch_size, int) else None
        if not workers:
            self._next = LiveIterator(
                loader=number, table=Table.of_this_process(), workers=0, batch_size=batch_size or None
            )
            return
        module = torch_private.worker_module()
        loop = module._worker_loop
        if torch_private.loop_arguments(loop) is None:
            self.notice("DataLoader workers are not measured: other code has replaced their loop")
            return
        table = Table.for_workers(workers)
        self._next = LiveIterator(loader=number, table=table, workers=workers, batch_size=batch_size)
        self._loop = loop
        module._worker_loop = ProbedLoop(table.path, loop)

    def _uninstall_probe(self) -> None:
        if self._loop is None:
            return
        module = torch_private.worker_module()
        if isinstance(module._worker_loop, ProbedLoop):
            module._worker_loop = self._loop
        self._loop = None

    def _discard_next(self) -> None:
        """Nothing became of the iterator that was to be made: its memory has a file."""
        left, self._next = self._next, None
        if left is not None:
            left.table.close()

    def _take(self, loader: Any, iterator: Any) -> None:
        made = self._next
        if made is None or self._undo is None:
            return
        if made.workers:
            if len(iterator._workers) != made.workers:
                return
            made.seed = iterator._base_seed
            made.capacity = made.workers * int(loader.prefetch_factor or 1)
            made.ready = queue_length(iterator._data_queue)
            if iterator._data_queue is not iterator._worker_result_queue:
                made.unpinned = queue_length(iterator._worker_result_queue)
        self._own = [one for one in self._own if one.alive]
        if not made.workers:
            fetcher = iterator._dataset_fetcher
            probe = Probe(SlotWriter(made.table.memory), fetcher.dataset, on_failure=self._failed)
            self._own.append(torch_private.OwnFetcher(fetcher, probe))
        makers = torch_private.nested_samplers(iterator)
        if makers and torch_private.uses_torch_sampling(iterator):
            looks = self._looks.setdefault(made.loader, Looks(self._failed_look))
            order = torch_private.TimedOrder(iterator, looks, self._failed)
            self._own.append(order)
            made.order, made.order_source = order.times_ns, find_order_source(makers)
            made.rows, made.shapes = looks.rows, looks.shapes
        made.ended = torch_private.shutdown_check(iterator)
        self.iterators.append(made)
        self._next = None
