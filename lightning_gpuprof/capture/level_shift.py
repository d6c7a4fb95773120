"""Notices that steps have become a little longer for good: from step times to the level before and the one since."""

import statistics
from collections import deque

MIN_BLOCK_STEPS = 10
MIN_BLOCK_NS = 200_000_000
"""Steps are looked at in blocks: ten, or those of 0.2 s where steps are short. Of a block counts its median."""
HISTORY = 60
MIN_HISTORY = 20
"""Blocks before, of which the usual level and its spread are taken."""
RARE = 20
NORMAL_QUANTILE = 1.6449
"""The spread is that above the level, from the median to the 95 % quantile, over the same of a normal distribution."""
MIN_SPREAD_RATIO = 0.015
"""It counts as at least so much of the level: few blocks may be alike by accident."""
ALLOWANCE = 1.0
LIMIT = 8.0
"""Of the sum of what blocks are above the level by more than the allowance, in spreads (Page 1954). Chosen by
``benchmarks/slowdowns.py``: at a limit of 5 there were false alarms."""
MIN_BLOCKS = 5
"""No block adds more than this part of the limit: a slowdown has 50 steps at the least, and a burst of 30 is none."""
MIN_SHIFT_RATIO = 0.03
"""Of the level; less is not worth a window."""


class LevelShift:
    """The level of ordinary steps and the sum of what the latest blocks are above it."""

    def __init__(self) -> None:
        self._block: list[int] = []
        self._block_ns = 0
        self._before: deque[float] = deque(maxlen=HISTORY)
        """Medians of the blocks until the sum last was zero."""
        self._since: deque[float] = deque(maxlen=HISTORY)
        """Of those after it; a level that stays above, but too little to report, must not make this grow."""
        self._sum = 0.0

    def add(self, period_ns: int) -> tuple[int, int] | None:
        """Take a step.

        Args:
            period_ns: Step time of an ordinary one.

        Returns:
            Level since the shift and the usual one before, in ns; the same shift is reported once. None: there is none.
        """
        self._block.append(period_ns)
        self._block_ns += period_ns
        if len(self._block) < MIN_BLOCK_STEPS or self._block_ns < MIN_BLOCK_NS:
            return None
        level, self._block, self._block_ns = statistics.median(self._block), [], 0
        if len(self._before) < MIN_HISTORY:
            self._before.append(level)
            return None
        ordered = sorted(self._before)
        usual, high = statistics.median(ordered), ordered[-1 - len(ordered) // RARE]
        spread = max((high - usual) / NORMAL_QUANTILE, MIN_SPREAD_RATIO * usual)
        above = (level - usual) / spread - ALLOWANCE
        self._sum = min(LIMIT, max(0.0, self._sum + min(above, LIMIT / MIN_BLOCKS)))
        self._since.append(level)
        if self._sum == 0:
            self._before += self._since
            self._since.clear()
            return None
        now = statistics.median(self._since)
        if self._sum < LIMIT - 1e-9 or now < (1 + MIN_SHIFT_RATIO) * usual:
            return None
        self._before, self._since, self._sum = self._since, deque(maxlen=HISTORY), 0.0
        return round(now), round(usual)
