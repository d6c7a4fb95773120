"""The distinct stacks of the host's nested spans, and the stack of each span."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows, Spans, joined, rows_by, summed

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""``<built-in method relu of type object at 0x7f12>``: another object of the same kind is the same place."""

_SEPARATORS = str.maketrans({"\n": " ", "\r": " ", "\t": " ", ";": ":"})


class Stacks:
    """A forest of names. A stack is one of its nodes: the names from a root down to it.

    Nodes are numbered so that a parent comes before its children, and the roots, which have no name here, before all.
    Children of one parent have different names.

    Args:
        roots: How many there are.
    """

    def __init__(self, roots: int) -> None:
        none = np.full(roots, ABSENT, np.intp)
        self._parts: list[tuple[Rows, Rows, Rows]] = [(none, none, np.arange(roots))]
        self._count = roots

    def __len__(self) -> int:
        return self._count

    def add(self, parent: Rows, root: Rows, name: Int32) -> Rows:
        """The stacks of all spans of one depth: a new one for each distinct pair of parent and name.

        Args:
            parent: The stack around each span.
            root: The root of that stack.
            name: A number for the span's name.

        Returns:
            The number of the new stack of each span.
        """
        width = int(name.max(initial=0)) + 1
        pairs, first, found = np.unique(parent * width + name, return_index=True, return_inverse=True)
        self._parts.append((pairs // width, pairs % width, root[first]))
        stack: Rows = found.reshape(-1) + self._count
        self._count += len(pairs)
        return stack

    @property
    def parent(self) -> Rows:
        """The stack without its innermost name, :data:`ABSENT` for a root."""
        return np.concatenate([part[0] for part in self._parts])

    @property
    def root(self) -> Rows:
        """The root of each stack."""
        return np.concatenate([part[2] for part in self._parts])

    def paths(self) -> list[tuple[int, ...]]:
        """The names of each stack, the outermost first; empty for a root."""
        paths: list[tuple[int, ...]] = []
        for parent, name in self._nodes:
            paths.append(() if parent == ABSENT else (*paths[parent], name))
        return paths

    def texts(self, roots: Sequence[str], names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Each stack in one line, ``root;outer;inner``, those that begin alike after each other.

        Args:
            roots: Name of each root.
            names: Name of each frame.

        Returns:
            Number of a stack and its text.
        """
        nodes, around = self._nodes, [(ABSENT, "")]
        for stack in np.argsort(self.places()).tolist():
            parent, name = nodes[stack]
            while around[-1][0] != parent:
                around.pop()
            text = roots[stack] if parent == ABSENT else f"{around[-1][1]};{names[name]}"
            around.append((stack, text))
            yield stack, text

    def places(self) -> Rows:
        """The place of each stack in an order in which stacks that begin alike are neighbours."""
        nodes = self._nodes
        size = [1] * len(nodes)
        for stack in range(len(nodes) - 1, -1, -1):
            if (parent := nodes[stack][0]) != ABSENT:
                size[parent] += size[stack]
        places: list[int] = []
        free: list[int] = []
        next_root = 0
        for stack, (parent, _) in enumerate(nodes):
            if parent == ABSENT:
                places.append(next_root)
                next_root += size[stack]
            else:
                places.append(free[parent])
                free[parent] += size[stack]
            free.append(places[stack] + 1)
        return np.array(places, np.intp)

    @property
    def _nodes(self) -> list[tuple[int, int]]:
        names = np.concatenate([part[1] for part in self._parts])
        return list(zip(self.parent.tolist(), names.tolist(), strict=True))


class HostStacks:
    """What each thread of the host was in: calls of Python functions, and the operators that they run.

    Without calls of Python functions, ranges that the user or torch named take their place. With them they are left
    out: a range that one hook begins and another ends would lie across them.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        trace = linked.trace
        around = trace.python_function if len(trace.python_function) else trace.annotation
        # of two spans that are equal in time the later one is the inner one
        self._spans = joined(Spans, [around.spans, trace.cpu_op.spans])
        self._nesting = Nesting(self._spans.start_ns, self._spans.end_ns, self._spans.thread)
        self.threads = tuple(_thread_name(linked, number) for number in range(len(trace.threads)))
        """The roots of the stacks, by the threads' numbers in :attr:`Trace.threads`."""
        self.names, self._name = _merged_names(trace.names, self._spans.name)
        """What the stacks are made of."""
        self.stacks = Stacks(len(self.threads))
        self._stack = self._numbered()

    def _numbered(self) -> Rows:
        """The stack of each span, depth by depth."""
        spans, depth, parent = self._spans, self._nesting.depth, self._nesting.parent
        stack = np.empty(len(spans), np.intp)
        for rows in rows_by(depth):
            thread = spans.thread[rows].astype(np.intp)
            around = parent[rows]
            stack_around = np.where(around > ABSENT, stack[around], thread)
            stack[rows] = self.stacks.add(stack_around, thread, self._name[rows])
        return stack

    @cached_property
    def exclusive_ns(self) -> Int64:
        """Time of each stack without those in it; those of a thread sum to the time that its spans cover."""
        return summed(self._stack, self._nesting.exclusive_ns, len(self.stacks))

    def at(self, time_ns: Int64, thread: Int32) -> Rows:
        """The stack of a thread at each moment; its root where it was in no span.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.

        Returns:
            n rows of stacks.
        """
        row = self._nesting.innermost(time_ns, thread)
        if not len(self._stack):
            return thread.astype(np.intp)
        return np.where(row > ABSENT, self._stack[row], thread)


def plain_name(name: str) -> str:
    """A name without what tells apart two calls of the same thing, or separates names and lines in flame graphs."""
    if name.startswith(STEP):
        return STEP.rstrip("#")
    return _ADDRESS.sub("", name).translate(_SEPARATORS)


def _merged_names(texts: Sequence[str], used: Int32) -> tuple[tuple[str, ...], Int32]:
    """The distinct plain names of spans, and the number of each span's name among them."""
    number: dict[str, int] = {}
    merged = np.zeros(len(texts), np.int32)
    for name in np.flatnonzero(np.bincount(used, minlength=len(texts))).tolist():
        merged[name] = number.setdefault(plain_name(texts[name]), len(number))
    return tuple(number), merged[used]


def _thread_name(linked: LinkedTrace, thread: int) -> str:
    is_main = thread == linked.main_thread
    return f"{'main thread' if is_main else 'thread'} {plain_name(linked.trace.threads[thread])}"
