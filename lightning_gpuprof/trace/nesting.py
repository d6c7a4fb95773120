"""The nesting of a thread's spans: what encloses each, which is the innermost at a moment, and what each has alone."""

from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Mask, Rows, rows_by, summed


class Nesting:
    """Spans of each thread as a call stack makes them: one ends before the next begins, or lies inside it.

    Of two that begin together the longer one is the outer one. A span that outlasts the one it began in counts as
    inside it. Empty spans enclose nothing.

    Args:
        start_ns: Starts, in any order.
        end_ns: Ends, none before its start.
        thread: The thread of each span; spans of different threads do not nest.
    """

    def __init__(self, start_ns: Int64, end_ns: Int64, thread: Int32) -> None:
        self._start_ns, self._end_ns, self._thread = start_ns, end_ns, thread
        # stable: a later row of equal spans is the inner one, as in the files
        order = np.lexsort((-end_ns, start_ns, thread))
        order = order[end_ns[order] > start_ns[order]]
        bounds = np.flatnonzero(np.diff(thread[order])) + 1
        self.parent: Rows = np.full(len(start_ns), ABSENT, np.intp)
        """Row of the span directly around each one, :data:`ABSENT` if there is none."""
        self.depth: Int32 = np.zeros(len(start_ns), np.int32)
        """How many spans are around each one."""
        self._of_thread: dict[int, Rows] = {}
        for rows in np.split(order, bounds):
            if len(rows):
                self._of_thread[int(thread[rows[0]])] = rows
                self._nest(rows)
        empty = np.flatnonzero(end_ns == start_ns)
        if len(empty):
            self.parent[empty] = self.innermost(start_ns[empty], thread[empty])
            around = self.parent[empty]
            self.depth[empty] = np.where(around >= 0, self.depth[around] + 1, 0)

    def _nest(self, rows: Rows) -> None:
        """Parents in one thread; rows in order of start, outer before inner."""
        parent, self.depth[rows] = nested(self._start_ns[rows], self._end_ns[rows])
        children = np.flatnonzero(parent >= 0)
        self.parent[rows[children]] = rows[parent[children]]

    def innermost(self, time_ns: Int64, thread: Int32) -> Rows:
        """The innermost span of a thread at each moment.

        Args:
            time_ns: Moments; a span holds its start and not its end.
            thread: The thread to look at, for each moment.

        Returns:
            A row of the spans for each moment, :data:`ABSENT` if there is none.
        """
        found: Rows = np.full(len(time_ns), ABSENT, np.intp)
        for asked in rows_by(thread):
            if (rows := self._of_thread.get(int(thread[asked[0]]))) is None:
                continue
            last = np.searchsorted(self._start_ns[rows], time_ns[asked], "right") - 1
            found[asked] = np.where(last >= 0, rows[np.maximum(last, 0)], ABSENT)
        return self._still_open(found, time_ns)

    def _still_open(self, row: Rows, time_ns: Int64) -> Rows:
        """Climb from the span that began last to the first one around it that has not ended."""
        asked = np.flatnonzero(row >= 0)
        while len(asked):
            asked = asked[self._end_ns[row[asked]] <= time_ns[asked]]
            row[asked] = self.parent[row[asked]]
            asked = asked[row[asked] >= 0]
        return row

    @cached_property
    def exclusive_ns(self) -> Int64:
        """Time of each span without the spans directly inside it; of one that outlasts it only the common part."""
        return exclusive_ns(self._start_ns, self._end_ns, self.parent)


def nearest(parent: Rows, wanted: Mask) -> Rows:
    """The nearest wanted span: the span itself, else the innermost of those around it.

    Each round doubles the distance climbed, so that a stack of a hundred frames takes seven rounds.

    Args:
        parent: Row of the span directly around each one, :data:`ABSENT` if there is none.
        wanted: Which spans are looked for.

    Returns:
        A row for each span, :data:`ABSENT` where no wanted span is around it.
    """
    at: Rows = np.where(wanted, np.arange(len(parent)), parent)
    moving = np.flatnonzero(~wanted & (parent > ABSENT))
    while len(moving):
        moving = moving[~wanted[at[moving]]]
        at[moving] = at[at[moving]]  # what lies further up has climbed, too
        moving = moving[at[moving] > ABSENT]
    return at


def take_or_absent(column: npt.NDArray[np.integer] | Mask, row: Rows) -> Rows:
    """What a column has in each row; :data:`ABSENT` for a row that is absent itself.

    Args:
        column: A value for each of n rows.
        row: Numbers of rows, or :data:`ABSENT`.

    Returns:
        As long as ``row``; 1 and 0 for a column of truth values.
    """
    if not len(column):
        return np.full(len(row), ABSENT, np.intp)
    return np.where(row > ABSENT, column[row], ABSENT).astype(np.intp, copy=False)


def exclusive_ns(start_ns: Int64, end_ns: Int64, parent: Rows) -> Int64:
    """Time of each span without its children, of which only the common part is subtracted.

    Args:
        start_ns: Starts of n spans.
        end_ns: Their ends.
        parent: Row of the span directly around each one, :data:`ABSENT` if there is none.

    Returns:
        n times from 0 to the duration; those of a thread whose spans nest sum to the time that they cover.
    """
    inside = np.flatnonzero(parent > ABSENT)
    around = parent[inside]
    common_ns = np.minimum(end_ns[inside], end_ns[around]) - start_ns[inside]
    own: Int64 = np.maximum(end_ns - start_ns - summed(around, np.maximum(common_ns, 0), len(start_ns)), 0)
    return own


def nested(starts: Int64, ends: Int64) -> tuple[Rows, Int32]:
    """What is around each span of a thread.

    Args:
        starts: In order, outer before inner.
        ends: All after their starts.

    Returns:
        For each span the row of the one directly around it, :data:`ABSENT` if there is none, and how many are around
        it.
    """
    count = len(starts)
    # begun before, less ended before
    depth = (np.arange(count) - np.searchsorted(np.sort(ends), starts, "right")).astype(np.int32)
    deepest = int(depth.max(initial=0))
    # numbers of 16 bits are sorted several times as fast
    by_depth = np.argsort(depth.astype(np.int16) if deepest < 1 << 15 else depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])
    parent: Rows = np.full(count, ABSENT, np.intp)
    for around, inside in pairwise(levels):  # the parent is the last row before the child that is one level up
        parent[inside] = around[np.searchsorted(around, inside) - 1]
    children = np.flatnonzero(depth > 0)
    if (ends[children] > ends[parent[children]]).any():  # the first that crosses another one outlasts its parent
        return _nested_one_by_one(starts.tolist(), ends.tolist())
    return parent, depth


def _nested_one_by_one(starts: list[int], ends: list[int]) -> tuple[Rows, Int32]:
    """The same where spans cross, which no writer of traces does on purpose: levels do not give the parent there."""
    parent = np.full(len(starts), ABSENT, np.intp)
    depth = np.zeros(len(starts), np.int32)
    around: list[int] = []
    for row, start in enumerate(starts):
        while around and ends[around[-1]] <= start:
            around.pop()
        if around:
            parent[row], depth[row] = around[-1], len(around)
        around.append(row)
    return parent, depth
