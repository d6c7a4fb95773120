"""The arguments that a stage's loaders were made with, and where the user's code makes them; no loader is iterated."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from lightning_gpuprof.capture.conditions.call_places import Place, only_call
from lightning_gpuprof.capture.conditions.reading import Reader, Subject
from lightning_gpuprof.capture.fence import must_propagate


def flattened(loaders: object) -> Iterator[object]:
    """The loaders in whatever mappings and sequences of the user's."""
    return (loader for _, loader in _with_keys(loaders))


def _with_keys(loaders: object, keys: str = "") -> Iterator[tuple[str, object]]:
    """Each loader after its keys, as the user's code has them: ``["labelled"]``, ``[1]``."""
    if isinstance(loaders, Mapping):
        for key, value in loaders.items():
            yield from _with_keys(value, f"{keys}[{key!r}]")
    elif isinstance(loaders, Sequence) and not isinstance(loaders, (str, bytes)):
        for number, value in enumerate(loaders):
            yield from _with_keys(value, f"{keys}[{number}]")
    elif loaders is not None:
        yield keys, loaders


def datasets_of(loaders: object) -> list[Any]:
    """The datasets of all DataLoaders in whatever mappings and sequences of the user's."""
    return [loader.dataset for loader in flattened(loaders) if isinstance(loader, DataLoader)]


def _batch_size(loader: Any) -> Any:
    if loader.batch_size is not None:
        return loader.batch_size
    return getattr(loader.batch_sampler, "batch_size", None)


def _largest_loader(loaders: object) -> Any:
    """Of several DataLoaders the one with the largest batches; None if there is none of torch's."""
    found = [loader for loader in flattened(loaders) if isinstance(loader, DataLoader)]
    return max(found, key=lambda loader: loader.batch_size or 0, default=None)


def _kind(loaders: object) -> str | None:
    main = _largest_loader(loaders)
    if main is not None:
        return type(main).__qualname__
    return ", ".join(sorted({type(loader).__qualname__ for loader in flattened(loaders)}))


def _function_name(function: Any) -> str | None:
    while isinstance(function, partial):
        function = function.func
    return None if function is None else getattr(function, "__qualname__", type(function).__qualname__)


def _start_method(loader: Any) -> str | None:
    if not loader.num_workers:
        return None
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Without allow_none the question would fix the answer: the user could no longer choose.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _sampler(loader: Any) -> Any:
    """What gives the order; torch puts one that nobody asks beside a batch sampler of the user's own."""
    batches = loader.batch_sampler
    return loader.sampler if batches is None or type(batches) is BatchSampler else getattr(batches, "sampler", None)


def _shuffles(loader: Any) -> bool | None:
    sampler = _sampler(loader)
    if sampler is None:
        return None
    if isinstance(given := getattr(sampler, "shuffle", None), bool):  # a distributed one
        return given
    if hasattr(loader.dataset, "__iter__") and not hasattr(loader.dataset, "__getitem__"):
        return None  # its order is its own
    return isinstance(sampler, RandomSampler)


def _dataset_length(loader: Any) -> int | None:
    """Asked only where the sampler asks as well: it is the user's code, which may do anything."""
    if isinstance(_sampler(loader), (RandomSampler, SequentialSampler, DistributedSampler)):
        return len(loader.dataset)
    return None


_LOADER_FACTS: dict[str, Callable[[Any], object]] = {
    "num_workers": lambda loader: loader.num_workers,
    "batch_size": _batch_size,
    "pin_memory": lambda loader: loader.pin_memory,
    "persistent_workers": lambda loader: loader.persistent_workers,
    "prefetch_factor": lambda loader: loader.prefetch_factor,
    "drop_last": lambda loader: loader.drop_last,
    "multiprocessing_context": _start_method,
    "in_order": lambda loader: getattr(loader, "in_order", None),
    "worker_init_fn": lambda loader: loader.worker_init_fn is not None,
    "collate_fn": lambda loader: _function_name(loader.collate_fn),
    "sampler": lambda loader: None if (sampler := _sampler(loader)) is None else type(sampler).__qualname__,
    "batch_sampler": lambda loader: None if loader.batch_sampler is None else type(loader.batch_sampler).__qualname__,
    "shuffle": _shuffles,
    "dataset": lambda loader: type(loader.dataset).__qualname__,
    "dataset_length": _dataset_length,
}


def _main_loader_reader(read: Callable[[Any], object], loaders: Callable[[Subject], object]) -> Reader:
    def reader(subject: Subject) -> object:
        main = _largest_loader(loaders(subject))
        return None if main is None else read(main)

    return reader


