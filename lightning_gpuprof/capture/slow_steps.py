"""Notices a slowdown that goes on, so that it can be traced while it lasts."""

import statistics
from collections import deque
from collections.abc import Sequence

import msgspec

from lightning_gpuprof.capture.level_shift import LevelShift
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED, Slot

HISTORY = 300
"""The band is that of so many ordinary steps before the latest."""
MIN_HISTORY = 50
"""Without so many there is no band to leave."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation of normally distributed values."""
SIGMAS = 5.0
MIN_EXCESS_RATIO = 0.5
"""The band is at least this much of the median wide."""

RECENT_STEPS = 5
RECENT_NS = 200_000_000
MAX_RECENT_STEPS = 50
"""The latest steps: five, or those of 0.2 s where steps are short, but not more than fifty. Steps of 1 ms are disturbed
for a few milliseconds all the time, which is over before a window could open."""
SLOW_RATIO = 0.6
"""A slowdown goes on while so many of the latest steps are above the band: three of five."""

COOLDOWN_STEPS = 200
COOLDOWN_NS = 30_000_000_000
"""After one slowdown the next is looked for when both are over. More than half of the history are then later steps, so
that a run that stays slow has a new band and is not reported again."""

_NOT_ORDINARY = PROFILED | FIRST_OF_EPOCH
_RARE_PHASES = ("validation", "checkpoint")


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """Steps have left the steady band and stay above it; medians in ns."""

    period_ns: int
    """Of the latest steps."""
    usual_ns: int
    """Of the steps before."""


class SlowSteps:
    """Keeps the band of ordinary steps: median + max(5 * 1.4826 * MAD, 0.5 * median).

    Ordinary steps are neither traced nor beside the analysis of a trace, not the first of an epoch, and hold no
    validation and no checkpoint. As long as these are too few for a band, those beside the analysis count as well; such
    a step is compared with others of its kind only, because that it is slower is our doing. A single long step and one
    that comes at every tenth are no slowdown: they are part of how the run is, no window could aim at them, and
    ``step-outliers`` reports them.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._slots_seen = 0
        self._rare: list[int] = []
        self._periods: deque[int] = deque(maxlen=HISTORY + MAX_RECENT_STEPS)
        """Of ordinary steps."""
        self._with_disturbed: deque[tuple[int, bool]] = deque(maxlen=HISTORY + MAX_RECENT_STEPS)
        """Of these and of those beside an analysis, and which is which."""
        self._shift = LevelShift()
        self.had_band = False
        """Whether there ever were enough steps to recognise a slow one."""
        self._quiet_until_batch = 0
        self._quiet_until_ns = 0

    def look(self, steps: Sequence[ClosedStep]) -> Slowdown | None:
        """Take the steps that ended since the last call, in order, and say whether a slowdown is going on now.

        Returns:
            The slowdown, or None; the same one is reported once.
        """
        last_ordinary: ClosedStep | None = None
        last_of_both: ClosedStep | None = None
        shifted: Slowdown | None = None
        new = self._slots[self._slots_seen :]
        self._slots_seen += len(new)
        self._rare += [slot.id for slot in new if slot.step_phase in _RARE_PHASES]
        for step in steps[-(HISTORY + MAX_RECENT_STEPS) :]:
            if self._is_usual(step):
                period_ns, disturbed = step.end_ns - step.start_ns, bool(step.flags & DISTURBED)
                self._with_disturbed.append((period_ns, disturbed))
                last_of_both = step
                if not disturbed:
                    self._periods.append(period_ns)
                    last_ordinary = step
                    if found := self._shift.add(period_ns):
                        shifted = Slowdown(period_ns=found[0], usual_ns=found[1])
        (before, recent), last = self._recent_and_before(), last_ordinary
        if len(before) < MIN_HISTORY:
            (before, recent), last = self._with_disturbed_steps(), last_of_both
        if len(before) < MIN_HISTORY:
            return None
        self.had_band = True
        if last is None or last.batch < self._quiet_until_batch or last.end_ns < self._quiet_until_ns:
            return None
        usual = statistics.median(before)
        deviation = MAD_TO_SIGMA * statistics.median(abs(p - usual) for p in before)
        limit = usual + max(SIGMAS * deviation, MIN_EXCESS_RATIO * usual)
        if sum(p > limit for p in recent) >= SLOW_RATIO * len(recent):
            shifted = Slowdown(period_ns=round(statistics.median(recent)), usual_ns=round(usual))
        if shifted is None:
            return None
        self._quiet_until_batch = last.batch + COOLDOWN_STEPS
        self._quiet_until_ns = last.end_ns + COOLDOWN_NS
        return shifted

    def _recent_and_before(self) -> tuple[list[int], list[int]]:
        """Periods before the latest, and the latest."""
        periods = list(self._periods)
        count = _recent(periods)
        return periods[-count - HISTORY : -count], periods[-count:]

    def _with_disturbed_steps(self) -> tuple[list[int], list[int]]:
        """The same with steps beside an analysis; those that the latest can be compared with."""
        steps = list(self._with_disturbed)
        count = _recent([period for period, _ in steps])
        before, recent = steps[-count - HISTORY : -count], steps[-count:]
        alike = any(disturbed for _, disturbed in recent)
        return [period for period, disturbed in before if disturbed or not alike], [period for period, _ in recent]

    def _is_usual(self, step: ClosedStep) -> bool:
        if step.flags & _NOT_ORDINARY:
            return False
        charged = step.charged
        return not any(charged[slot] for slot in self._rare if slot < len(charged))


def _recent(periods: Sequence[int]) -> int:
    """How many of the last periods are the latest."""
    count = total_ns = 0
    for period in reversed(periods):
        if count >= MAX_RECENT_STEPS or (count >= RECENT_STEPS and total_ns >= RECENT_NS):
            break
        count += 1
        total_ns += period
    return count
