"""Phases of the main thread: disjoint slices of the time of each step."""

import msgspec
import numpy as np

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.trace.step_trace import WHOLE_WINDOW
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.joins.operator_phases import BACKWARD, FORWARD
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import ABSENT, Int64, Rows, Spans, distinct, extent_ns, summed

_MAY_HOLD_BACKWARD: frozenset[Phase] = frozenset({"backward", "optimizer"})
"""Ranges in which the main thread may wait for autograd; the optimizer's holds the closure with it."""


class PhasePieces(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches of the main thread's time in order, each in one phase or in none; all columns are equally long."""

    start_ns: Int64
    end_ns: Int64
    phase: Rows
    """Index into :data:`PHASES`; :data:`ABSENT` where nothing names a phase."""


def main_thread_phases(linked: LinkedTrace, steps: Steps) -> dict[Phase, Int64]:
    """Nanoseconds of each phase in each step on the main thread; see :class:`StepTrace` for what counts as what.

    Args:
        linked: The trace.
        steps: The trace's own, or what stands for them: see :func:`steps_or_window`.

    Returns:
        The phases that anything on the main thread names. In no step do they sum to more than it.
    """
    pieces = main_thread_pieces(linked)
    if not len(steps) or not len(pieces.phase):
        return {}
    step = steps.at(pieces.start_ns)
    inside = (step > ABSENT) & (pieces.phase > ABSENT)
    lasting = (pieces.end_ns - pieces.start_ns)[inside]
    sums = summed(pieces.phase[inside] * len(steps) + step[inside], lasting, len(PHASES) * len(steps))
    by_phase = sums.reshape(len(PHASES), len(steps))
    return {phase: by_phase[number] for number, phase in enumerate(PHASES) if by_phase[number].any()}


def phase_coverage(linked: LinkedTrace) -> dict[Phase, Coverage]:
    """When the main thread was in each phase that anything on it names, whether in a step or not."""
    pieces = main_thread_pieces(linked)
    of_phase = {phase: pieces.phase == number for number, phase in enumerate(PHASES)}
    return {phase: Coverage(pieces.start_ns[own], pieces.end_ns[own]) for phase, own in of_phase.items() if own.any()}


def _pieces(linked: LinkedTrace) -> PhasePieces:
    steps = steps_or_window(linked)
    if linked.main_thread is None or steps is None:
        none = np.zeros(0, np.int64)
        return PhasePieces(start_ns=none, end_ns=none, phase=none)
    main = linked.phases.ranges.thread == linked.main_thread
    ranges, code = linked.phases.ranges.where(main), linked.phases.phase[main]
    others = ranges.where(~np.isin(code, [PHASES.index(phase) for phase in _MAY_HOLD_BACKWARD]))
    bounds = int(steps.start_ns[0]), int(steps.end_ns.max())

    backward = _backward(linked, others, bounds)
    named = Coverage.union_of(Coverage(ranges.start_ns, ranges.end_ns), backward)
    uploads = _uploads(linked).without(named)
    forward = _forward(linked, Coverage.union_of(named, uploads), steps, bounds)

    edges = [ranges.start_ns, ranges.end_ns, steps.start_ns, steps.end_ns]
    for cover in (backward, uploads, forward):
        edges += [cover.start_ns, cover.end_ns]
    moments = distinct(np.concatenate(edges))
    starts = moments[:-1]
    found = linked.phases.at(starts, np.full(len(starts), linked.main_thread, np.int32))
    found[forward.contains(starts)] = PHASES.index("forward")
    found[uploads.contains(starts)] = PHASES.index("h2d")
    found[backward.contains(starts)] = PHASES.index("backward")
    return PhasePieces(start_ns=starts, end_ns=moments[1:], phase=found)


main_thread_pieces = CachedJoin(_pieces)
"""The phases of a trace's steps with their place in time, cut at least where the phase or the step changes; empty
without a main thread."""


def _backward(linked: LinkedTrace, others: Spans, bounds: tuple[int, int]) -> Coverage:
    """Where the main thread runs autograd's operators, or waits between the first and the last of those."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    is_backward = calls.phase == BACKWARD
    if not is_backward.any():
        return NOWHERE
    own = (ops.thread == linked.main_thread) & ~is_backward & calls.is_operator
    own &= linked.phases.of_name[ops.name] == ABSENT
    operators = Coverage(ops.start_ns[own], ops.end_ns[own])
    quiet = Coverage.union_of(operators, Coverage(others.start_ns, others.end_ns)).gaps(*bounds)
    return _first_to_last(*quiet, ops.start_ns[is_backward], ops.end_ns[is_backward])


def _uploads(linked: LinkedTrace) -> Coverage:
    """Operators of the main thread that launched nothing but copies from host to device."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    chosen = calls.uploads & (ops.thread == linked.main_thread) & calls.is_operator
    return Coverage(ops.start_ns[chosen], ops.end_ns[chosen])


def _forward(linked: LinkedTrace, named: Coverage, steps: Steps, bounds: tuple[int, int]) -> Coverage:
    """In each stretch of a step without a phase, from its first to its last forward operator."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    chosen = (calls.phase == FORWARD) & (ops.thread == linked.main_thread) & calls.is_operator
    starts, ends = named.gaps(*bounds)
    cuts = distinct(np.concatenate((starts, ends, steps.start_ns, steps.end_ns)))
    starts, ends = cuts[:-1], cuts[1:]
    unnamed = ~named.contains(starts)
    return _first_to_last(starts[unnamed], ends[unnamed], ops.start_ns[chosen], ops.end_ns[chosen])


def _first_to_last(gap_start_ns: Int64, gap_end_ns: Int64, start_ns: Int64, end_ns: Int64) -> Coverage:
    """In each gap, from the begin of the first span that begins in it to the end of the last of these."""
    if not len(start_ns):
        return NOWHERE
    order = np.argsort(start_ns, kind="stable")
    starts, reached = start_ns[order], np.maximum.accumulate(end_ns[order])
    first, after = np.searchsorted(starts, gap_start_ns), np.searchsorted(starts, gap_end_ns)
    held = after > first
    first, last, limit = first[held], after[held] - 1, gap_end_ns[held]
    return Coverage(starts[first], np.minimum(reached[last], limit))


def steps_or_window(linked: LinkedTrace) -> Steps | None:
    """The steps; without steps one from the begin of the first to the end of the last event; None without events."""
    if len(linked.steps):
        return linked.steps
    trace = linked.trace
    window = extent_ns((trace.cpu_op, trace.annotation, trace.runtime, trace.python_function, linked.work))
    if window is None:
        return None
    return Steps(names=(WHOLE_WINDOW,), start_ns=np.array(window[:1]), end_ns=np.array(window[1:]))
