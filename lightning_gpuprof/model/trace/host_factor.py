"""How much longer the operators' host times are than before, and which stand out.

A window that another program, a profiler's option or a slower clock inflates makes every operator longer. That is said
once; an operator is slower or faster only beyond it.
"""

import math
import statistics
from collections.abc import Sequence

from lightning_gpuprof.model.trace.differences import Change, Status

MIN_OPERATORS = 5
"""Fewer than this are no "all" (heuristic)."""
MIN_SHARE_RATIO = 0.005
"""Of the host time of all; shorter operators scatter (heuristic)."""
THROUGHOUT_RATIO = 0.05
"""Ratios nearer to 1 than this are of single operators (heuristic)."""
PROPORTION_RATIO = 0.1
"""Inflation is not the same for each operator: so far beyond it one is still no exception (heuristic)."""


def host_factor(operators: Sequence[Change]) -> float | None:
    """How many times as long operators' own host time is throughout: the median over the operators.

    The median, so that one operator that really became slower, however long it is, does not count as all of them. None
    if it is about the same, or too few operators are there in both.
    """
    both = [one for one in operators if one.before_us > 0 and one.after_us > 0]
    least = [MIN_SHARE_RATIO * sum(times) for times in ([o.before_us for o in both], [o.after_us for o in both])]
    large = [one for one in both if one.before_us >= least[0] or one.after_us >= least[1]]
    if len(large) < MIN_OPERATORS:
        return None
    ratio = math.exp(statistics.median(math.log(_per_call_ratio(one)) for one in large))
    return None if abs(math.log(ratio)) <= math.log1p(THROUGHOUT_RATIO) else ratio


def beyond_factor(change: Change, ratio: float | None) -> Status:
    """The status of an operator beside what all of them changed.

    Args:
        change: Host time before and after, with its status by itself.
        ratio: Of all operators; None if they did not change throughout.

    Returns:
        ``same`` for what lies between 1 and that, up to :data:`PROPORTION_RATIO` beyond it; else the operator's own.
    """
    if ratio is None or change.status not in ("slower", "faster") or change.before_us <= 0:
        return change.status
    limit = ratio * (1 + PROPORTION_RATIO) if ratio > 1 else ratio / (1 + PROPORTION_RATIO)
    own = change.after_us / change.before_us
    if change.status == "slower":
        return "same" if own <= max(limit, 1.0) else "slower"
    return "same" if own >= min(limit, 1.0) else "faster"


def factor_sentence(ratio: float, side: str) -> str:
    """The sentence that says it once.

    Args:
        ratio: Of all operators.
        side: What to call the later one of the two.

    Returns:
        It begins in lower case and has no full stop.
    """
    what = "slower" if ratio > 1 else "faster"
    return (
        f"operators took {ratio:.2g}x as long on the host {side}, at the median: only those that became still {what} "
        f"are marked {what}"
    )


def _per_call_ratio(change: Change) -> float:
    ratio = change.after_us / change.before_us
    return ratio * change.before_count / change.after_count if change.before_count and change.after_count else ratio
