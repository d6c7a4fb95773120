"""The least work of each operator call, counting nested calls once."""

from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.trace.analyses.roofline.operator_work import Work, work_of
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Inputs, Int32, Mask, Rows

_FORWARD = frozenset(
    f"aten::{name}"
    for name in (
        "cudnn_convolution",
        "miopen_convolution",
        "mkldnn_convolution",
        "thnn_conv2d_forward",
        "_slow_conv2d_forward",
    )
)
"""Convolutions whose work needs the stride, which traces before torch 2.1 do not have."""
_PASSES = ("convolution_backward_input", "convolution_backward_weight")


class CountedWork(msgspec.Struct, frozen=True, kw_only=True):
    """The least work of each row of :attr:`Trace.cpu_op`."""

    works: tuple[Work, ...]
    work: Rows
    """Index into :attr:`works` of each call, :data:`ABSENT` where it is not known."""
    counted: Rows
    """Of the calls around each one, itself included, the outermost whose work is known; :data:`ABSENT` if none.

    An operator whose work is known may call others whose work is known as well: only calls that are their own entry
    here count.
    """


def _counted_work(linked: LinkedTrace) -> CountedWork:
    ops, trace = linked.trace.cpu_op, linked.trace
    works: list[Work] = []
    work: Rows = np.full(len(ops), ABSENT, np.intp)
    given = np.flatnonzero(ops.inputs >= 0)
    if len(given):
        count = len(trace.input_texts)
        pairs, which = np.unique(ops.name[given].astype(np.int64) * count + ops.inputs[given], return_inverse=True)
        of_distinct = np.full(len(pairs), ABSENT, np.intp)
        for row, (name, inputs) in enumerate(zip((pairs // count).tolist(), (pairs % count).tolist(), strict=True)):
            recorded = trace.inputs[inputs]
            found = work_of(trace.names[name], recorded.shapes, recorded.types, recorded.values)
            if found is not None:
                of_distinct[row] = len(works)
                works.append(found)
        work[given] = of_distinct[which]
        _complete_convolutions(linked, work, works)
    return CountedWork(works=tuple(works), work=work, counted=_outermost(work >= 0, linked.operators.parent))


def _complete_convolutions(linked: LinkedTrace, work: Rows, works: Sequence[Work]) -> None:
    """Give convolutions of traces without values what is known of the other direction.

    A forward pass takes as much as one pass of its backward and moves the same three tensors, and the gradient that
    comes in has the shape of its output: of input and weight alike, the backward with the least work counts. A
    backward operator that calls one operator for each of its passes hands its work to these.
    """
    trace, ops, parent = linked.trace, linked.trace.cpu_op, linked.operators.parent
    without_values = np.array([inputs.values is None for inputs in trace.inputs], np.bool_)
    unsaid = (ops.inputs >= 0) & without_values[ops.inputs]
    if not unsaid.any():
        return
    is_backward = linked.named(ops, lambda name: name.endswith("convolution_backward"))
    is_backward &= unsaid & (work > ABSENT)
    if not is_backward.any():
        return
    least = _least_passes(trace.inputs, works, ops.inputs[is_backward], work[is_backward])
    forward = np.flatnonzero(unsaid & (work == ABSENT) & linked.named(ops, lambda name: name in _FORWARD))
    inputs_of, which = np.unique(ops.inputs[forward], return_inverse=True)
    of_distinct = [least.get(_key(trace.inputs[inputs].shapes[:2]), ABSENT) for inputs in inputs_of.tolist()]
    work[forward] = np.array(of_distinct, np.intp)[which]

    passes = np.flatnonzero(linked.named(ops, lambda name: name.endswith(_PASSES)))
    around = take_or_absent(parent, passes)
    held = is_backward[around] & (around > ABSENT)
    work[passes[held]] = work[around[held]]
    around = around[held]
    while len(around):  # the oldest traces have each operator twice, one inside the other
        work[around] = ABSENT
        around = take_or_absent(parent, around)
        around = around[(around > ABSENT) & is_backward[around]]


def _least_passes(inputs: Sequence[Inputs], works: Sequence[Work], given: Int32, work: Rows) -> dict[str, int]:
    """For input and weight of backward convolutions the one with the least work."""
    least: dict[str, int] = {}
    for number, one in sorted(set(zip(given.tolist(), work.tolist(), strict=True))):
        first, second, weight = inputs[number].shapes[:3]
        for tensor in (first, second):  # one of them is the input, the other the gradient of the output
            key = _key([tensor, weight])
            if key not in least or works[one].flops < works[least[key]].flops:
                least[key] = one
    return least


def _key(shapes: Sequence[object]) -> str:
    return repr(list(shapes))


def _outermost(known: Mask, parent: Rows) -> Rows:
    """Of the rows around each one, itself included, the outermost that is known."""
    if not known.any():
        return np.full(len(known), ABSENT, np.intp)
    is_top = known & (take_or_absent(nearest(parent, known), parent) == ABSENT)
    return nearest(parent, is_top)


counted_work = CachedJoin(_counted_work)
"""The work of a trace's operators."""
