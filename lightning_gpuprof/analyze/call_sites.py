"""The places in the user's code where the main thread was sampled most, and what they cost a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import LineRow

MAX_SITES = 5
MAX_LINES = 30
LEAST_LOOKS = 5
"""Of a line that has a row. Heuristic: its time is known to about a half."""
LEAST_RATIO = 0.01
"""Of the step; less is not shown. Heuristic."""


def most_seen(journal: Journal, slots: Iterable[int]) -> tuple[tuple[str, int], ...]:
    """Places and looks in these slots, most frequent first.

    Args:
        journal: The journal of one stage.
        slots: Numbers of slots.
    """
    return tuple(sorted(_seen(journal, slots).items(), key=lambda item: -item[1])[:MAX_SITES])


def lines(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask) -> tuple[LineRow, ...]:
    """The user's lines that hold most of a steady step, at most 30, the costliest first.

    A line's time is its share of the looks at a phase, times that phase's mean time: looks come at drawn moments, so
    their share is that of the time (Anderson et al., "Continuous profiling: where have all the cycles gone?", 1997).

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    if not steady.any():
        return ()
    step_ms = float(journal.steps.period_ns[steady].mean()) / 1e6
    found = []
    for phase, ns in phases.items():
        slots = [slot for slot, one in enumerate(journal.slots) if one.step_phase == phase]
        looks = sum(journal.looks.get(slot, 0) for slot in slots)
        phase_ms = float(ns[steady].mean()) / 1e6
        for place, seen in _seen(journal, slots).items():
            line_ms = phase_ms * seen / max(looks, seen)
            if seen >= LEAST_LOOKS and line_ms >= LEAST_RATIO * step_ms:
                found.append(LineRow(place=place, phase=phase, step_ms=line_ms, share=line_ms / step_ms, looks=seen))
    return tuple(sorted(found, key=lambda row: -row.step_ms)[:MAX_LINES])


def _seen(journal: Journal, slots: Iterable[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for slot in slots:
        for site, looks in journal.sites.get(slot, {}).items():
            counts[site] = counts.get(site, 0) + looks
    return counts
