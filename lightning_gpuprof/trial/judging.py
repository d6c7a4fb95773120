"""Blocks of steps to results: each arm against the base of the same round, with a confidence interval."""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lightning_gpuprof.model.finding import MIN_GAIN_RATIO
from lightning_gpuprof.model.trial import BASE, Block, Outcome

WORTH = 1.0 / (1.0 - MIN_GAIN_RATIO)
"""Speed-up from which a change is worth making: the least gain of which rules speak."""
LEAST_ROUNDS = 3
"""Pairs below which nothing is decided. Heuristic: the interval of two is 3 times as wide."""
LEAST_S = 2.0
"""Measured seconds of an arm and the base below which nothing is decided. Heuristic: a few short blocks agree by
accident."""
BEYOND_ACCIDENT = 2.0
"""Speed-up or slow-down at the nearer end of the interval from which :data:`LEAST_S` is not asked for. Heuristic: a
batch that comes 20 times as fast is measured for milliseconds only, and its rounds take the time of its workers."""
LEAST_PAIRS = 2
"""The same for whole processes, whose blocks are longer, and of which each costs the program's start."""
SURE_RATIO = 0.01
"""Half of an interval, of the speed-up, below which more rounds say nothing new."""

NOTHING_RATIO = 0.08
"""Width of an interval in which a speed-up nearer to nothing than to :data:`WORTH` is called no gain. Heuristic: with
the noise of real fits, and 45 s, 97 % of changes without effect are called so, and 28 % of those that gain 4 %."""

_T_90 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
"""95 % quantiles of Student's t for 1, 2, 3, ... degrees of freedom: a 90 % interval has two sides."""
_NORMAL_90 = 1.645
_WIDER_90 = 1.524
"""For more degrees of freedom, over their number: the first term beyond the normal quantile (Cornish, Fisher 1937)."""


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """The speed-up of an arm over the base."""

    speedup: float
    """Geometric mean over rounds."""
    lower: float
    """Of the 90 % interval."""
    upper: float
    rounds: int
    is_enough: bool
    """Whether there are rounds and seconds enough to decide anything."""

    @property
    def outcome(self) -> Outcome:
        """What the interval says; undecided while it has room for both."""
        if not self.is_enough:
            return "undecided"
        if self.lower > 1.0 and self.speedup >= WORTH:
            return "faster"
        if self.upper < 1.0 and self.speedup <= 1.0 / WORTH:
            return "slower"
        is_nothing = self.speedup < math.sqrt(WORTH) and self.upper / self.lower <= 1 + NOTHING_RATIO
        if self.upper < WORTH or is_nothing or (self.is_sure and self.speedup < WORTH):
            return "no gain"
        return "undecided"

    @property
    def is_sure(self) -> bool:
        """Whether more rounds would say nothing new: a gain beside :data:`WORTH` would never be decided."""
        return self.upper / self.lower <= 1 + 2 * SURE_RATIO

    @property
    def is_decided(self) -> bool:
        """Whether more rounds would change neither outcome nor size in a way that matters."""
        return self.outcome == "no gain" or (self.outcome != "undecided" and self.is_sure)


def paired(blocks: Iterable[Block], arm: str) -> Paired | None:
    """Hold an arm against the base: Student's interval of the mean log ratio over rounds.

    What disturbs a whole round, as another program does, hits both and leaves the ratio; the base beside each block
    removes a drift. Rounds are drawn in another order each, so that no arm always comes after the same one.

    Args:
        blocks: Of all arms; of an arm in a round the last one counts.
        arm: Its name.

    Returns:
        None where no round has both.
    """
    blocks = tuple(blocks)
    ratios = _log_ratios(blocks, arm)
    if not ratios:
        return None
    n, mean = len(ratios), math.fsum(ratios) / len(ratios)
    if n < 2:
        return Paired(speedup=math.exp(mean), lower=0.0, upper=math.inf, rounds=n, is_enough=False)
    deviation = math.sqrt(math.fsum((ratio - mean) ** 2 for ratio in ratios) / (n - 1))
    quantile = _T_90[n - 2] if n - 2 < len(_T_90) else _NORMAL_90 + _WIDER_90 / (n - 1)
    half = quantile * deviation / math.sqrt(n)
    lower, upper = math.exp(mean - half), math.exp(mean + half)
    own = {block.round: block for block in blocks if block.arm == arm}
    if all(block.process for block in own.values()):
        is_enough = n >= LEAST_PAIRS
    else:
        both_s = math.fsum(block.seconds for block in blocks if block.arm in (BASE, arm) and block.round in own)
        is_sure = both_s >= LEAST_S or max(lower, 1.0 / upper) >= BEYOND_ACCIDENT
        is_enough = n >= LEAST_ROUNDS and is_sure
    return Paired(speedup=math.exp(mean), lower=lower, upper=upper, rounds=n, is_enough=is_enough)


def mean_step_ms(blocks: Iterable[Block], arm: str) -> float | None:
    """Mean step of an arm over all its blocks in ms.

    Args:
        blocks: Measured blocks of steps, of all arms.
        arm: Name of the arm.

    Returns:
        Over steps, not over blocks; None if it has none.
    """
    own = [block for block in blocks if block.arm == arm]
    steps = sum(block.steps for block in own)
    return 1e3 * math.fsum(block.seconds for block in own) / steps if steps else None


def faster_arms(blocks: Sequence[Block], arms: Iterable[str]) -> list[str]:
    """The arms that are faster than the base.

    Args:
        blocks: Measured blocks of steps, of all arms and of the base.
        arms: Names of the arms to judge.

    Returns:
        Names, the fastest first; without arms that cannot be judged.
    """
    found: Mapping[str, Paired | None] = {arm: paired(blocks, arm) for arm in arms}
    faster = {arm: one.speedup for arm, one in found.items() if one is not None and one.outcome == "faster"}
    return sorted(faster, key=lambda arm: -faster[arm])


def _log_ratios(blocks: Iterable[Block], arm: str) -> list[float]:
    by_round: dict[int, dict[str, float]] = {}
    for block in blocks:
        if block.steps and block.seconds > 0:
            by_round.setdefault(block.round, {})[block.arm] = block.seconds / block.steps
    return [math.log(one[BASE] / one[arm]) for one in by_round.values() if BASE in one and arm in one]
