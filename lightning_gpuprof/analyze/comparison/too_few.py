"""A statistic drawn of two runs flows in, whether too few steps are independent flows out, and what counts then.

What can be said all the same: runs whose difference is larger than the spread of both together have changed, and runs
whose difference with that spread is below the threshold have not.
"""

from __future__ import annotations

import math

from lightning_gpuprof.analyze.comparison.resampling import MIN_BLOCKS, Drawn

Range = tuple[float, float]


def why(before: Drawn, after: Drawn) -> str:
    """Why no interval is to be believed; empty if one is.

    Args:
        before: Of the earlier run.
        after: Of the later run.
    """
    name, drawn = min((("earlier", before), ("later", after)), key=lambda pair: pair[1].blocks)
    if not drawn.few:
        return ""
    return (
        f"steps depend on each other over {drawn.steps / drawn.blocks:.0f} steps in the {name} run: its {drawn.steps} "
        f"are worth only {drawn.blocks:.1f} independent blocks, {MIN_BLOCKS} are needed; train longer"
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


def ends(before: Range, after: Range, values: Range) -> Range:
    """The same as an interval of the difference, in its unit; where there is no logarithm the two ranges are added.

    Args:
        before: 5th and 95th percentile of the earlier run's steps.
        after: Of the later one's.
        values: The statistic of both.
    """
    width = half_width(before, after)
    if width is None or min(values) <= 0:
        apart = before[1] - before[0] + after[1] - after[0]
        return values[1] - values[0] - apart, values[1] - values[0] + apart
    return values[1] * math.exp(-width) - values[0], values[1] * math.exp(width) - values[0]
