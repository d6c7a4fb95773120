"""What was not measured: as a value that is kept, and as what is raised where a rule needs it."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.numbers import possible

_Measured = TypeVar("_Measured")
_Arguments = ParamSpec("_Arguments")


class MissingSignal(GpuProfError):  # noqa: N818 - a state of the data, not a mistake
    """A signal that a rule needs was not measured; ``why`` says which and, if known, for what reason."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class NotApplicable(MissingSignal):
    """What a rule judges cannot be in this run: the rule is left out of "not evaluated"."""


class Unmeasured(msgspec.Struct, frozen=True, kw_only=True):
    """What was not measured."""

    why: str
    is_possible: bool = True
    """Whether the run could have it; else rules that need it do not apply."""


NOT_COMPUTED = Unmeasured(why="it was not computed")


def measured(value: _Measured | Unmeasured) -> _Measured:
    """A value that was measured.

    Raises:
        NotApplicable: It cannot be in this run.
        MissingSignal: It was not.
    """
    if isinstance(value, Unmeasured):
        raise (MissingSignal if value.is_possible else NotApplicable)(value.why)
    return value


def or_unmeasured(compute: Callable[_Arguments, _Measured]) -> Callable[_Arguments, _Measured | Unmeasured]:
    """The function with :class:`Unmeasured` as its result where it raises :class:`MissingSignal`."""

    @functools.wraps(compute)
    def computed(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Measured | Unmeasured:
        try:
            return compute(*args, **kwargs)
        except MissingSignal as missing:
            return Unmeasured(why=missing.why, is_possible=not isinstance(missing, NotApplicable))

    return computed


def require_possible(what: str, *values: float) -> None:
    """Take impossible numbers for what they are: not measured.

    Raises:
        MissingSignal: One of the values is negative or not finite.
    """
    if not all(possible(value) for value in values):
        raise MissingSignal(f"{what} is not a valid number")
