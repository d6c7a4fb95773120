"""The gaps of a device: what ends each, and how late the host launched it."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.model.trace.idle import HOST_WORK_FROM_US
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Mask, Rows, distinct

HELD_FROM_NS = int(HOST_WORK_FROM_US * 1000)
"""A launch call that is longer holds the host: the first launch of a kernel loads it. A usual one takes some µs."""

_NEVER = np.iinfo(np.int64).max


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches in which no stream of a device worked, in order of time; all columns are equally long."""

    device: int
    """Number in :attr:`Trace.devices`."""
    work: Coverage
    """When the device was busy."""
    start_ns: Int64
    end_ns: Int64
    after: Rows
    """Row in :attr:`LinkedTrace.work` of the work that ends each gap; of works that begin together the one that was
    launched first."""
    launch_known: Mask
    """Whether the trace says when it was launched, or at least that it was before the gap began."""
    host_end_ns: Int64
    """End of the host part: the begin of the launch call, its end if it held the host, or the begin of the gap if the
    work had been launched before or nobody knows; never after the end of the gap."""
    thread: Int32
    """The thread that launched it; :data:`ABSENT` where that is not known."""

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, rows: Rows) -> Gaps:
        """Some of the gaps; when the device was busy stays the whole."""
        return replace(
            self,
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            after=self.after[rows],
            launch_known=self.launch_known[rows],
            host_end_ns=self.host_end_ns[rows],
            thread=self.thread[rows],
        )

    @property
    def duration_ns(self) -> Int64:
        """Ends minus starts."""
        return self.end_ns - self.start_ns

    @property
    def host_ns(self) -> Int64:
        """Duration of the host part."""
        return self.host_end_ns - self.start_ns


def _gaps(linked: LinkedTrace, device: int) -> Gaps:
    rows, work = linked.device_rows[device], linked.work
    busy = linked.device_busy[device]
    start_ns, end_ns = busy.end_ns[:-1], busy.start_ns[1:]
    launch_ns = _launched_by_ns(linked, rows)
    order = np.lexsort((launch_ns, work.start_ns[rows]))
    after = order[np.searchsorted(work.start_ns[rows[order]], end_ns)]
    launch_ns, after = launch_ns[after], rows[after]
    known = linked.launched[after] | (launch_ns <= start_ns)
    held = linked.launch_end_ns[after] - launch_ns > HELD_FROM_NS
    host_end_ns = np.where(held & (launch_ns > start_ns), linked.launch_end_ns[after], launch_ns)
    return Gaps(
        device=device,
        work=busy,
        start_ns=start_ns,
        end_ns=end_ns,
        after=after,
        launch_known=known,
        host_end_ns=np.where(known, np.clip(host_end_ns, start_ns, end_ns), start_ns),
        thread=linked.launch_thread[after],
    )


def _launched_by_ns(linked: LinkedTrace, rows: Rows) -> Int64:
    """When each work was launched; without its launch, when it was at the latest.

    A stream starts its work in the order of the launches: a work without a launch in the trace was launched before
    whatever follows it on its stream.
    """
    known = linked.launched[rows]
    launch_ns = np.where(known, linked.launch_start_ns[rows], _NEVER)
    stream = linked.work.stream[rows]
    for number in distinct(stream[~known & (stream > ABSENT)]):
        own = np.flatnonzero(stream == number)
        own = own[np.argsort(linked.work.start_ns[rows[own]], kind="stable")]
        latest = np.minimum.accumulate(launch_ns[own][::-1])[::-1]
        launch_ns[own] = np.where(known[own], launch_ns[own], latest)
    return launch_ns


gaps_by_device = CachedJoin(lambda linked: {device: _gaps(linked, device) for device in linked.devices})
"""The gaps of all devices, by the keys of :attr:`LinkedTrace.device_rows`."""
