"""Runs all analyses of a trace; one that fails does not take the others with it."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.model.trace.roofline import MeasuredCeilings
from lightning_gpuprof.trace.analyses.calls.api_tables import api_tables
from lightning_gpuprof.trace.analyses.calls.events import longest_events
from lightning_gpuprof.trace.analyses.calls.streams import streams_of
from lightning_gpuprof.trace.analyses.code.attribution import attribution
from lightning_gpuprof.trace.analyses.code.sync_points import sync_points
from lightning_gpuprof.trace.analyses.communication.communication import communication_of
from lightning_gpuprof.trace.analyses.health.health import health_of
from lightning_gpuprof.trace.analyses.idle.host_activity import host_activity
from lightning_gpuprof.trace.analyses.idle.idle import idle_times
from lightning_gpuprof.trace.analyses.idle.idle_gaps import gaps_by_device
from lightning_gpuprof.trace.analyses.joins.call_places import call_places
from lightning_gpuprof.trace.analyses.joins.device_parts import device_parts
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import main_thread_pieces
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.kernels.kernels import kernels
from lightning_gpuprof.trace.analyses.operators.by_step import by_step
from lightning_gpuprof.trace.analyses.operators.memory import memory
from lightning_gpuprof.trace.analyses.operators.operators import operators
from lightning_gpuprof.trace.analyses.operators.step_trace import step_trace
from lightning_gpuprof.trace.analyses.roofline.counted_work import counted_work
from lightning_gpuprof.trace.analyses.roofline.roofline import roofline
from lightning_gpuprof.trace.analyses.timeline.timeline import timeline
from lightning_gpuprof.trace.copied_process import in_a_copy
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.nsight_compute import by_kernel, with_measured
from lightning_gpuprof.trace.reader import Trace, trim_heap, usable_cpus
from lightning_gpuprof.trace.tables import distinct

DEBUG_VARIABLE = "GPUPROF_DEBUG"
T = TypeVar("T", bound=msgspec.Struct)

_MAX_FREED = "idle"
"""What it needed for itself goes back to the system, the next then takes no more; later ones free less than it costs
them to ask for it again."""
_LAST_USED: Mapping[str, Sequence[CachedJoin[Any]]] = {
    "timeline": (gaps_by_device, main_thread_pieces, host_activity, device_parts),
    "roofline": (operator_calls, counted_work),
    "sync_points": (call_places,),
}
"""Joins that no later analysis asks for."""
_COPIED = frozenset({"kernels", "operators", "roofline"})
"""What takes half of the time, and shares few joins with the others."""
_TWO_FROM_EVENTS = 50_000
"""Events from which on a copy saves more than it costs, some 10 ms."""


class _Computed(NamedTuple):
    name: str
    result: object
    problem: str
    seconds: float


def analyse(
    trace: Trace | LinkedTrace,
    *,
    only: Collection[str] | None = None,
    ceilings: MeasuredCeilings | None = None,
    counters: Sequence[MeasuredKernel] = (),
    timings: dict[str, float] | None = None,
    fork: bool = False,
) -> TraceAnalysis:
    """Compute everything, or some of it.

    Args:
        trace: What was recorded. Without frames of Python functions there are no source lines.
        only: Names of the wanted analyses, fields of :class:`TraceAnalysis`; default: all.
        ceilings: What a device of the same kind was measured to do; the roofline has them beside the data sheet's.
        counters: What Nsight Compute measured of the same kernels.
        timings: Gets the seconds that each analysis took, by its name.
        fork: Some may be computed by a copy of this process, see :meth:`Trace.read`.

    Returns:
        The results. What a trace has no signal for is empty or None, and its analysis says so.

    Raises:
        ArgumentError: There is no analysis of a name in ``only``.
    """
    linked = trace if isinstance(trace, LinkedTrace) else LinkedTrace(trace)
    trace = linked.trace
    measured = _measured(trace, counters)
    parts: dict[str, Callable[[LinkedTrace], object]] = {
        "health": health_of,
        "idle": idle_times,
        "streams": streams_of,
        "api_tables": api_tables,
        "kernels": (lambda linked: with_measured(kernels(linked), measured)) if measured else kernels,
        "communication": communication_of,
        "operators": operators,
        "step_trace": step_trace,
        "by_step": by_step,
        "memory": memory,
        "timeline": timeline,
        "events": longest_events,
        "roofline": partial(roofline, measured=ceilings, counters=measured),
        "attribution": attribution,
        "sync_points": sync_points,
    }
    if unknown := set(only or ()) - parts.keys():
        raise ArgumentError("only", sorted(unknown), f"name analyses out of {', '.join(parts)}")
    wanted = set(parts if only is None else only)
    compute = partial(_computed, linked, parts)
    both = wanted & _COPIED and wanted - _COPIED and trace.events >= _TWO_FROM_EVENTS
    if fork and both and hasattr(os, "fork") and usable_cpus() > 1:
        with in_a_copy(partial(compute, wanted & _COPIED)) as pickled:
            found = compute(wanted - _COPIED)
            found += _received(pickled) or compute(wanted & _COPIED)
    else:
        found = compute(wanted)
    if timings is not None:
        timings |= {one.name: one.seconds for one in found}
    problems = {one.name: one.problem for one in found if one.problem}
    return TraceAnalysis(
        gpus=tuple(trace.about.gpus),
        rank=trace.about.rank,
        world_size=trace.about.world_size,
        problems=tuple(problems[name] for name in parts if name in problems),
        **{one.name: one.result for one in found if not one.problem},  # type: ignore[arg-type]
    )


def _computed(
    linked: LinkedTrace, parts: Mapping[str, Callable[[LinkedTrace], object]], wanted: Collection[str]
) -> list[_Computed]:
    found: list[_Computed] = []
    for name, compute in parts.items():
        if name in wanted:
            begin, result, problem = time.perf_counter(), None, ""
            try:
                result = compute(linked)
            except Exception as error:  # files come from anywhere: what one analysis did not foresee is its own loss
                if os.environ.get(DEBUG_VARIABLE):
                    traceback.print_exception(error)
                problem = f"{name.replace('_', ' ')}: {type(error).__name__}: {error}"
            if name == _MAX_FREED:
                trim_heap()
            found.append(_Computed(name, result, problem, time.perf_counter() - begin))
        for join in _LAST_USED.get(name, ()):
            join.forget(linked)
    return found


def _received(pickled: BinaryIO | None) -> list[_Computed]:
    """What a copy of this process computed; empty where it failed."""
    if pickled is None:
        return []
    try:
        return cast("list[_Computed]", pickle.load(pickled))
    except (EOFError, pickle.UnpicklingError):
        return []


def _measured(trace: Trace, counters: Sequence[MeasuredKernel]) -> dict[str, MeasuredKernel]:
    if not counters:
        return {}
    return by_kernel((trace.names[name] for name in distinct(trace.kernel.name).tolist()), counters)


ROWS = 20
"""Rows of each table that a run's report keeps of a window."""


def first_rows(analysis: TraceAnalysis, rows: int = ROWS) -> TraceAnalysis:
    """The same with the first rows of each table, which are those that matter most, or the first steps.

    Args:
        analysis: Of a trace.
        rows: Most rows that a table keeps.

    Returns:
        A copy; tables in nested parts are cut, too.
    """
    return _cut(analysis, rows)


def _cut(value: T, rows: int) -> T:
    changed: dict[str, object] = {}
    for field in value.__struct_fields__:
        old = getattr(value, field)
        if isinstance(old, msgspec.Struct):
            changed[field] = _cut(old, rows)
        elif isinstance(old, tuple) and old and isinstance(old[0], msgspec.Struct):
            changed[field] = tuple(_cut(one, rows) for one in old[:rows])
    return msgspec.structs.replace(value, **changed) if changed else value
