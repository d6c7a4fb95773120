"""Joins a trace: which call launched each kernel or copy of a device, in which operator, step and phase."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np

from lightning_gpuprof.trace.host_phases import HostPhases
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.steps import Steps, is_step, steps_of
from lightning_gpuprof.trace.tables import ABSENT, DeviceSpans, Int32, Int64, Mask, Rows, Spans

T = TypeVar("T")

COMMUNICATION = ("nccl", "rccl")
"""Parts of the names, in lower case, of kernels that communicate."""
HOST_COLLECTIVES = ("gloo:", "mpi:", "ucc:")
"""Begins of the ranges that torch writes around collectives which the host runs, on whatever thread."""
COLLECTIVE_RANGES = ("nccl:", *HOST_COLLECTIVES)
"""The same around all collectives."""


class LinkedTrace:
    """A trace with what joins its tables. Each join is made once, when it is first asked for.

    Columns of device work have one row for each row of :attr:`Trace.device_work`: kernels, then copies, then memsets.

    Args:
        trace: What was recorded.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.joins: dict[object, Any] = {}
        """What each :class:`CachedJoin` has made."""

    @property
    def work(self) -> DeviceSpans:
        """All work of all devices."""
        return self.trace.device_work

    @cached_property
    def is_kernel(self) -> Mask:
        """Whether each device work is a kernel."""
        return np.arange(len(self.work)) < len(self.trace.kernel)

    @cached_property
    def is_communication(self) -> Mask:
        """Whether each device work is a kernel of NCCL or RCCL."""
        return self.is_kernel & self.named(self.work, is_communication)

    @cached_property
    def launch(self) -> Rows:
        """Row in :attr:`Trace.runtime` of the call that launched each device work.

        :data:`ABSENT` for work that was launched before the window, or whose launch was lost.
        """
        runtime, work = self.trace.runtime, self.work
        if not len(runtime):
            return np.full(len(work), ABSENT, np.intp)
        order = np.argsort(runtime.correlation, kind="stable")
        found = np.searchsorted(runtime.correlation[order], work.correlation)
        row = order[np.minimum(found, len(order) - 1)]
        matched = (runtime.correlation[row] == work.correlation) & (work.correlation > ABSENT)
        launch: Rows = np.where(matched, row, ABSENT)
        return launch

    @cached_property
    def launched(self) -> Mask:
        """Whether the launch of each device work is in the trace."""
        known: Mask = self.launch >= 0
        return known

    @cached_property
    def launch_start_ns(self) -> Int64:
        """When the call that launched each device work began; the work's own start where it is not known."""
        return self._of_launch(self.trace.runtime.start_ns)

    @cached_property
    def launch_end_ns(self) -> Int64:
        """When that call ended; the work's start where it is not known."""
        return self._of_launch(self.trace.runtime.end_ns)

    @cached_property
    def launch_thread(self) -> Int32:
        """The thread that launched each device work; :data:`ABSENT` where it is not known."""
        thread: Int32 = np.full(len(self.work), ABSENT, np.int32)
        thread[self.launched] = self.trace.runtime.thread[self.launch[self.launched]]
        return thread

    def _of_launch(self, column: Int64) -> Int64:
        values = self.work.start_ns.copy()
        values[self.launched] = column[self.launch[self.launched]]
        return values

    @cached_property
    def operators(self) -> Nesting:
        """How operators (:attr:`Trace.cpu_op`) lie in one another."""
        ops = self.trace.cpu_op
        return Nesting(ops.start_ns, ops.end_ns, ops.thread)

    @cached_property
    def operator_of_call(self) -> Rows:
        """Row in :attr:`Trace.cpu_op` of the innermost operator around each call in :attr:`Trace.runtime`.

        By time and thread; where there is none, by Kineto's ``External id``. :data:`ABSENT` without either.
        """
        runtime, ops = self.trace.runtime, self.trace.cpu_op
        row = self.operators.innermost(runtime.start_ns, runtime.thread)
        missing = np.flatnonzero((row < 0) & (runtime.external_id > 0))
        if len(missing) and len(ops):
            order = np.argsort(ops.external_id, kind="stable")
            ids = runtime.external_id[missing]
            found = order[np.minimum(np.searchsorted(ops.external_id[order], ids), len(order) - 1)]
            # old traces give correlation ids here: an operator that does not hold the call is not its operator
            fits = (ops.external_id[found] == ids) & (ops.start_ns[found] <= runtime.start_ns[missing])
            fits &= runtime.start_ns[missing] <= ops.end_ns[found]
            row[missing[fits]] = found[fits]
        return row

    @cached_property
    def operator(self) -> Rows:
        """Row in :attr:`Trace.cpu_op` of the innermost operator that launched each device work."""
        if not len(self.trace.runtime):
            return np.full(len(self.work), ABSENT, np.intp)
        return np.where(self.launched, self.operator_of_call[self.launch], ABSENT)

    @cached_property
    def steps(self) -> Steps:
        """The steps of the trace."""
        return steps_of(self.trace)

    @cached_property
    def phases(self) -> HostPhases:
        """What the host was doing."""
        return HostPhases(self.trace)

    @cached_property
    def frames(self) -> Nesting:
        """How calls of Python functions lie in one another."""
        frames = self.trace.python_function
        return Nesting(frames.start_ns, frames.end_ns, frames.thread)

    def named(self, spans: Spans, wanted: Callable[[str], bool]) -> Mask:
        """Which spans have a wanted name; each distinct name is looked at once.

        Args:
            spans: The spans.
            wanted: Asked once for each distinct name.

        Returns:
            True for each span with such a name.
        """
        names = self.trace.names
        of_name = np.zeros(len(names), np.bool_)
        for number in spans.distinct_names.tolist():
            of_name[number] = wanted(names[number])
        return of_name[spans.name] if of_name.any() else np.zeros(len(spans), np.bool_)

    @property
    def device_rows(self) -> dict[int, Rows]:
        """Rows of device work of each device, by the device's number in :attr:`Trace.devices`."""
        return self.trace.device_rows

    @property
    def device_busy(self) -> dict[int, Coverage]:
        """When each device was busy, by the same keys."""
        return self.trace.device_busy

    @cached_property
    def devices(self) -> list[int]:
        """The devices with work, by their numbers in :attr:`Trace.devices`, in the order of their names."""
        names = self.trace.devices
        return sorted(self.device_rows, key=lambda device: (len(names[device]), names[device]))

    def covered(self, rows: Rows | Mask) -> Coverage:
        """When some rows of :attr:`work` ran."""
        return Coverage(self.work.start_ns[rows], self.work.end_ns[rows])

    @cached_property
    def main_thread(self) -> int | None:
        """The thread of the training loop. None: the trace does not show it.

        The one with the steps, unless it does nothing else; else, of those that launch work, the one with most named
        ranges, as the threads of autograd have few, but for those of collectives; else the one with most operators,
        or most calls.
        """
        ranges, ops = self.trace.annotation, self.trace.cpu_op
        candidates = self.named(ranges, lambda name: not name.startswith(COLLECTIVE_RANGES))
        if self.launched.any():
            candidates &= np.isin(ranges.thread, self.launch_thread)
        is_step_range, is_step_op = self.named(ranges, is_step), self.named(ops, is_step)
        candidates &= ~is_step_range
        frames = self.trace.python_function
        at_work = np.concatenate(
            (ops.thread[~is_step_op], ranges.thread[~is_step_range], self.trace.runtime.thread, frames.thread)
        )

        def of_steps(threads: Int32) -> Int32:
            return threads[np.isin(threads, at_work)] if len(at_work) else threads

        for threads in (
            of_steps(ranges.thread[is_step_range]),
            of_steps(ops.thread[is_step_op]),
            ranges.thread[candidates],
            ops.thread,
            self.trace.runtime.thread,
        ):
            if len(threads):
                return int(np.bincount(threads).argmax())
        return None


class CachedJoin(Generic[T]):
    """A join that is made when it is first asked for, once for each trace.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[LinkedTrace], T]) -> None:
        self._make = make

    def __call__(self, linked: LinkedTrace) -> T:
        """The join of a trace."""
        if self not in linked.joins:
            linked.joins[self] = self._make(linked)
        return cast("T", linked.joins[self])

    def forget(self, linked: LinkedTrace) -> None:
        """Let go of it, when nobody will ask soon: joins are as large as the tables."""
        linked.joins.pop(self, None)


def is_communication(name: str) -> bool:
    """Whether a kernel of this name communicates with other devices."""
    lower = name.lower()
    return any(part in lower for part in COMMUNICATION)