def _facts(prefix: str, loaders: Callable[[Subject], object]) -> dict[str, Reader]:
    return {
        f"{prefix}.count": lambda s: len(list(flattened(loaders(s)))) or None,
        f"{prefix}.kind": lambda s: _kind(loaders(s)) or None,
        **{f"{prefix}.{name}": _main_loader_reader(read, loaders) for name, read in _LOADER_FACTS.items()},
    }


MAX_LOADERS = 16
"""Loaders of which each has facts of its own."""


def readers_of_each(loaders: object) -> dict[str, Reader]:
    """How to read what each of several DataLoaders was made with, and its keys: ``loader.1.num_workers``.

    Args:
        loaders: Of a stage.

    Returns:
        By the number of the loader in :func:`flattened`; of the first 16. Empty if there is only one, or if the user's
        collection cannot be walked through.
    """
    try:
        every = list(_with_keys(loaders))[:MAX_LOADERS]
    except Exception as error:
        if must_propagate(error):
            raise
        return {}
    if len(every) < 2:
        return {}
    readers: dict[str, Reader] = {}
    for number, (keys, loader) in enumerate(every):
        if isinstance(loader, DataLoader):
            facts = {name: partial(_read_of, read, loader) for name, read in _LOADER_FACTS.items()}
            facts |= {"key": partial(_read_of, str, keys), "kind": partial(_read_of, _kind, loader)}
            readers |= {f"loader.{number}.{name}": facts[name] for name in facts if name != "batch_size"}
    return readers


def _read_of(read: Callable[[Any], object], loader: object, _: Subject) -> object:
    return read(loader)


def _built_facts(prefix: str, find: Callable[[Subject], Place | None]) -> dict[str, Reader]:
    return {
        f"{prefix}.built_at": lambda s: None if (place := find(s)) is None else place.shown,
        f"{prefix}.built_by": lambda s: None if (place := find(s)) is None else place.text or None,
    }


def _built(subject: Subject) -> Place | None:
    """Where the user's code makes the training loader; None in other stages."""
    if not _is_fit(subject):
        return None
    source = subject.trainer.fit_loop._data_source.instance
    return _made(subject, source, ("train_dataloaders", 1), "train_dataloader")


def _validation_built(subject: Subject) -> Place | None:
    """Where it makes that of a fit's validation; None if the fit has none."""
    if not _is_fit(subject) or not any(True for _ in flattened(_validation_loaders(subject))):
        return None
    source = subject.trainer.fit_loop.epoch_loop.val_loop._data_source.instance
    return _made(subject, source, ("val_dataloaders", 2), "val_dataloader")


def _is_fit(subject: Subject) -> bool:
    return subject.loaders is not None and subject.loaders is subject.trainer.train_dataloader


def _made(subject: Subject, source: object, argument: tuple[str, int], method: str) -> Place | None:
    """Where a loader is made that is an argument of ``fit``, or else what a method of its source returns.

    Args:
        subject: What to read.
        source: What Lightning takes it from: the model, the data module, or what was given. As in lightning 2.6.
        argument: Name and position.
        method: Of the model or the data module. One that was set on the object itself is not looked for.

    Returns:
        None if that is not to be seen.
    """
    if source is not None and (source is subject.module or source is subject.trainer.datamodule):
        return None if method in vars(source) else only_call(type(source), method, "DataLoader")
    call = subject.stage_call
    return None if call is None else call.made(call.argument(*argument), "DataLoader")


def _validation_loaders(subject: Subject) -> object:
    """Of a fit; in a stage of its own validation's loaders are the ones that the steps are fed from."""
    loaders = subject.trainer.val_dataloaders
    return None if loaders is subject.loaders else loaders


def _dataset_has_model(subject: Subject) -> bool | None:
    """Workers get copies of such a dataset, whose model does not learn."""
    main = _largest_loader(subject.loaders)
    if main is None:
        return None
    # Methods only are asked for their owner: an object of the user's may compute what it is asked for.
    values = list(getattr(main.dataset, "__dict__", {}).values())
    held = {id(value.__self__) if isinstance(value, MethodType) else id(value) for value in values}
    return any(next(module.parameters(), None) is not None for _, module in subject.modules if id(module) in held)


FACTS: dict[str, Reader] = {
    **_facts("loader", lambda s: s.loaders),
    **_built_facts("loader", _built),
    "loader.dataset_has_model": _dataset_has_model,
    **_facts("val_loader", _validation_loaders),
    **_built_facts("val_loader", _validation_built),
}
