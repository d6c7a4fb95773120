"""What determines the order of the samples, and how long that takes."""

import statistics
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from lightning_gpuprof.capture.call_sites import FRAMEWORKS, UserCode

_RECENT = 1000


class OrderSource(msgspec.Struct, frozen=True, kw_only=True):
    """Who gives the order of the samples."""

    name: str
    """Class."""
    code: tuple[str, int] | None = None
    """File and first line of its ``__iter__``; None for code that is not Python's."""

    def description(self, user_code: UserCode) -> str:
        """Its name, and where it is if that is the user's code: ``ByLength (data.py:31)``."""
        place = None if self.code is None else user_code.place(*self.code, "")
        return f"{self.name} ({place.strip()})" if place else self.name


def find_order_source(makers: Iterable[Any]) -> OrderSource:
    """The first of nested samplers, outermost first, that is no framework's, else the innermost."""
    found = list(makers)
    own = [one for one in found if type(one).__module__.partition(".")[0] not in FRAMEWORKS]
    chosen = type((own or found[-1:])[0])
    code = getattr(getattr(chosen, "__iter__", None), "__code__", None)
    return OrderSource(name=chosen.__qualname__, code=None if code is None else (code.co_filename, code.co_firstlineno))


class OrderTimes(msgspec.Struct, kw_only=True):
    """How long the indices of a batch took, over the iterators of a loader."""

    name: str
    calls: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    recent_ns: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))

    def take(self, times_ns: deque[int]) -> None:
        """Take all times out; more may be put in meanwhile."""
        taken = [times_ns.popleft() for _ in range(len(times_ns))]
        self.calls += len(taken)
        self.sum_ns += sum(taken)
        self.max_ns = max(self.max_ns, *taken, 0)
        self.recent_ns.extend(taken)

    def values(self) -> dict[str, float | None]:
        """As a sample has them."""
        median_ns = statistics.median(self.recent_ns) if self.recent_ns else None
        return {
            "calls_count": float(self.calls),
            "sum_s": self.sum_ns / 1e9,
            "max_s": self.max_ns / 1e9,
            "median_s": None if median_ns is None else median_ns / 1e9,
        }
