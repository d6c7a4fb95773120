"""The arguments that a stage's loaders were made with, and where the user's code makes them; no loader is iterated."""

import ast
import dis
import functools
import linecache
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from lightning_gpuprof.capture.conditions.reading import Reader, Subject
from lightning_gpuprof.model.shown_code import shown_code

MAX_LINES = 30
"""A call that goes on for longer is not looked through to its end."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A call in the user's code."""

    file: str
    """From the working directory on, if it is below that."""
    line: int
    """From 1."""
    text: str
    """The call in one line, without what may be secret; empty if it cannot be read."""


def flattened(loaders: object) -> Iterator[object]:
    """The loaders in whatever mappings and sequences of the user's."""
    if isinstance(loaders, Mapping):
        for value in loaders.values():
            yield from flattened(value)
    elif isinstance(loaders, Sequence) and not isinstance(loaders, (str, bytes)):
        for value in loaders:
            yield from flattened(value)
    elif loaders is not None:
        yield loaders


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
    while isinstance(function, functools.partial):
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


def _construction_site(subject: Subject) -> Place | None:
    """Where the user's code makes the training loader; None in other stages, and where loaders are given to ``fit``."""
    if subject.loaders is not subject.trainer.train_dataloader:
        return None
    for owner in (subject.trainer.datamodule, subject.module):
        if owner is not None and (place := first_call(type(owner), "train_dataloader", "DataLoader")) is not None:
            return place
    return None


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
    "loader.built_at": lambda s: None if (place := _construction_site(s)) is None else f"{place.file}:{place.line}",
    "loader.built_by": lambda s: None if (place := _construction_site(s)) is None else place.text or None,
    "loader.dataset_has_model": _dataset_has_model,
    **_facts("val_loader", _validation_loaders),
}


def first_call(owner: type, method: str, name: str) -> Place | None:
    """The first call by its name in a method, or else in another one of the same class.

    Compiled code says which names it uses, so that only the lines of the call itself are read. None: the class has no
    such call.

    Args:
        owner: The class; those that it derives from are searched, too, but not Lightning's.
        method: Is searched first.
        name: Of what is called.
    """
    codes = list(_methods(owner))
    for code in sorted(codes, key=lambda code: code.co_name != method):
        if name not in code.co_names:
            continue
        starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = starts.get(instruction.offset) or line
            if instruction.argval == name:
                return Place(file=_shown(code.co_filename), line=line, text=_call(code.co_filename, line, name))
    return None


def _methods(owner: type) -> Iterator[CodeType]:
    for one in owner.__mro__:
        if not one.__module__.startswith(("lightning", "pytorch_lightning", "torch", "builtins")):
            yield from (found.__code__ for found in vars(one).values() if isinstance(found, FunctionType))


def _shown(file: str) -> str:
    folder = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - no file is touched
    return file.removeprefix(folder)


def _call(file: str, line: int, name: str) -> str:
    lines = linecache.getlines(file)[line - 1 : line - 1 + MAX_LINES]
    _, found, rest = "".join(lines).partition(f"{name}(")
    closes = [place for place, character in enumerate(rest) if character == ")"]
    for end in closes:
        try:
            return shown_code(ast.unparse(ast.parse(found + rest[: end + 1], mode="eval")))
        except SyntaxError:
            continue
    return ""
