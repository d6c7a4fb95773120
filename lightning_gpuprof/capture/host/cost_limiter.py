"""Limits something costly to a share of the time."""

from __future__ import annotations

from collections.abc import Callable


class CostLimiter:
    """Lets something be done as often as its cost allows, and not more often than wanted.

    Args:
        cost_ratio: Share of the time that it may take.
        clock_s: The clock by which its cost is measured: CPU time of the thread, or wall time.
        at_least_s: Time from one to the next even if it costs nothing.
    """

    def __init__(self, cost_ratio: float, clock_s: Callable[[], float], at_least_s: float = 0.0) -> None:
        self._cost_ratio = cost_ratio
        self._clock_s = clock_s
        self._at_least_s = at_least_s
        self._next_ns: int | None = None
        self._began: tuple[int, float] = (0, 0.0)

    def due(self, t_ns: int) -> bool:
        """Whether it may be done now; if so, :meth:`done` has to follow."""
        if self._next_ns is not None and t_ns < self._next_ns:
            return False
        self._began = (t_ns, self._clock_s())
        return True

    def done(self) -> None:
        """It is done, or has failed: its cost decides when it is due again."""
        t_ns, before_s = self._began
        cost_s = max(0.0, self._clock_s() - before_s)
        self._next_ns = t_ns + round(max(cost_s / self._cost_ratio, self._at_least_s) * 1e9)
