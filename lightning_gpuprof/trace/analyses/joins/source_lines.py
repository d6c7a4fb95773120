"""The user's line and the module at any moment of a thread, from the trace's Python stacks: what is no library's."""

import re
from functools import cached_property

import numpy as np

from lightning_gpuprof.model.trace.attribution import LineMeaning, SourceLine, Stacks
from lightning_gpuprof.model.trace.call_lines import without_instance
from lightning_gpuprof.model.user_code import is_user_code
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows

_PROFILER = ("torch/profiler/", "torch/autograd/profiler.py")

_FIRST_LINE = re.compile(r"\(\d+\): ")


class SourceLines:
    """The innermost lines of user code.

    Traces have one of two kinds of stacks. Since 2022 each call of a Python function is a span (``with_stack=True``);
    its number is the line at which the function stood when it was entered, that is its ``def`` line (that of its first
    decorator, if it has one), not the line that launched. For functions that were already running when the recording
    began it is the line they had come to then, which says nothing of later work. Our own windows have the lines of
    calls beside that (:class:`CallLines`). Until 2022 each operator has the text of its stack; there the numbers are
    the lines of the calls.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._trace = linked.trace
        self._frames = linked.trace.python_function
        self._numbers: dict[str, int] = {}
        self._line_of_name: Rows = np.full(len(self._trace.names), ABSENT, np.intp)
        if len(self._frames):
            used = np.flatnonzero(np.bincount(self._frames.name, minlength=len(self._trace.names)))
            for name in used.tolist():
                self._line_of_name[name] = self._number(self._trace.names[name])
        innermost = (next(filter(is_user_code, stack.split(";")), "") for stack in self._trace.stacks)
        self._line_of_stack: Rows = np.array([self._number(frame) for frame in innermost], np.intp)

    def _number(self, frame: str) -> int:
        return self._numbers.setdefault(frame, len(self._numbers)) if is_user_code(frame) else ABSENT

    @property
    def stacks(self) -> Stacks | None:
        """Which kind of stacks the trace holds, None for none."""
        if len(self._frames):
            return "python_calls"
        return "operators" if self._trace.stacks else None

    @cached_property
    def lines(self) -> tuple[SourceLine, ...]:
        """What the lines of this class's answers count."""
        means: dict[str, LineMeaning] = {}
        if len(self._frames):
            began_ns = self._recording_began_ns()
            assert len(self._own_line) == len(self._frames)  # it numbers the lines of calls
            functions = set(self._line_of_name.tolist())
            for frame, number in self._numbers.items():
                if number not in functions:
                    continue
                own = self._line_of_name[self._frames.name] == number
                running = own.any() and bool((self._frames.start_ns[own] <= began_ns).all())
                means[frame] = "when the recording began" if running else "definition"
        return tuple(SourceLine(frame=frame, means=means.get(frame, "call")) for frame in self._numbers)

    def _recording_began_ns(self) -> int:
        """When the profiler's own function that began the recording was entered; what began before was running."""
        starters = self._linked.named(
            self._frames, lambda name: name.startswith(_PROFILER) or "/torch/profiler/" in name
        )
        first = self._frames.start_ns[starters]
        return int(first.min()) if len(first) else int(self._frames.start_ns.min()) - 1

    @cached_property
    def user_frame(self) -> Rows:
        """The innermost frame with a line at or around each call of a Python function.

        That is a function of user code, or what a known line of it called.
        """
        return nearest(self._linked.frames.parent, self._own_line > ABSENT)

    @cached_property
    def line_of_frame(self) -> Rows:
        """The line that each call of a Python function runs for."""
        return take_or_absent(self._own_line, self.user_frame)

    @cached_property
    def _own_line(self) -> Rows:
        """The line of each user function, and that of each call of a library by one where it is known."""
        own = take_or_absent(self._line_of_name, self._frames.name.astype(np.intp))
        known = self._trace.about.call_lines
        if known is None or not len(self._frames):
            return own
        lines_of = {(function, called): lines for function, called, lines in known.calls}
        label_of_text = {text: label for label, text in enumerate(known.names)}
        label = np.array([label_of_text.get(without_instance(name), ABSENT) for name in self._trace.names], np.intp)
        around = self._linked.frames.parent
        calls = np.flatnonzero(take_or_absent(own, around) > ABSENT)
        calls = calls[np.lexsort((self._frames.start_ns[calls], around[calls]))]
        for of_function in np.split(calls, np.flatnonzero(np.diff(around[calls])) + 1):
            if not len(of_function):
                continue
            function = self._frames.name[around[of_function[0]]]
            called = tuple(label[self._frames.name[of_function]].tolist())
            for row, line in zip(of_function.tolist(), lines_of.get((int(label[function]), called), ()), strict=False):
                if line > 0 and own[row] == ABSENT:
                    own[row] = self._number(_FIRST_LINE.sub(f"({line}): ", self._trace.names[function], count=1))
        return own

    def frame_at(self, time_ns: Int64, thread: Int32) -> Rows:
        """The innermost call of a Python function at each moment.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.

        Returns:
            n rows of ``python_function``.
        """
        if not len(self._frames):
            return np.full(len(time_ns), ABSENT, np.intp)
        return self._linked.frames.innermost(time_ns, thread)

    @cached_property
    def line_of_operator(self) -> Rows:
        """The line that ran each operator, by the calls of functions around it, else by its own stack."""
        ops = self._trace.cpu_op
        line = take_or_absent(self.line_of_frame, self.frame_at(ops.start_ns, ops.thread))
        if len(self._trace.stacks):
            stacked = take_or_absent(self._line_of_stack, ops.stack.astype(np.intp))
            # the profiler opens the range of a step in the line before it: what is in the step was not called there
            stacked[self._linked.named(ops, lambda name: name.startswith(STEP))] = ABSENT
            around = nearest(self._linked.operators.parent, stacked > ABSENT)
            line = np.where(line > ABSENT, line, take_or_absent(stacked, around))
        return line
