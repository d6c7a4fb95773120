"""The places in the user's code where the main thread was sampled most, and what they cost."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.journal import CALLS
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import LineRow, StackRow

MAX_SITES = 5
MAX_LINES, MAX_STACKS = 30, 200
LEAST_LOOKS = 5
"""Of a line that has a row. Heuristic: its time is known to about a half."""
LEAST_KNOWN_RATIO = 0.25
"""Of the looks at a line, those at which its state is known; every other one is judged. Heuristic: where others have
the CPUs, states of a kind are known more often than others."""
LEAST_RATIO = 0.01
"""Of the step; less is not shown. Heuristic."""


def most_seen(journal: Journal, slots: Iterable[int]) -> tuple[tuple[str, int], ...]:
    """Places and looks in these slots.

    Args:
        journal: The journal of one stage.
        slots: Numbers of slots.

    Returns:
        Up to five, most frequent first; empty if the main thread was not seen there.
    """
    return tuple(_added(journal.sites, slots).most_common(MAX_SITES))


def lines(journal: Journal) -> tuple[LineRow, ...]:
    """The user's lines that hold most of the steps, at most 30, the costliest first.

    A line's time is its share of the looks at a phase, times that phase's time in all steps: looks come at drawn
    moments, so their share is that of the time (Anderson et al., "Continuous profiling: where have all the cycles
    gone?", 1997).
    """
    all_s = float(journal.steps.period_ns.sum()) / 1e9
    found = []
    for phase, slots, _, look_s in _looked(journal):
        for place, looks in _added(journal.sites, slots).items():
            if looks >= LEAST_LOOKS * journal.look_weight and looks * look_s >= LEAST_RATIO * all_s:
                spent_s = looks * look_s
                python, native, off_cpu = _shares(journal, slots, place, looks)
                found.append(
                    LineRow(
                        place=place,
                        phase=phase,
                        total_s=spent_s,
                        share=spent_s / all_s,
                        looks=looks,
                        python_ratio=python,
                        native_ratio=native,
                        off_cpu_ratio=off_cpu,
                        code=journal.code.get(place, ""),
                    )
                )
    return tuple(sorted(found, key=lambda row: -row.total_s)[:MAX_LINES])


def stacks(journal: Journal) -> tuple[StackRow, ...]:
    """What called the lines, at most 200 stacks, the costliest first; times as of :func:`lines`."""
    found = []
    for phase, slots, total_s, look_s in _looked(journal):
        counts = _added(journal.stacks, slots)
        rest_s = total_s - look_s * sum(counts.values())
        found.append(StackRow(phase=phase, frames=(), total_s=max(0.0, rest_s)))
        found += (
            StackRow(phase=phase, frames=tuple(stack.split(CALLS)), total_s=looks * look_s)
            for stack, looks in counts.items()
        )
    return tuple(sorted(found, key=lambda row: -row.total_s)[:MAX_STACKS])


def _looked(journal: Journal) -> Iterator[tuple[Phase, Sequence[int], float, float]]:
    """Each phase of the steps in which the main thread was seen: its slots, its seconds, and those of a look."""
    for phase in journal.phases:
        slots = [slot for slot, one in enumerate(journal.slots) if one.step_phase == phase]
        looks = sum(max(journal.looks.get(slot, 0), sum(journal.sites.get(slot, {}).values())) for slot in slots)
        total_s = float(journal.phases[phase].sum()) / 1e9 if looks else 0.0
        if total_s:  # not a validation that was outside of all steps
            yield phase, slots, total_s, total_s / looks


def _shares(journal: Journal, slots: Sequence[int], place: str, looks: int) -> tuple[float | None, ...]:
    """In Python, in native code, off the CPU: of the looks at a line at which that is known, if those are enough."""
    counts = [found for slot in slots if (found := journal.states.get(slot, {}).get(place)) is not None]
    known = sum(map(sum, counts))
    enough = known >= max(LEAST_LOOKS * journal.look_weight, LEAST_KNOWN_RATIO * looks)
    return tuple(sum(one[state] for one in counts) / known if enough else None for state in range(3))


def _added(by_slot: Mapping[int, Mapping[str, int]], slots: Iterable[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for slot in slots:
        counts.update(by_slot.get(slot, {}))
    return counts
