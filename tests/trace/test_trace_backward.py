"""Each backward joins the forward operator that made its autograd node, by number, thread and time."""

import random
from functools import cache

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import linked_trace, span

from lightning_gpuprof.trace.analyses.joins.backward import Backward, is_backward
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest

needs_traces = pytest.mark.skipif(not NAMES, reason="no recorded traces beside the repository (../shared/traces)")


@cache
def real(name: str) -> LinkedTrace:
    return recorded_trace(name)


def test_a_backward_joins_the_last_forward_with_its_number_that_ended_before_it() -> None:
    """Numbers may come again after a restart of the counter, and operators before the one that made the node have it,
    too."""
    events = []
    for begin in (0, 1000):
        events += [
            span("cpu_op", f"earlier {begin}", begin, 5, Sequence_number=3, Fwd_thread_id=0),
            span("cpu_op", f"outer {begin}", begin + 10, 20, Sequence_number=3, Fwd_thread_id=0),
            span("cpu_op", f"inner {begin}", begin + 12, 10, Sequence_number=3, Fwd_thread_id=0),
            span("cpu_op", "MulBackward0", begin + 30, 10, tid=2, Sequence_number=3, Fwd_thread_id=1),
        ]
    linked = linked_trace(events)
    ops, names = linked.trace.cpu_op, linked.trace.names
    forward = Backward(linked).forward_of_operator
    is_mul = np.flatnonzero(linked.named(ops, lambda name: name == "MulBackward0"))
    assert [names[ops.name[forward[row]]] for row in is_mul] == ["outer 0", "outer 1000"]


def test_numbers_of_another_thread_do_not_join() -> None:
    """Recomputed forwards count anew on the thread of the backward."""
    linked = linked_trace(
        [
            span("cpu_op", "aten::mul", 0, 5, tid=1, Sequence_number=3, Fwd_thread_id=0),
            span("cpu_op", "aten::add", 10, 5, tid=1, Sequence_number=4, Fwd_thread_id=0),
            span("cpu_op", "aten::recomputed", 50, 5, tid=2, Sequence_number=3, Fwd_thread_id=0),
            span("cpu_op", "AddBackward0", 60, 5, tid=2, Sequence_number=4, Fwd_thread_id=1),
            span("cpu_op", "MulBackward0", 70, 5, tid=2, Sequence_number=3, Fwd_thread_id=1),
        ]
    )
    ops, names = linked.trace.cpu_op, linked.trace.names
    forward = Backward(linked).forward_of_operator
    assert [names[ops.name[row]] for row in forward[-2:]] == ["aten::add", "aten::mul"]


@needs_traces
@pytest.mark.parametrize("name", [name for name in NAMES if "resnet" in name or "dlrm_8rank_0" in name])
def test_forwards_are_those_of_a_search_through_all_operators(name: str) -> None:
    linked = real(name)
    ops = linked.trace.cpu_op
    backward = Backward(linked)
    sequence, thread = ops.sequence.tolist(), ops.thread.tolist()
    starts, ends, depth = ops.start_ns.tolist(), ops.end_ns.tolist(), linked.operators.depth.tolist()
    nodes = np.flatnonzero((ops.forward_thread > 0) & (ops.sequence >= 0)).tolist()
    forwards = [row for row in range(len(ops)) if sequence[row] >= 0 and ops.forward_thread[row] <= 0]
    for node in random.Random(0).sample(nodes, min(60, len(nodes))):
        fits = [
            row
            for row in forwards
            if sequence[row] == sequence[node] and thread[row] == linked.main_thread and ends[row] <= starts[node]
        ]
        expected = max(fits, key=lambda row: (ends[row], -depth[row]), default=-1)
        assert backward.forward_of_operator[node] == expected


@needs_traces
def test_forward_and_backward_of_a_resnet_are_operators_of_one_kind() -> None:
    linked = real("v100_resnet50_dl0_2021.json.gz")
    ops, names = linked.trace.cpu_op, linked.trace.names
    forward = Backward(linked).forward_of_operator
    of_kind = {"CudnnConvolutionBackward": "aten::conv2d", "CudnnBatchNormBackward": "aten::batch_norm"}
    for row in np.flatnonzero(forward >= 0).tolist():
        kind = of_kind.get(names[ops.name[row]])
        assert kind is None or names[ops.name[forward[row]]] == kind


@pytest.mark.parametrize("seed", range(20))
def test_the_nearest_ancestor_is_that_of_a_climb_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    parent = np.array([rng.randint(-1, row - 1) if rng.random() < 0.9 else -1 for row in range(300)], np.intp)
    if seed % 2:  # a deep stack
        parent = np.arange(300) - 1
    wanted = np.array([rng.random() < 0.02 for _ in parent])
    found = nearest(parent, wanted)
    for row in range(len(parent)):
        at = row
        while at >= 0 and not wanted[at]:
            at = int(parent[at])
        assert found[row] == at


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("autograd::engine::evaluate_function: AddmmBackward0", True),
        ("torch::autograd::AccumulateGrad", True),
        ("CudnnConvolutionBackward", True),
        ("MeanBackward1", True),
        ("aten::convolution_backward", False),
        ("aten::mul", False),
        ("## backward ##", False),
    ],
)
def test_what_autograd_runs_is_told_by_name(name: str, expected: bool) -> None:
    assert is_backward(name) is expected
