"""A slice of the run's time that may bound it, and what a wait in a phase is called."""

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.finding import VerdictKind
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.rules.base import Metrics, Phase

KIND_OF_PHASE: dict[Phase, VerdictKind] = {
    "data_wait": "input-bound",
    "h2d": "transfer-bound",
    "sync": "sync-bound",
    "callbacks": "loop-bound",
    "logging": "loop-bound",
    "loop": "loop-bound",
}
"""What a stall in a phase is called; a stall in one of the model's own phases holds the host up."""

MIN_NAMED_RATIO = 0.01
"""Of the run: what is less is not named. Heuristic."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of the run's time that may bound it."""

    kind: VerdictKind
    ratio: float
    """Of the run's time without setup and teardown, the measure in which causes are compared; until :meth:`of_run`,
    of the step."""
    passes: bool
    """Whether its lower bound passes its threshold."""
    words: str
    headline: str = ""
    """Its name as a verdict, where that says more than the kind."""

    def of_run(self, in_steps: float) -> "Cause":
        """A cause in steps that have this share of the run."""
        return replace(self, ratio=self.ratio * in_steps)


def late_ranks(metrics: Metrics, ratio: float) -> str:
    """Ranks that are late for at least half of what is waited, and in what.

    Args:
        metrics: The run.
        ratio: What is waited, as a share of the step.

    Returns:
        One phrase that follows "waits for"; empty if there are none, if this rank is one of them, or if ranks were not
        compared.
    """
    times = metrics.ranks
    if not isinstance(times, RankTimes) or times.late.lost.lower_ratio <= 0.5 * ratio:
        return ""
    if metrics.run.get("rank") in times.late.ranks:
        return ""
    take = "takes" if len(times.late.ranks) == 1 else "take"
    return f"{times.late_name}, which {take} longer ({words_of(times.late.phase)})"
