"""What each operator was run for: the batch, forward, backward, optimizer or something else."""

import re

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.trace.operators import OPERATOR_PHASES, OperatorPhase
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, distinct, is_in

Codes = npt.NDArray[np.int8]
"""Index into :data:`OPERATOR_PHASES` of each operator."""

FORWARD, BACKWARD, OPTIMIZER, OTHER = (OPERATOR_PHASES.index(p) for p in ("forward", "backward", "optimizer", "other"))

_OF_PHASE: dict[Phase, OperatorPhase] = {
    "data_wait": "data_wait",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "zero_grad": "optimizer",
    "clip": "optimizer",
}
_CODE_OF_PHASE: Codes = np.array([OPERATOR_PHASES.index(_OF_PHASE.get(phase, "other")) for phase in PHASES], np.int8)
_BEFORE_FORWARD: frozenset[Phase] = frozenset({"data_wait", "h2d", "zero_grad"})
_AFTER_FORWARD: frozenset[Phase] = frozenset({"backward", "optimizer"})
_OF_AUTOGRAD = re.compile(r"^autograd::engine::|^torch::autograd::|Backward\d*$")


def operator_phases(linked: LinkedTrace, uploads: Mask) -> Codes:
    """What each row of :attr:`Trace.cpu_op` was run for.

    Args:
        linked: The trace.
        uploads: Whether each row is, or is inside, an operator that launched nothing but copies from host to device.


    Returns:
        Backward is what autograd ran: its nodes and all inside them, and everything on a thread of its own; what is
        recomputed there (activation checkpointing) counts as backward. Otherwise the innermost named range decides.
        An operator in no such range is forward if a backward operator has its sequence number, and ``other`` if it
        only uploads. What is left is ``other`` where the window names its forward passes. Where it names none, an
        operator is forward unless it comes after the backward or the optimizer of its step.
    """
    ops = linked.trace.cpu_op
    codes: Codes = np.full(len(ops), OTHER, np.int8)
    backward = _is_backward(linked)
    codes[backward] = BACKWARD
    rest = np.flatnonzero(~backward)
    if not len(rest):
        return codes
    phases = linked.phases
    at = phases.at(ops.start_ns[rest], ops.thread[rest])
    named = at > ABSENT
    codes[rest[named]] = _CODE_OF_PHASE[at[named]]
    unnamed = rest[~named]
    forward = _has_gradient(linked)[unnamed]
    if not (phases.phase == PHASES.index("forward")).any():
        forward |= _before_backward(linked, backward, ops.start_ns[unnamed])
    codes[unnamed[forward & ~uploads[unnamed]]] = FORWARD
    return codes


def _is_backward(linked: LinkedTrace) -> Mask:
    ops = linked.trace.cpu_op
    own = linked.named(ops, lambda name: _OF_AUTOGRAD.search(name) is not None) | (ops.forward_thread > 0)
    threads = distinct(ops.thread[own])
    backward: Mask = np.isin(ops.thread, threads[threads != linked.main_thread])
    if linked.main_thread in threads:  # without a GPU autograd runs in the thread that called it
        backward |= nearest(linked.operators.parent, own) > ABSENT
    return backward


def _has_gradient(linked: LinkedTrace) -> Mask:
    """Whether a backward operator belongs to each operator, or to one around it."""
    ops = linked.trace.cpu_op
    of_backward = distinct(ops.sequence[(ops.forward_thread > 0) & (ops.sequence >= 0)])
    if not len(of_backward):
        return np.zeros(len(ops), np.bool_)
    numbered = nearest(linked.operators.parent, ops.sequence > ABSENT)
    found: Mask = (numbered > ABSENT) & is_in(ops.sequence[numbered], of_backward)
    return found


def _before_backward(linked: LinkedTrace, backward: Mask, time_ns: Int64) -> Mask:
    """Whether the last of what begins and what ends a forward pass, before each moment, begins one.

    Steps, fetches and clearings of gradients begin one; backward operators and the optimizer end one. Before all of
    them it is taken as begun. Of two at one moment the end counts.
    """
    ops, phases = linked.trace.cpu_op, linked.phases

    def starts(wanted: frozenset[Phase]) -> Int64:
        return phases.ranges.start_ns[np.isin(phases.phase, [PHASES.index(phase) for phase in wanted])]

    begins = np.sort(np.concatenate((linked.steps.start_ns, starts(_BEFORE_FORWARD))))
    ends = np.sort(np.concatenate((ops.start_ns[backward], starts(_AFTER_FORWARD))))
    last_end = _last(ends, time_ns)
    before: Mask = (last_end == _NEVER) | (last_end < _last(begins, time_ns))
    return before


_NEVER = np.iinfo(np.int64).min


def _last(sorted_ns: Int64, time_ns: Int64) -> Int64:
    """The last moment not after each, :data:`_NEVER` if there is none."""
    last: Int64 = np.concatenate(([_NEVER], sorted_ns))[np.searchsorted(sorted_ns, time_ns, "right")]
    return last
