"""Whether too few steps are independent to compare a statistic, and what is compared then.

What can be said all the same: runs whose difference is larger than the spread of both together have changed, runs
whose difference with that spread is below the threshold have not, runs whose speed levels lie apart have changed, and
so have runs with a large difference that a cautious interval confirms.
"""

import math

import numpy as np

from lightning_gpuprof.analyze.comparison.resampling import MIN_BLOCKS, Drawn

Range = tuple[float, float]

MIN_GAP = 0.75
"""Of the widest range of levels in one run: what moved within a run may move between two. Chosen by simulation so that
at most 5 % of equal runs are called changed (decision 108)."""


MIN_LARGE_SPEEDUP = 1.5
"""Of a difference that few independent steps can show, either way (heuristic): machines by themselves rarely change
their speed so much. Decision 161 has what was simulated."""

STUDENT_95 = 4.303
"""97.5 % point of Student's distribution with 2 degrees of freedom: as if three steps of a run were independent."""


def interval_obstacle(before: Drawn, after: Drawn) -> str:
    """Why no interval is to be believed.

    Args:
        before: Of the earlier run.
        after: Of the later run.

    Returns:
        One phrase without its full stop; empty if the interval is to be believed.
    """
    name, drawn = min((("earlier", before), ("later", after)), key=lambda pair: pair[1].blocks)
    if drawn.blocks >= MIN_BLOCKS:
        slow = " and ".join(name for name, drawn in (("earlier", before), ("later", after)) if drawn.slow)
        return f"the speed of the {slow} run drifted: two runs may differ as much; train longer" if slow else ""
    blocks = math.floor(10 * drawn.blocks) / 10  # 4.97 must not read as the 5 that are needed
    return (
        f"the {name} run stayed fast or slow for {drawn.steps / drawn.blocks:.0f} steps at a time: its {drawn.steps} "
        f"steps are worth {blocks:.1f} independent measurements, {MIN_BLOCKS} are needed; train longer"
    )


def levels_apart(before: Drawn, after: Drawn) -> Range | None:
    """Speed-up between the closest and between the farthest levels of two runs, as logarithms, lower end first.

    Each tenth of one run has to lie beyond each tenth of the other, and the gap between them has to be at least three
    quarters of what either run moved by itself.

    Args:
        before: Of the earlier run.
        after: Of the later run.

    Returns:
        None if the levels overlap, lie close, or are not known.
    """
    if before.levels is None or after.levels is None or min(before.levels[0], after.levels[0]) <= 0:
        return None
    low, high = math.log(before.levels[0] / after.levels[1]), math.log(before.levels[1] / after.levels[0])
    moved = max(math.log(levels[1] / levels[0]) for levels in (before.levels, after.levels))
    return (low, high) if max(low, -high) > MIN_GAP * moved else None


def after_growth(before: Drawn, after: Drawn) -> Range | None:
    """Speed-up of a run whose steps no longer grow, as logarithms, lower end first.

    What the earlier run moved is what was ended: its statistic is compared with the tenths of the later one.

    Args:
        before: Of the earlier run.
        after: Of the later run.

    Returns:
        None if its levels are not known.
    """
    whole = float(np.median(before.at))
    if after.levels is None or min(after.levels[0], whole) <= 0:
        return None
    return math.log(whole / after.levels[1]), math.log(whole / after.levels[0])


def growth_words(after: Drawn) -> str:
    """What is known of it; one sentence without its full stop, empty if the later run has no levels."""
    if after.levels is None:
        return ""
    low, high = after.levels
    return f"steps no longer grow: every tenth of the later run has {low:.3g} to {high:.3g} ms a step"


def levels_words(before: Drawn, after: Drawn) -> str:
    """What is known of two runs whose levels lie apart.

    Args:
        before: Of the earlier run.
        after: Of the later one.

    Returns:
        One sentence without its full stop; empty if one has no levels.
    """
    if before.levels is None or after.levels is None:
        return ""
    first, second = (f"{low:.3g} to {high:.3g} ms" for low, high in (before.levels, after.levels))
    way = "slower" if before.levels[0] > after.levels[0] else "faster"
    return (
        f"the speed changed within a run: every tenth of the earlier run ({first} a step) is {way} than every tenth of "
        f"the later one ({second})"
    )


def half_width(before: Range, after: Range) -> float | None:
    """Half of the interval of the speed-up that then stands in, as a logarithm.

    It is that from the 5th to the 95th percentile of the steps, of both runs added. Two runs of one autoregression lie
    so far apart in less than 5 % of pairs from 50 steps on, also where they forget only over 99 of them (decision 69).

    Args:
        before: 5th and 95th percentile of the earlier run's steps.
        after: Of the later one's.

    Returns:
        None if one of them is 0, so that there is no logarithm.
    """
    if min(before[0], after[0]) <= 0:
        return None
    return math.log(before[1] / before[0]) + math.log(after[1] / after[0])


def large_half_width(before: Drawn, after: Drawn) -> float:
    """Half of the 95 % interval of a large speed-up of few independent steps, as a logarithm.

    Args:
        before: Of the earlier run.
        after: Of the later one.

    Returns:
        A natural one; infinite where only a report is there.
    """
    return STUDENT_95 * math.hypot(*(drawn.error / float(np.median(drawn.at)) for drawn in (before, after)))


def ends(before: Range, after: Range, values: Range) -> Range:
    """The same as an interval of the difference, in its unit; where there is no logarithm the two ranges are added.

    Args:
        before: 5th and 95th percentile of the earlier run's steps.
        after: Of the later one's.
        values: The statistic of both.

    Returns:
        Lower and upper end of later minus earlier.
    """
    width = half_width(before, after)
    if width is None or min(values) <= 0:
        apart = before[1] - before[0] + after[1] - after[0]
        return values[1] - values[0] - apart, values[1] - values[0] + apart
    return values[1] * math.exp(-width) - values[0], values[1] * math.exp(width) - values[0]
