"""Phases of the main thread: disjoint slices of the time of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.trace.step_trace import WHOLE_WINDOW
from lightning_gpuprof.trace.analyses.joins.cached_join import CachedJoin
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.joins.operator_phases import BACKWARD, FORWARD
from lightning_gpuprof.trace.distinct import distinct
from lightning_gpuprof.trace.host_phases import phase_of_name
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import Int64, Spans

_MAY_HOLD_BACKWARD: frozenset[Phase] = frozenset({"backward", "optimizer"})
"""Ranges in which the main thread may wait for autograd; the optimizer's holds the closure with it."""
_NONE = len(PHASES)


@dataclass(frozen=True, kw_only=True)
class PhasePieces:
    """Stretches of the main thread's time in order, each in one phase or in none; all columns are equally long."""

    start_ns: Int64
    end_ns: Int64
    phase: Int64
    """Index into :data:`PHASES`; their number where nothing tells a phase."""


def main_thread_phases(linked: LinkedTrace, steps: Steps) -> dict[Phase, Int64]:
    """Nanoseconds of each phase in each step on the main thread; see :class:`StepTrace` for what counts as what.

    Args:
        linked: The trace.
        steps: The trace's own, or what stands for them: see :func:`steps_or_window`.

    Returns:
        The phases that anything on the main thread tells of. In no step do they sum to more than it.
    """
    pieces = main_thread_pieces(linked)
    if not len(steps) or not len(pieces.phase):
        return {}
    return _summed(pieces.phase, steps.at(pieces.start_ns), pieces.end_ns - pieces.start_ns, len(steps))


def _pieces(linked: LinkedTrace) -> PhasePieces:
    steps = steps_or_window(linked)
    if linked.main_thread is None or steps is None:
        none = np.zeros(0, np.int64)
        return PhasePieces(start_ns=none, end_ns=none, phase=none)
    ranges = linked.phases.ranges
    ranges = ranges.where(ranges.thread == linked.main_thread)
    code_of = np.full(len(linked.trace.names), _NONE, np.int64)
    for name in distinct(ranges.name).tolist():
        phase = phase_of_name(linked.trace.names[name])
        code_of[name] = _NONE if phase is None else PHASES.index(phase)
    code = code_of[ranges.name]
    may_hold_backward = np.isin(code, [PHASES.index(phase) for phase in _MAY_HOLD_BACKWARD])
    bounds = int(steps.start_ns[0]), int(steps.end_ns.max())

    named = Coverage(ranges.start_ns, ranges.end_ns)
    backward = _backward(
        linked, code_of, ranges.start_ns[~may_hold_backward], ranges.end_ns[~may_hold_backward], bounds
    )
    told = _joined(named, backward)
    uploads = _uploads(linked).without(told)
    forward = _forward(linked, _joined(told, uploads), steps, bounds)

    edges = [ranges.start_ns, ranges.end_ns, steps.start_ns, steps.end_ns]
    for cover in (backward, uploads, forward):
        edges += [cover.start_ns, cover.end_ns]
    moments = distinct(np.concatenate(edges))
    starts = moments[:-1]
    row = linked.phases.innermost(starts, np.full(len(starts), linked.main_thread, np.int32))
    all_ranges = linked.phases.ranges
    found = np.where(row >= 0, code_of[all_ranges.name[row]], _NONE) if len(all_ranges) else np.full(len(row), _NONE)
    found[forward.contains(starts)] = PHASES.index("forward")
    found[uploads.contains(starts)] = PHASES.index("h2d")
    found[backward.contains(starts)] = PHASES.index("backward")
    return PhasePieces(start_ns=starts, end_ns=moments[1:], phase=found)


main_thread_pieces = CachedJoin(_pieces)
"""The phases of a trace's steps with their place in time, cut at least where the phase or the step changes; empty
without a main thread."""


def _summed(code: npt.NDArray[np.int64], step: npt.NDArray[np.intp], lasting: Int64, steps: int) -> dict[Phase, Int64]:
    inside = (step >= 0) & (code != _NONE)
    # float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days
    sums = np.bincount(
        code[inside] * steps + step[inside], weights=lasting[inside], minlength=len(PHASES) * steps
    ).astype(np.int64)
    by_phase = sums.reshape(len(PHASES), steps)
    return {phase: by_phase[number] for number, phase in enumerate(PHASES) if by_phase[number].any()}


def _backward(
    linked: LinkedTrace, code_of: Int64, other_start_ns: Int64, other_end_ns: Int64, bounds: tuple[int, int]
) -> Coverage:
    """Where the main thread runs autograd's operators, or waits between the first and the last of those."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    is_backward = calls.phase == BACKWARD
    if not is_backward.any():
        return NOWHERE
    own = (ops.thread == linked.main_thread) & ~is_backward & calls.is_operator & (code_of[ops.name] == _NONE)
    quiet = Coverage(
        np.concatenate((ops.start_ns[own], other_start_ns)), np.concatenate((ops.end_ns[own], other_end_ns))
    ).gaps(*bounds)
    return _first_to_last(*quiet, ops.start_ns[is_backward], ops.end_ns[is_backward])


def _uploads(linked: LinkedTrace) -> Coverage:
    """Operators of the main thread that launched nothing but copies from host to device."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    chosen = calls.uploads & (ops.thread == linked.main_thread) & calls.is_operator
    return Coverage(ops.start_ns[chosen], ops.end_ns[chosen])


def _forward(linked: LinkedTrace, told: Coverage, steps: Steps, bounds: tuple[int, int]) -> Coverage:
    """In each stretch of a step without a phase, from its first to its last forward operator."""
    ops, calls = linked.trace.cpu_op, operator_calls(linked)
    chosen = (calls.phase == FORWARD) & (ops.thread == linked.main_thread) & calls.is_operator
    starts, ends = told.gaps(*bounds)
    cuts = distinct(np.concatenate((starts, ends, steps.start_ns, steps.end_ns)))
    starts, ends = cuts[:-1], cuts[1:]
    untold = ~told.contains(starts)
    return _first_to_last(starts[untold], ends[untold], ops.start_ns[chosen], ops.end_ns[chosen])


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


def _joined(one: Coverage, other: Coverage) -> Coverage:
    return Coverage(np.concatenate((one.start_ns, other.start_ns)), np.concatenate((one.end_ns, other.end_ns)))


def steps_or_window(linked: LinkedTrace) -> Steps | None:
    """The steps; without steps one from the begin of the first to the end of the last event; None without events."""
    if len(linked.steps):
        return linked.steps
    trace = linked.trace
    tables: Sequence[Spans] = (trace.cpu_op, trace.annotation, trace.runtime, trace.python_function, linked.work)
    filled = [table for table in tables if len(table)]
    if not filled:
        return None
    start = min(int(table.start_ns.min()) for table in filled)
    end = max(int(table.end_ns.max()) for table in filled)
    return Steps(names=(WHOLE_WINDOW,), start_ns=np.array([start]), end_ns=np.array([end]))
