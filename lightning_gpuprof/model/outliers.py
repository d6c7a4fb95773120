"""Steps far above the band of ordinary steps, and what they can be blamed on."""

from collections.abc import Iterable, Mapping

import msgspec

from lightning_gpuprof.model.phases import Phase

UNLIKELY = 0.01
"""Chance of as many pauses all lying in some phases, below which a machine that pauses has not made them. Heuristic."""


class Outliers(msgspec.Struct, frozen=True, kw_only=True):
    """Steps far above the band of ordinary steps: step time > median + max(5 * 1.4826 * MAD, 0.5 * median).

    Counted over unprofiled steps after warm-up that are not first or last of an epoch and hold no validation or
    checkpoint.
    """

    count: int
    checked: int
    limit_ms: float
    """The lower one, where steps with and without an optimizer step have one each."""
    excess_ms: float
    """Sum over outliers of step time minus median of their kind: those with an optimizer step, and those without."""
    total_ms: float
    """Time of all checked steps."""
    worst_ms: float
    excess_by_phase_ms: Mapping[Phase, float]
    """Excess over the phase's median in outlying steps; sums to about ``excess_ms``."""
    batches: tuple[int, ...] = ()
    """``total_batch_idx`` of up to 20 of the longest."""
    rest_excess_ms: float | None = None
    """``excess_ms`` without the two longest, which can be accidents; None: not known."""
    delayed_ratio: float | None = None
    """Share of ``excess_ms`` for which the main thread was ready to run but had no CPU; None: not known."""

    def some_batches(self, every: int | None = None) -> str:
        """The first of :attr:`batches` in words; of stalls that come every so many steps only those on that grid."""
        found = sorted(batch for batch in self.batches if every is None or (batch - self.batches[0]) % every == 0)
        shown = ", ".join(str(batch) for batch in found[:8])
        return f"{shown} and more" if len(found) > 8 else shown


class Stalls(msgspec.Struct, frozen=True, kw_only=True):
    """Outlying steps with what else is known of the run, so that the program can be separated from the machine."""

    outliers: Outliers
    """Without the excess in which other programs had the main thread's CPU, where that was measured."""
    attributed_ms: Mapping[Phase, float]
    """The excess per phase that is not waiting for a CPU, also where that was not measured, nor for batches that were
    made in time."""
    every: int | None
    """Steps after which the longest stalls come again, if they lie on such a grid; others may lie between."""
    made_in_time: bool
    """Making all batches took less time than the stalls that wait for one: it is not their reason."""
    alike: bool
    """The excess lies in several phases, in the proportions of the ordinary step, and not on a grid: batches differ in
    size, or something stops the process anywhere."""
    in_slow_levels: bool
    """Four fifths of the excess are that of parts of the run whose ordinary step is an outlying one."""
    usual_ratio: Mapping[Phase, float]
    """Share of each phase in the ordinary step."""
    as_many: float
    """How many stalls as long as the longest hold the excess."""

    def mostly_two(self, least_ratio: float) -> bool:
        """Whether it is the two longest that pass a share of the time."""
        rest_ms = self.outliers.rest_excess_ms
        return rest_ms is not None and not rest_ms >= least_ratio * self.outliers.total_ms

    def chance(self, phases: Iterable[Phase]) -> float:
        """Chance that as many pauses of the machine all lie in these phases, by their share of the step."""
        part: float = min(1.0, sum(self.usual_ratio.get(phase, 0.0) for phase in phases)) ** self.as_many
        return part

    def may_be_pauses(self, phases: Iterable[Phase], most_chance: float) -> bool:
        """Whether a machine that pauses now and then may have made them: not on a grid, and where pauses would lie.

        Args:
            phases: Those that hold most of the excess.
            most_chance: Of as many pauses all lying there, above which they may be pauses; 0 to 1.
        """
        return self.every is None and self.chance(phases) > most_chance


def dominant_phases(excess_ms: Mapping[Phase, float], named_ratio: float) -> list[tuple[Phase, float]]:
    """The phases that together hold most of an excess.

    Args:
        excess_ms: Excess per phase.
        named_ratio: Phases are taken until they hold so much.

    Returns:
        Largest first, each with its ratio of the whole excess; ``loop`` with 0 if no phase has any.
    """
    whole_ms = sum(excess_ms.values())
    found: list[tuple[Phase, float]] = []
    held = 0.0
    for phase, ms in sorted(excess_ms.items(), key=lambda item: item[1], reverse=True):
        if ms <= 0 or (found and held >= named_ratio):
            break
        found.append((phase, ms / whole_ms))
        held += ms / whole_ms
    return found or [("loop", 0.0)]
