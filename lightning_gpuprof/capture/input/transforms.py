"""Finds the lists of transforms in a dataset and puts timed ones in their place.

Only the *list* that a ``Compose`` goes through is exchanged, for the time of a measured batch, by one of the same kind
that notes when each transform is asked for. Dataset, ``Compose`` and transforms stay what they are, and no frame of
ours lies between the ``Compose`` and a transform that raises. Imports the standard library only.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

MAX_DEPTH = 4
MAX_OBJECTS = 200
MAX_LISTS = 8

Note = Callable[[Any, int], object]
"""Takes a transform and its time in ns."""


def _timed(items: Iterator[Any], now: Callable[[], int], note: Note) -> Iterator[Any]:
    for item in items:
        begin = now()
        yield item
        note(item, now() - begin)


def _identical(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether these are the very same objects in the same order."""
    return all(a is b for a, b in itertools.zip_longest(one, other, fillvalue=_FILL))


_FILL = object()


class _TimedList(list[Any]):
    """A list that notes how long each of its items was in use while somebody went through it."""

    now: Callable[[], int]
    note: Note
    own: list[Any]
    """The user's, for which this one stands; somebody may know it by another name and change it there."""
    known: tuple[Any, ...]
    """What was in both at first."""

    def __iter__(self) -> Iterator[Any]:
        if not _identical(self.own, self.known) and _identical(list.__iter__(self), self.known):
            return iter(self.own)
        return _timed(list.__iter__(self), self.now, self.note)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list(list.__iter__(self)),)


class _TimedTuple(tuple[Any, ...]):
    """As :class:`_TimedList`, of a tuple."""

    now: Callable[[], int]
    note: Note

    def __iter__(self) -> Iterator[Any]:
        return _timed(tuple.__iter__(self), self.now, self.note)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return tuple, (list(tuple.__iter__(self)),)


class TransformList:
    """One list of transforms, in its place in the object that goes through it.

    Args:
        holder: Attributes of that object.
        prefix: Names around those of its transforms.
    """

    def __init__(self, holder: dict[str, Any], prefix: str = "") -> None:
        self._holder = holder
        self._own: list[Any] | tuple[Any, ...] = holder["transforms"]
        self._known = tuple(self._own)
        self._timed: _TimedList | _TimedTuple | None = None
        self.named = [(transform, f"{prefix}{name_of(transform)}") for transform in self._known]
        """Each transform with its name."""

    @property
    def is_unchanged(self) -> bool:
        """Whether the list is still the one whose names are known, with the same transforms in the same order."""
        return self._holder.get("transforms") is self._own and _identical(self._own, self._known)

    def install_timers(self, now: Callable[[], int], note: Note) -> None:
        """Have each transform timed from now on.

        Args:
            now: The clock, in ns.
            note: Called with each transform and its time.
        """
        timed: _TimedList | _TimedTuple
        if isinstance(self._own, list):
            timed = _TimedList(self._own)
            timed.own, timed.known = self._own, self._known
        else:
            timed = _TimedTuple(self._own)
        timed.now, timed.note = now, note
        self._timed = timed
        self._holder["transforms"] = timed

    def restore(self) -> None:
        """The list is the user's own again, with what was changed in it meanwhile."""
        timed, self._timed = self._timed, None
        if timed is None or self._holder.get("transforms") is not timed:
            return
        self._holder["transforms"] = self._own
        if isinstance(timed, _TimedList) and not _identical(list.__iter__(timed), timed.known):
            timed.own[:] = list.__iter__(timed)


def name_of(transform: Any) -> str:
    """What people call a transform: its function's or class's name."""
    named = isinstance(transform, (FunctionType, BuiltinFunctionType, type))
    return str(transform.__qualname__ if named else type(transform).__qualname__)


def transform_lists(dataset: object) -> list[TransformList]:
    """The lists of transforms in a dataset, and in datasets inside it, as ``Subset`` and ``ConcatDataset`` have them.

    Looks at attributes that instances hold, at nothing that a class computes.
    """
    found: list[TransformList] = []
    _look(dataset, 0, "", found, set())
    return found


def _look(thing: object, depth: int, prefix: str, found: list[TransformList], seen: set[int]) -> None:
    # No function inside another: one that calls itself is a reference cycle, which keeps what it has found.
    if depth > MAX_DEPTH or len(seen) > MAX_OBJECTS or len(found) >= MAX_LISTS or id(thing) in seen:
        return
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is not dict or isinstance(thing, type):
        return
    seen.add(id(thing))
    if _is_list_of_transforms(attributes.get("transforms")):
        found.append(TransformList(attributes, prefix))
        for transform in attributes["transforms"]:
            _look(transform, depth + 1, f"{prefix}{type(thing).__qualname__} > ", found, seen)
    for name, value in list(attributes.items()):
        if name != "transforms" or value is not attributes.get("transforms"):
            for one in value[:MAX_LISTS] if name == "datasets" and type(value) in (list, tuple) else (value,):
                if _may_hold_transforms(name, one):
                    _look(one, depth + 1, prefix, found, seen)


def _is_list_of_transforms(value: object) -> bool:
    return type(value) in (list, tuple) and bool(value) and all(map(callable, value))  # type: ignore[call-overload]


def _may_hold_transforms(name: str, value: object) -> bool:
    """Datasets inside datasets, and what is called a transform or holds a list of such."""
    own = getattr(value, "__dict__", None)
    return type(own) is dict and ("transforms" in own or "dataset" in name or "transform" in name or "augment" in name)
