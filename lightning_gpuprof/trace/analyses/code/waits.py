"""The host's waits for the device: which calls hold it, by their names, and which of them are one wait."""

import re

import msgspec
import numpy as np

from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows, distinct

_FULL_QUEUE = 1000
"""Launches that are waiting on the device. CUDA takes 1,024 and then holds the host in its next launch until one has
begun; in traces that show it, launches turn slow at 1,020 or 1,021."""

_SLOW_LAUNCH = 3.0
"""Times the median duration of a launch, from which on a launch into a full queue counts as blocked."""

_WHOLE_DEVICE = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize")


_SYNCHRONISES = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize"
    r"|^(cu|hip)(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|cu|hip)Memcpy(?!.*Async)"
)
"""Copies without ``Async`` return when they are done; PyTorch on ROCm copies with ``hipMemcpyWithStream``."""

_ALLOCATES = re.compile(
    r"^(cuda|hip)(Ext|Host)?(Malloc|Free|Alloc)"
    r"|^cuMem(Host)?(Alloc|Free)"
    r"|^(cu|hip)Mem(Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)"
    r"|^(cuda|hip|cuMem)Host(Register|Unregister)"
)
"""Also the calls by which expandable segments map memory, and page-locking of host memory."""

_MEMSET_OF_HOST = re.compile(r"^Memset .*(Pinned|Managed)")
_PAGEABLE = re.compile(r"\bPageable\b", re.IGNORECASE)


def synchronises(call_name: str) -> bool:
    """Whether the host waits in this call until the device, a stream or an event is done.

    Asynchronous copies of pageable memory wait too, which only the copy's name shows: see :func:`copies_pageable`.
    """
    return _SYNCHRONISES.search(call_name) is not None


def copies_pageable(work_name: str) -> bool:
    """Whether a copy, by its name such as ``Memcpy DtoH (Device -> Pageable)``, holds the host that launched it.

    CUDA stages pageable memory, and a call that copies to it returns when the copy is done (CUDA Runtime API, "API
    synchronization behavior").
    """
    return _PAGEABLE.search(work_name) is not None


