"""What a case is: a loop, the naps planned in it, and where they are to be found if not where they usually are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planted_loops.places import Place
from planted_loops.run import Run


@dataclass(frozen=True, kw_only=True)
class Case:
    """One of Lightning's loops.

    Attributes:
        name: What it is called.
        do: Builds and runs it, once or several times.
        naps: Place → seconds of one nap. Sizes differ, so that two places that are mixed up are seen.
        places: Where naps are to be found where that differs from :func:`planted_loops.places.place_of`.
        approximate: Places where a nap begins in another process, so that the wait for it may be shorter, too.
        varies: A part of the wall time with work in it that takes as long as it takes, such as starting processes;
            nothing is planted there, and what is found there is not compared. Empty: none.
        slow: Takes more than a few seconds.
        wrong: Why the accounting is known to be wrong here; empty if it is right.
    """

    name: str
    do: Callable[[Run], object]
    naps: Mapping[str, float]
    places: Mapping[str, Place] = field(default_factory=dict)
    approximate: frozenset[str] = frozenset()
    varies: str = ""
    slow: bool = False
    wrong: str = ""
