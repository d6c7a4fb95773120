"""A statistic drawn of two runs flows in, whether too few steps are independent flows out, and what counts then.

What can be said all the same: runs whose difference is larger than the spread of both together have changed, and runs
whose difference with that spread is below the threshold have not.
"""

from __future__ import annotations

from lightning_gpuprof.analyze.comparison.resampling import MIN_BLOCKS, Drawn


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


def half_width(before: Drawn, after: Drawn) -> float:
    """Half of the interval that then stands in: from the 5th to the 95th percentile of the steps, of both runs added.

    Two runs of one autoregression lie so far apart in less than 5 % of pairs from 50 steps on, also where they forget
    only over 99 of them (decision 68).
    """
    return before.spread + after.spread
