"""The host time of each phase inside some intervals, every moment in one phase or in none."""

import numpy as np

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT


def phase_times_ns(linked: LinkedTrace, start_ns: int, end_ns: int) -> dict[Phase, Coverage]:
    """When the training was in each phase, between two moments.

    By the innermost range of the main thread that names a phase. While it names none, threads of autograd count: a
    script that calls ``loss.backward()`` itself has no range around it, and waits there for them. Other phases of other
    threads do not count: a loader may fetch beside the training.

    Args:
        linked: The trace.
        start_ns: First moment.
        end_ns: Last moment.
    """
    if linked.main_thread is None:
        return {}
    ranges = linked.phases.ranges
    found = _by_phase(linked, linked.main_thread, start_ns, end_ns)
    named = Coverage.union_of(*found.values())
    threads = np.unique(ranges.thread[ranges.thread != linked.main_thread]).tolist()
    others = [_by_phase(linked, thread, start_ns, end_ns).get("backward", NOWHERE) for thread in threads]
    found["backward"] = Coverage.union_of(found.get("backward", NOWHERE), Coverage.union_of(*others).without(named))
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
    counts = np.bincount(linked.phases.phase[begun], minlength=len(PHASES)).tolist()
    return {phase: count for phase, count in zip(PHASES, counts, strict=True) if count}


def _by_phase(linked: LinkedTrace, thread: int, start_ns: int, end_ns: int) -> dict[Phase, Coverage]:
    """Stretches of a thread's time by the phase of the innermost range."""
    ranges = linked.phases.ranges.where(linked.phases.ranges.thread == thread)
    edges = np.unique(np.clip(np.concatenate((ranges.start_ns, ranges.end_ns)), start_ns, end_ns))
    if len(edges) < 2:
        return {}
    starts, ends = edges[:-1], edges[1:]
    at = linked.phases.at(starts, np.full(len(starts), thread, np.int32))
    return {
        PHASES[number]: Coverage(starts[at == number], ends[at == number])
        for number in np.unique(at[at > ABSENT]).tolist()
    }
