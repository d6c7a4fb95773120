"""Sleeps at named places: how long each is to take goes in, how long it really took comes out."""

import time
from collections.abc import Callable, Mapping


class Naps:
    """Sleeps where it is told to, and adds up how long that really took: a busy machine wakes late.

    Args:
        plan: Place → seconds of one sleep.
        awake: Plant the places, but do not sleep: the twin run that shows what the loop takes by itself.
    """

    def __init__(self, plan: Mapping[str, float], *, awake: bool = False) -> None:
        self.plan = dict(plan)
        self.slept_s: dict[str, float] = {}
        self.name: Callable[[str], str] = str
        """What a place is called now: the same code runs in several parts of a run."""
        self.awake = awake

    def __contains__(self, place: str) -> bool:
        """Whether something is planned there."""
        return place in self.plan

    def planned(self, prefix: str) -> list[str]:
        """What is planned below a prefix, without the prefix."""
        return [place.removeprefix(prefix) for place in self.plan if place.startswith(prefix)]

    def take(self, place: str, *, counts_as: str = "") -> None:
        """Sleep as long as is planned for the place, which may be not at all.

        Args:
            place: Where the sleep is.
            counts_as: The place that it is added up under, if another.
        """
        seconds = self.plan.get(place, 0.0)
        if self.awake or not seconds:
            return
        begin = time.perf_counter()
        time.sleep(seconds)
        self.add(self.name(counts_as or place), time.perf_counter() - begin)

    def add(self, place: str, seconds: float) -> None:
        """Count what was slept elsewhere, e.g. in another process."""
        self.slept_s[place] = self.slept_s.get(place, 0.0) + seconds
