"""Runs torch's own worker loop and notes its times in a slot of shared memory.

This is what a worker process runs instead of torch's loop: a light object that pickles as its class and the path of the
memory. Whatever fails before the loop leaves the loop as it is without us.
"""

import contextlib
import mmap
import time
from collections.abc import Callable
from typing import Any

from lightning_gpuprof.capture import annotated_regions
from lightning_gpuprof.capture.input import slots, torch_private
from lightning_gpuprof.capture.input.probe import Probe


class ProbedLoop:
    """Stands in for ``torch.utils.data._utils.worker._worker_loop`` as the target of a worker process.

    Args:
        path: File with a slot per worker.
        loop: Torch's loop; None in a process that has its own.
    """

    __slots__ = ("_loop", "_path")

    def __init__(self, path: str, loop: Callable[..., None] | None = None) -> None:
        self._path = path
        self._loop = loop

    def __reduce__(self) -> tuple[Any, ...]:
        return ProbedLoop, (self._path,)

    def __call__(self, *arguments: Any) -> None:
        """Run the loop."""
        module = torch_private.worker_module()
        loop = module._worker_loop if self._loop is None else self._loop
        module._worker_loop = loop  # a forked worker has inherited us in its place
        with contextlib.suppress(Exception):  # whatever it is: the worker works
            arguments = _with_probe(self._path, loop, arguments)
        loop(*arguments)


def _with_probe(path: str, loop: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The loop's arguments, with a queue that reports when a batch is handed over."""
    places = torch_private.loop_arguments(loop)
    if places is None:
        return arguments
    worker = arguments[places.worker_id]
    with open(path, "r+b") as file:
        begin = slots.SLOT_BYTES * worker
        memory = memoryview(mmap.mmap(file.fileno(), 0))[begin : begin + slots.SLOT_BYTES]
    writer = slots.SlotWriter(memory)
    if writer.words[slots.PID]:  # it is somebody else's: two iterators were made at the same moment
        return arguments
    probe = Probe(writer, places.dataset_of(arguments), cpu=time.process_time_ns)
    writer.words[slots.SEED] = arguments[places.base_seed]
    regions = annotated_regions.Recording(lambda name, color: probe.region(name))
    fetchers = torch_private.WorkerFetchers(probe, lambda on: regions.begin() if on else regions.end())
    regions.begin()
    queue = torch_private.QueueOfWorker(arguments[places.data_queue], fetchers.end_of_batch)
    return (*arguments[: places.data_queue], queue, *arguments[places.data_queue + 1 :])
