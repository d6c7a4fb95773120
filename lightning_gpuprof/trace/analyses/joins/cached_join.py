"""A join that is made once for all analyses, and let go of when nobody asks any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from lightning_gpuprof.trace.linked import LinkedTrace

T = TypeVar("T")


class CachedJoin(Generic[T]):
    """A join that is made when it is first asked for, once for each trace.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[LinkedTrace], T]) -> None:
        self._make = make
        self._known: WeakKeyDictionary[LinkedTrace, T] = WeakKeyDictionary()

    def __call__(self, linked: LinkedTrace) -> T:
        """The join of a trace."""
        found = self._known.get(linked)
        if found is None:
            found = self._known[linked] = self._make(linked)
        return found

    def forget(self, linked: LinkedTrace) -> None:
        """Let go of it, when nobody will ask soon: joins are as large as the tables."""
        self._known.pop(linked, None)
