"""What each stream did, what overlapped, and how full the queues were."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.model.trace.streams import Concurrency, DeviceStreams, QueueDepth, Streams, StreamTimes
from lightning_gpuprof.trace.analyses.calls.queue_depth import queue_depth, queue_times_ns
from lightning_gpuprof.trace.analyses.joins.device_parts import DeviceParts, device_parts
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Rows, distinct, ratio

SERIES_POINTS = 400
"""Most stretches of a series of queue depths."""

SERIES_STREAMS = 8
"""The busiest streams of a device have a series; a device can have some dozens."""


def streams_of(linked: LinkedTrace, *, points: int = SERIES_POINTS) -> Streams:
    """Say what the streams of each device did.

    Args:
        linked: The trace.
        points: Most stretches of a series of queue depths; 0 for no series.

    Returns:
        No devices if the trace has no device activity.
    """
    return Streams(devices=tuple(_device(linked, device, points) for device in linked.devices))


class _Device:
    """One device.

    Args:
        linked: The trace.
        rows: Its work.
        parts: When it did what.
    """

    def __init__(self, linked: LinkedTrace, rows: Rows, parts: DeviceParts) -> None:
        self.linked, self.busy = linked, parts.busy
        self.kernels = parts.kernels
        stream = linked.work.stream[rows]
        self.streams = {int(number): rows[stream == number] for number in distinct(stream)}
        self.covers = {number: linked.covered(own) for number, own in self.streams.items()}
        self.alone, self.concurrency = _side_by_side(list(self.covers.values()))
        """When just one stream worked, and how many did at a time."""

    def queue(self, rows: Rows, points: int) -> QueueDepth:
        """How much of some work was launched and not done."""
        entered_ns, left_ns = queue_times_ns(self.linked, rows)
        return queue_depth(entered_ns, left_ns, self.busy.window_ns, points)

    def copies_ns(self, rows: Rows) -> tuple[int, int]:
        """Time of the copies among some work, and the part of it without a kernel on the device."""
        kernels, copies = len(self.linked.trace.kernel), len(self.linked.trace.memcpy)
        cover = self.linked.covered(rows[(rows >= kernels) & (rows < kernels + copies)])
        return cover.total_ns, cover.total_ns - cover.common_ns(self.kernels)


def _side_by_side(covers: Sequence[Coverage]) -> tuple[Coverage, Concurrency]:
    starts = np.concatenate([cover.start_ns for cover in covers])
    moments = np.concatenate((starts, *(cover.end_ns for cover in covers)))
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    working = np.cumsum(np.where(order < len(starts), np.int8(1), np.int8(-1)), dtype=np.int32)[:-1]
    of_count = np.bincount(working, weights=np.diff(moments), minlength=4).astype(np.int64)
    one = working == 1
    busy_ns = int(of_count[1:].sum())
    return Coverage(moments[:-1][one], moments[1:][one]), Concurrency(
        none_us=int(of_count[0]) / 1000,
        one_us=int(of_count[1]) / 1000,
        two_us=int(of_count[2]) / 1000,
        more_us=int(of_count[3:].sum()) / 1000,
        max=int(np.flatnonzero(of_count).max(initial=0)),
        mean=ratio(int((of_count * np.arange(len(of_count))).sum()), busy_ns),
    )


def _device(linked: LinkedTrace, number: int, points: int) -> DeviceStreams:
    rows = linked.device_rows[number]
    device = _Device(linked, rows, device_parts(linked)[number])
    copy_ns, exposed_ns = device.copies_ns(rows)
    by_busy = sorted(device.covers, key=lambda stream: (-device.covers[stream].total_ns, stream))
    return DeviceStreams(
        device=linked.trace.devices[number],
        window_us=device.busy.length_ns / 1000,
        busy_us=device.busy.total_ns / 1000,
        works=len(rows),
        unmatched=int((~linked.launched[rows]).sum()),
        copy_us=copy_ns / 1000,
        exposed_copy_us=exposed_ns / 1000,
        concurrency=device.concurrency,
        queue=device.queue(rows, points),
        streams=tuple(
            _stream(device, stream, points if place < SERIES_STREAMS else 0) for place, stream in enumerate(by_busy)
        ),
    )


def _stream(device: _Device, number: int, points: int) -> StreamTimes:
    linked, rows, cover = device.linked, device.streams[number], device.covers[number]
    kernels, copies = len(linked.trace.kernel), len(linked.trace.memcpy)
    busy_ns = cover.total_ns
    overlap_ns = busy_ns - cover.common_ns(device.alone)
    communication_ns = linked.covered(rows[linked.is_communication[rows]]).total_ns
    copy_ns, exposed_ns = device.copies_ns(rows)
    return StreamTimes(
        stream=number if number != ABSENT else None,
        works=len(rows),
        kernels=int((rows < kernels).sum()),
        copies=int(((rows >= kernels) & (rows < kernels + copies)).sum()),
        memsets=int((rows >= kernels + copies).sum()),
        unmatched=int((~linked.launched[rows]).sum()),
        busy_us=busy_ns / 1000,
        window_ratio=ratio(busy_ns, device.busy.length_ns),
        device_busy_ratio=ratio(busy_ns, device.busy.total_ns),
        overlap_us=overlap_ns / 1000,
        overlap_ratio=ratio(overlap_ns, busy_ns),
        communication_us=communication_ns / 1000,
        communicates=communication_ns > 0 and 2 * communication_ns >= busy_ns,
        copy_us=copy_ns / 1000,
        exposed_copy_us=exposed_ns / 1000,
        queue=device.queue(rows, points),
    )
