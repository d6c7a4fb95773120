"""The line, module and phase of each runtime call; a backward's are those of its forward."""

from functools import cached_property

import numpy as np

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.trace.attribution import SourceLine
from lightning_gpuprof.trace.analyses.joins.backward import Backward
from lightning_gpuprof.trace.analyses.joins.module_paths import ModulePaths
from lightning_gpuprof.trace.analyses.joins.source_lines import SourceLines
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows

_LONG_AGO_NS = np.iinfo(np.int64).min


class CallPlaces:
    """Where in the code each call in :attr:`Trace.runtime` was made. Columns have one row for each call.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._calls = linked.trace.runtime
        self.backward = Backward(linked)
        self.source = SourceLines(linked)
        self.modules = ModulePaths(linked)

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """What :attr:`line` counts."""
        return self.source.lines

    @cached_property
    def in_backward(self) -> Mask:
        """Whether each call was made in a backward pass: in one of its operators, or on a thread that runs only such.

        The latter are calls of hooks, such as those by which gradients are reduced.
        """
        inside = take_or_absent(self.backward.is_backward, self._linked.operator_of_call) > 0
        result: Mask = inside | np.isin(self._calls.thread, self.backward.threads)
        return result

    @cached_property
    def forward(self) -> Rows:
        """The forward operator (row in :attr:`Trace.cpu_op`) whose backward made each call, else :data:`ABSENT`."""
        return take_or_absent(self.backward.forward_of_operator, self._linked.operator_of_call)

    @cached_property
    def _own_frame(self) -> Rows:
        """The innermost call of a Python function around each call, not counting those around a backward operator."""
        frame = self.source.frame_at(self._calls.start_ns, self._calls.thread)
        began_ns = take_or_absent(self._linked.trace.python_function.start_ns, frame)
        frame[(frame > ABSENT) & (began_ns < self._node_began_ns)] = ABSENT
        return frame

    @cached_property
    def _node_began_ns(self) -> Int64:
        """When the backward operator around each call began; long ago where there is none."""
        node = take_or_absent(self.backward.node_of_operator, self._linked.operator_of_call)
        return np.where(node > ABSENT, take_or_absent(self._linked.trace.cpu_op.start_ns, node), _LONG_AGO_NS)

    @cached_property
    def line(self) -> Rows:
        """The line that made each call, :data:`ABSENT` if it is not known.

        In a backward pass: the line of Python code that ran in it (hooks, recomputed forwards), else the line of the
        forward operator, else, where there is none (gradients are accumulated and reduced), the line that waits for the
        backward pass.
        """
        line = take_or_absent(self.source.line_of_frame, self._own_frame)
        of_operator = take_or_absent(
            self.source.line_of_operator, np.where(self.forward > ABSENT, self.forward, self._operator)
        )
        line = np.where(line > ABSENT, line, of_operator)
        missing = np.flatnonzero((line == ABSENT) & self.in_backward)
        if len(missing) and self._linked.main_thread is not None:
            main = np.full(len(missing), self._linked.main_thread, np.int32)
            frame = self.source.frame_at(self._calls.start_ns[missing], main)
            waits = take_or_absent(self._runs_backward, frame) > 0
            line[missing[waits]] = take_or_absent(self.source.line_of_frame, frame)[waits]
        return line

    @cached_property
    def _operator(self) -> Rows:
        """The operator of each call outside of backward passes."""
        return np.where(self.in_backward, ABSENT, self._linked.operator_of_call)

    @cached_property
    def _runs_backward(self) -> Mask:
        """Which calls are of the built-in function by which Python waits for autograd."""
        frames = self._linked.trace.python_function
        return self._linked.named(frames, lambda name: "run_backward" in name)

    @cached_property
    def module(self) -> Rows:
        """Row in :attr:`ModulePaths.names` of the innermost module that made each call, else :data:`ABSENT`."""
        own = self.modules.at(self._calls.start_ns, self._calls.thread, since_ns=self._node_began_ns)
        return np.where(own > ABSENT, own, take_or_absent(self.module_of_operator, self.forward))

    @cached_property
    def module_of_operator(self) -> Rows:
        """The innermost module that each operator began in, else :data:`ABSENT`."""
        ops = self._linked.trace.cpu_op
        return self.modules.at(ops.start_ns, ops.thread)

    @cached_property
    def phase(self) -> Rows:
        """Row in :data:`PHASES` of what each call was made for, :data:`ABSENT` if nothing says.

        By the innermost range whose name stands for a phase. Without one: the backward pass is recognized by its
        operators and threads; the forward pass by being inside of a module or of an operator that has a backward in
        the trace; what is none of these and copies to the device is ``h2d``.
        """
        phase = self._linked.phases.at(self._calls.start_ns, self._calls.thread)
        nothing = phase == ABSENT
        phase[nothing & self.in_backward] = PHASES.index("backward")
        forwards = np.zeros(len(self._linked.trace.cpu_op), np.bool_)
        known = self.backward.forward_of_operator
        forwards[known[known > ABSENT]] = True
        in_forward = (
            take_or_absent(nearest(self._linked.operators.parent, forwards), self._linked.operator_of_call) > ABSENT
        )
        phase[nothing & ~self.in_backward & (in_forward | (self.module > ABSENT))] = PHASES.index("forward")
        to_device = self._linked.named(self._linked.work, lambda name: name.startswith("Memcpy HtoD"))
        copies = np.zeros(len(self._calls), np.bool_)
        copies[self._linked.launch[to_device & self._linked.launched]] = True
        phase[copies & (phase == ABSENT)] = PHASES.index("h2d")
        return phase


call_places = CachedJoin(CallPlaces)
"""Where the calls of a trace were made."""
