"""Backward passes: which operators run in one, and which forward operator each belongs to."""

from functools import cached_property

import numpy as np

from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Mask, Rows, distinct, is_in

_MAX_KEY = 1 << 62


def is_backward(name: str) -> bool:
    """Whether autograd runs the operator of this name: ``AddmmBackward0``, ``torch::autograd::AccumulateGrad``."""
    autograd = name.startswith(("autograd::engine::evaluate_function", "torch::autograd::"))
    return autograd or name.rstrip("0123456789").endswith("Backward")


class Backward:
    """The backward passes of a trace.

    torch gives an operator of the forward the number of the autograd node that will be made next on its thread, and
    its backward the number of its node. So several operators have one number: those that ran before the one that made
    the node, that one, and operators inside of it. The last one to end is the outermost one that made it. A number
    says nothing of another thread: the backward names the thread of its forward, by a number of torch's own.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._ops = linked.trace.cpu_op

    @cached_property
    def node_of_operator(self) -> Rows:
        """The nearest operator at or around each operator that says which forward it is the backward of."""
        is_node = (self._ops.forward_thread > 0) & (self._ops.sequence > ABSENT)
        if not is_node.any():
            return np.full(len(self._ops), ABSENT, np.intp)
        return nearest(self._linked.operators.parent, is_node)

    @cached_property
    def is_backward(self) -> Mask:
        """Whether each operator runs in a backward pass."""
        named = self._linked.named(self._ops, is_backward)
        return nearest(self._linked.operators.parent, named) > ABSENT

    @cached_property
    def threads(self) -> list[int]:
        """Threads, other than that of the training loop, that only a backward pass uses."""
        threads = np.flatnonzero(np.bincount(self._ops.thread[self.is_backward])).tolist()
        return [thread for thread in threads if thread != self._linked.main_thread]

    @cached_property
    def forward_of_operator(self) -> Rows:
        """Row of the forward operator that each operator is the backward of, or runs in the backward of.

        :data:`ABSENT` outside of a backward, where the forward ran before the window, and for what has none, such as
        the accumulation of gradients.
        """
        forward: Rows = np.full(len(self._ops), ABSENT, np.intp)
        nodes = np.flatnonzero(self.node_of_operator == np.arange(len(self._ops)))
        is_forward = (self._ops.sequence > ABSENT) & (self._ops.forward_thread <= 0)
        for number in distinct(self._ops.forward_thread[nodes]).tolist():
            of_number = nodes[self._ops.forward_thread[nodes] == number]
            thread = self._thread_of_forward(of_number, is_forward)
            if thread is not None:
                candidates = np.flatnonzero(is_forward & (self._ops.thread == thread))
                forward[of_number] = self._last_before(of_number, candidates)
        return take_or_absent(forward, self.node_of_operator)

    def _thread_of_forward(self, nodes: Rows, is_forward: Mask) -> int | None:
        """The thread whose operators have most of the numbers of these nodes."""
        wanted = distinct(self._ops.sequence[nodes])
        best: tuple[int, bool, int] | None = None
        for thread in np.flatnonzero(np.bincount(self._ops.thread[is_forward])).tolist():
            of_thread = self._ops.sequence[is_forward & (self._ops.thread == thread)]
            score = int(is_in(wanted, of_thread).sum()), thread == self._linked.main_thread, thread
            if score[0] and (best is None or score > best):
                best = score
        return best[2] if best else None

    def _last_before(self, nodes: Rows, candidates: Rows) -> Rows:
        """The last of the candidates with each node's number that ended before the node began."""
        # of operators that end together the outer one is the last to end
        outer_last = np.lexsort((-self._linked.operators.depth[candidates], self._ops.end_ns[candidates]))
        candidates = candidates[outer_last]
        number, wanted = self._ops.sequence[candidates], self._ops.sequence[nodes]
        count = len(candidates) + 1
        if int(number.max()) > _MAX_KEY // count:
            numbers = distinct(number)
            number, wanted = np.searchsorted(numbers, number), np.searchsorted(numbers, wanted)
        # (number, place in time) as one sorted number
        number, wanted = number.astype(np.int64), wanted.astype(np.int64)
        key = number * count + np.arange(len(candidates))
        by_key = np.argsort(key)
        ended = np.searchsorted(self._ops.end_ns[candidates], self._ops.start_ns[nodes], "right")
        found = np.searchsorted(key[by_key], wanted * count + ended) - 1
        row = candidates[by_key[np.maximum(found, 0)]]
        fits = (found >= 0) & (self._ops.sequence[row] == self._ops.sequence[nodes])
        last: Rows = np.where(fits, row, ABSENT)
        return last
