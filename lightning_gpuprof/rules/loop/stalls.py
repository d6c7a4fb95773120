"""What validation and checkpoints share: their part of the run, and what doing them less often gains."""

import math
from abc import abstractmethod
from typing import ClassVar

import msgspec

from lightning_gpuprof.model.metrics import Recurring
from lightning_gpuprof.rules.base import Cost, FamilyRule, Metrics, percent, require_possible, seconds


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """What a recurring part of a run takes of it."""

    part: Recurring
    total_s: float
    """Of the run, without setup and teardown."""
    ratio: float
    """The part's share of that."""
    rarer: int
    """How many times less often it should happen."""
    cost: Cost

    @property
    def remains_once(self) -> bool:
        """Whether it then happens only once in the run: that has to be said."""
        return self.part.count < 2 * self.rarer

    def words(self, happened: str, *, each: bool = True) -> str:
        """``Validation ran 5 times, 480 ms each: 2.40 s in total, 54 % of the training time (setup excluded)``.

        Args:
            happened: The begin: what happened how often.
            each: Whether the mean time of one is said where there are several.

        Returns:
            One sentence with its full stop.
        """
        one = f", {seconds(self.part.total_s / self.part.count)} each" if each and self.part.count > 1 else ""
        total = f"{seconds(self.part.total_s)}{' in total' if self.part.count > 1 else ''}"
        return f"{happened}{one}: {total}, {percent(self.ratio)} of the training time (setup excluded)."


class StallRule(FamilyRule[Stall]):
    """A rule about a part of the run that recurs while training waits."""

    name: ClassVar[str]
    """The part, in words."""
    least_ratio: float
    """Share of the wall time from which it speaks; a threshold of each rule."""
    wanted_ratio: float
    """Share of the wall time that it may take; likewise."""
    most_times_rarer: int
    """How many times less often it may happen at most; likewise."""

    def look(self, metrics: Metrics) -> Stall | None:
        """The part over the whole fit, if it takes enough of it. Otherwise None."""
        total_s, part = metrics.run_s, self.part(metrics)
        require_possible(f"the time of {self.name}", part.total_s)
        ratio = part.total_s / total_s
        if part.count == 0 or not ratio >= self.least_ratio:
            return None
        rest_s = max(total_s - part.total_s, 1e-9)
        wanted = math.ceil(part.total_s * (1 - self.wanted_ratio) / (self.wanted_ratio * rest_s))
        rarer = max(2, min(wanted, self.most_times_rarer, part.count))
        cost = metrics.run_cost(min(part.total_s, total_s))
        return Stall(part=part, total_s=total_s, ratio=min(1.0, ratio), rarer=rarer, cost=cost)

    @abstractmethod
    def part(self, metrics: Metrics) -> Recurring:
        """The part of the run."""