def allocates(call_name: str) -> bool:
    """Whether the call takes memory of device or page-locked host from the driver, or gives it back."""
    return _ALLOCATES.search(call_name) is not None


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of the host, in order of their ends; all columns are equally long.

    A wait is all blocking calls in one outermost ``aten`` operator, such as the copy and the synchronisation of an
    ``aten::item``, or one blocking call outside of such operators.
    """

    start_ns: Int64
    """Begin of the first blocking call."""
    end_ns: Int64
    """End of the last one."""
    blocked_ns: Int64
    """Time in the calls."""
    operator: Rows
    """Row of that operator in :attr:`Trace.cpu_op`, :data:`ABSENT` outside of one."""
    first_call: Rows
    """Row of the first blocking call in :attr:`Trace.runtime`."""
    calls: Rows
    """Rows of all blocking calls, those of one wait together, waits in their order."""
    wait_of_call: Rows
    """The wait of each of ``calls``."""
    left_out: int
    """Calls that were left out, see :func:`waits_of`."""

    def __len__(self) -> int:
        return len(self.start_ns)


def blocking_calls(linked: LinkedTrace) -> Rows:
    """Rows in :attr:`Trace.runtime` of the calls in which the host waits for the device.

    Calls that synchronise, copies of pageable memory, and memsets of page-locked or managed memory without ``Async``
    (CUDA Runtime API, as above). Calls that allocate are not among them.
    """
    calls = linked.trace.runtime
    blocks = linked.named(calls, synchronises)
    # most names are long ones of kernels
    pageable = linked.named(linked.work, lambda name: name.startswith("Memcpy") and copies_pageable(name))
    pageable &= linked.launched
    blocks[linked.launch[pageable]] = True
    of_host = linked.named(linked.work, lambda name: _MEMSET_OF_HOST.search(name) is not None) & linked.launched
    if of_host.any():
        memsets = linked.launch[of_host]
        blocks[memsets] |= ~linked.named(calls, lambda name: "Async" in name)[memsets]
    return np.flatnonzero(blocks)


def launches_into_full_queue(linked: LinkedTrace) -> Rows:
    """Rows in :attr:`Trace.runtime` of the CUDA launches that waited because the queue of launches was full.

    HIP's queue grows instead.
    """
    known = linked.launched & linked.is_kernel
    if not known.any():
        return np.zeros(0, np.intp)
    launched_ns, begun_ns = linked.launch_start_ns[linked.launched], linked.work.start_ns[linked.launched]
    start_ns, end_ns = linked.launch_start_ns[known], linked.launch_end_ns[known]
    waiting = np.searchsorted(np.sort(launched_ns), start_ns) - np.searchsorted(np.sort(begun_ns), start_ns, "right")
    duration = end_ns - start_ns
    slow = (waiting >= _FULL_QUEUE) & (duration > _SLOW_LAUNCH * float(np.median(duration)))
    rows = distinct(linked.launch[known][slow])
    return rows[linked.named(linked.trace.runtime.where(rows), lambda name: name.startswith("cu"))]


def operation_of_call(linked: LinkedTrace) -> Rows:
    """Row in :attr:`Trace.cpu_op` of the outermost ``aten`` operator around each call in :attr:`Trace.runtime`.

    Operators of other kinds are passed over: an ``aten::item`` in ``fbgemm::permute_sparse_features`` is an
    ``aten::item``. :data:`ABSENT` outside of ``aten`` operators.
    """
    operators = linked.operators
    is_aten = linked.named(linked.trace.cpu_op, lambda name: name.startswith("aten::"))
    outermost = is_aten & (take_or_absent(nearest(operators.parent, is_aten), operators.parent) == ABSENT)
    return take_or_absent(nearest(operators.parent, outermost), linked.operator_of_call)


def waits_of(linked: LinkedTrace) -> Waits:
    """The host's waits for the device.

    Waits for the whole device outside of operators are left out if no launch precedes or none follows them: torch's
    profiler synchronises when it begins and ends, and without work after it a wait cannot cost any.
    """
    calls = linked.trace.runtime
    rows = blocking_calls(linked)
    outer = operation_of_call(linked)[rows]
    kept = ~_at_window_edge(linked, rows)
    left_out = int((~kept).sum())
    rows, outer = rows[kept], outer[kept]
    if not len(rows):
        none = np.zeros(0, np.int64)
        columns = ("start_ns", "end_ns", "blocked_ns", "operator", "first_call", "calls", "wait_of_call")
        return Waits(left_out=left_out, **dict.fromkeys(columns, none))
    key = np.where(outer > ABSENT, outer, len(linked.trace.cpu_op) + np.arange(len(rows)))
    of_row = np.unique(key, return_inverse=True)[1]
    count = int(of_row.max()) + 1
    end_ns = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(end_ns, of_row, calls.end_ns[rows])
    place = np.empty(count, np.intp)
    place[np.argsort(end_ns, kind="stable")] = np.arange(count)
    of_row = place[of_row]
    order = np.lexsort((calls.start_ns[rows], of_row))
    rows, outer, of_row = rows[order], outer[order], of_row[order]
    first = np.flatnonzero(np.concatenate(([True], of_row[1:] != of_row[:-1])))
    return Waits(
        start_ns=calls.start_ns[rows[first]],
        end_ns=np.maximum.reduceat(calls.end_ns[rows], first),
        blocked_ns=np.add.reduceat(calls.duration_ns[rows], first),
        operator=outer[first],
        first_call=rows[first],
        calls=rows,
        wait_of_call=of_row,
        left_out=left_out,
    )


def _at_window_edge(linked: LinkedTrace, rows: Rows) -> Mask:
    """Which calls wait for the whole device, outside of operators, with no launch before or none after them."""
    calls = linked.trace.runtime
    whole = linked.named(calls, lambda name: name.startswith(_WHOLE_DEVICE))[rows]
    whole &= linked.operator_of_call[rows] == ABSENT
    launched_ns = linked.launch_start_ns[linked.launched]
    if not len(launched_ns):
        return whole
    at_edge: Mask = whole & ((calls.end_ns[rows] <= launched_ns.min()) | (calls.start_ns[rows] >= launched_ns.max()))
    return at_edge
