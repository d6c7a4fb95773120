"""The host time of each phase inside some intervals, every moment in one phase or in none."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.trace.distinct import distinct, numbered
from lightning_gpuprof.trace.host_phases import phase_of_name
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import OperatorSpans


def phase_times_ns(linked: LinkedTrace, start_ns: int, end_ns: int) -> dict[Phase, Coverage]:
    """When the training was in each phase, between two moments.

    By the innermost range of the main thread that tells a phase. While it tells none, threads of autograd count: a
    script that calls ``loss.backward()`` itself has no range around it, and waits there for them. Other phases of other
    threads do not count: a loader may fetch beside the training.

    Args:
        linked: The trace.
        start_ns: First moment.
        end_ns: Last moment.
    """
    found: dict[Phase, Coverage] = {}
    if linked.main_thread is None:
        return found
    ranges = linked.phases.ranges
    on_main = ranges.thread == linked.main_thread
    found = _by_phase(linked, ranges.where(on_main), linked.main_thread, start_ns, end_ns)
    told = _union(list(found.values()))
    others = [
        coverage
        for thread in distinct(ranges.thread[~on_main]).tolist()
        for phase, coverage in _by_phase(
            linked, ranges.where(ranges.thread == thread), thread, start_ns, end_ns
        ).items()
        if phase == "backward"
    ]
    if others:
        found["backward"] = _union([found.get("backward", NOWHERE), _union(others).without(told)])
    return {phase: coverage for phase, coverage in found.items() if coverage.total_ns}


def phase_counts(linked: LinkedTrace, start_ns: int, end_ns: int) -> dict[Phase, int]:
    """How many ranges of each phase begin between two moments, on all threads.

    Args:
        linked: The trace.
        start_ns: First moment.
        end_ns: Last moment.
    """
    ranges = linked.phases.ranges
    begun = (ranges.start_ns >= start_ns) & (ranges.start_ns < end_ns)
    counts: dict[Phase, int] = {}
    names = numbered(ranges.name[begun])
    for name, count in zip(names.values.tolist(), names.counts.tolist(), strict=True):
        if phase := phase_of_name(linked.trace.names[name]):
            counts[phase] = counts.get(phase, 0) + int(count)
    return counts


def _by_phase(
    linked: LinkedTrace, ranges: OperatorSpans, thread: int, start_ns: int, end_ns: int
) -> dict[Phase, Coverage]:
    """Stretches of a thread's time by the phase of the innermost range."""
    edges = distinct(np.clip(np.concatenate((ranges.start_ns, ranges.end_ns)), start_ns, end_ns))
    if len(edges) < 2:
        return {}
    inner = linked.phases.innermost(edges[:-1], np.full(len(edges) - 1, thread, np.int32))
    names = np.where(inner >= 0, linked.phases.ranges.name[inner], -1)
    phases = {int(name): phase_of_name(linked.trace.names[name]) for name in distinct(names) if name >= 0}
    found = {}
    for phase in dict.fromkeys(one for one in phases.values() if one):
        of_phase = np.isin(names, [name for name, told in phases.items() if told == phase])
        found[phase] = Coverage(edges[:-1][of_phase], edges[1:][of_phase])
    return found


def _union(parts: list[Coverage]) -> Coverage:
    if not parts:
        return NOWHERE
    return Coverage(np.concatenate([part.start_ns for part in parts]), np.concatenate([part.end_ns for part in parts]))
