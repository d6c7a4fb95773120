"""What the host's threads were doing: the times that may say why a device got nothing to run."""

import re
from functools import cached_property

import numpy as np

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.trace.idle import IDLE_CAUSES, IdleCause
from lightning_gpuprof.trace.analyses.code.waits import allocates, blocking_calls
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Spans, joined

_COLLECTIVE = re.compile(r"^(c10d|nccl|rccl|gloo|mpi|ucc)::?\w")
"""Ranges and operators in which the host starts a collective, and with Gloo also carries it out."""

_PROFILER_FRAME = re.compile(r"(^|/)torch/profiler/profiler\.py\(\d+\): (step|start|stop|_transit_action)$")
"""The frame of the profiler's schedule, in which it also writes the trace."""

AUTOGRAD = "autograd::"
"""Begin of the names of operators of the autograd engine, which stand for the phase backward."""

_OF_PHASE: dict[IdleCause, Phase] = {
    "data": "data_wait",
    "checkpoint": "checkpoint",
    "callbacks": "callbacks",
    "validation": "validation",
}


class HostActivity:
    """Spans of the host by what they mean for a device that waits for work, each set made when it is first asked for.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._coverages: dict[tuple[str, frozenset[int]], Coverage] = {}

    def of(self, cause: IdleCause, threads: frozenset[int]) -> Coverage:
        """When at least one of the threads was busy with something: one of the causes that spans show.

        The profiler's own spans count for all threads: it writes them without one.

        Args:
            cause: A cause that spans show.
            threads: Numbers of the threads.

        Returns:
            Disjoint stretches in order of time; none where no span shows the cause.
        """
        coverage = self._coverage(cause, self._cause_spans[cause], threads)
        if cause != "profiler":
            return coverage
        overhead = self._linked.trace.overhead
        return Coverage.union_of(coverage, Coverage(overhead.start_ns, overhead.end_ns))

    def relevant_threads(self, thread: int) -> frozenset[int]:
        """Whose spans say why a launch came late: the thread that made it, and the main thread.

        The main thread starts the backward pass, and the autograd engine's thread launches it.
        """
        main = self._linked.main_thread
        return frozenset((thread,)) if main is None else frozenset((thread, main))

    def in_calls(self, threads: frozenset[int]) -> Coverage:
        """When one of the threads was in a call of the runtime or driver."""
        return self._coverage("in calls", self._linked.trace.runtime, threads)

    def in_operators(self, threads: frozenset[int]) -> Coverage:
        """When one of the threads was in an operator of torch; ranges that only name a part of the loop are none."""
        return self._coverage("in operators", self._operators, threads)

    def unseen(self) -> tuple[IdleCause, ...]:
        """Causes that no span of the trace shows, though there may have been such time.

        Left out are those whose absence is an answer: a trace with calls would hold those that wait or allocate, and
        without communication on a device the host hardly starts some.
        """
        recorded: dict[IdleCause, bool] = {cause: bool(len(self._cause_spans[cause])) for cause in _OF_PHASE}
        recorded["allocator"] = recorded["host_sync"] = bool(len(self._linked.trace.runtime))
        recorded["communication"] = bool(
            len(self._cause_spans["communication"]) or not self._linked.is_communication.any()
        )
        recorded["between_steps"] = bool(len(self._linked.steps))
        return tuple(cause for cause in IDLE_CAUSES if not recorded.get(cause, True))

    @cached_property
    def _cause_spans(self) -> dict[IdleCause, Spans]:
        linked, trace = self._linked, self._linked.trace
        frames, calls = trace.python_function.spans, trace.runtime.spans
        spans = {cause: self._in_phase(phase) for cause, phase in _OF_PHASE.items()}
        ranges = [trace.annotation.spans, trace.cpu_op.spans]
        spans["communication"] = joined(
            Spans, [part.where(linked.named(part, lambda name: bool(_COLLECTIVE.match(name)))) for part in ranges]
        )
        spans["profiler"] = frames.where(linked.named(frames, lambda name: bool(_PROFILER_FRAME.search(name))))
        spans["allocator"] = calls.where(linked.named(calls, allocates))
        spans["host_sync"] = calls.where(blocking_calls(linked))
        return spans

    def _in_phase(self, phase: Phase) -> Spans:
        phases = self._linked.phases
        return phases.ranges.spans.where(phases.phase == PHASES.index(phase))

    @cached_property
    def _operators(self) -> Spans:
        # traces until 2021 list among the operators what later ones list among the named ranges
        only_names = self._linked.phases.of_name > ABSENT
        for number, name in enumerate(self._linked.trace.names):
            if name.startswith((STEP, AUTOGRAD)):
                only_names[number] = name.startswith(STEP)
        operators = self._linked.trace.cpu_op.spans
        is_range = only_names[operators.name]
        # an operator inside another one adds no time to that
        around = self._linked.operators.parent
        return operators.where(~is_range & ((around == ABSENT) | is_range[around]))

    def _coverage(self, what: str, spans: Spans, threads: frozenset[int]) -> Coverage:
        key = what, threads
        if key in self._coverages:
            return self._coverages[key]
        if not len(spans):
            coverage = NOWHERE
        else:
            own = np.isin(spans.thread, list(threads))
            coverage = Coverage(spans.start_ns[own], spans.end_ns[own])
        self._coverages[key] = coverage
        return coverage


host_activity = CachedJoin(HostActivity)
"""What the host's threads of a trace were doing."""
