"""The streams of a window's devices flow in, tables of their work, overlap and queues flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.streams import DeviceStreams, QueueDepth, Streams, StreamTimes
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table


def stream_table(device: DeviceStreams, limit: int = 16) -> Table:
    """What each stream did, busiest first.

    Args:
        device: The device.
        limit: Most rows.
    """
    shown = device.streams[:limit]
    first = (
        f", the busiest {len(shown)} of {numbers.count(len(device.streams))}"
        if len(shown) < len(device.streams)
        else ""
    )
    return Table(
        title=f"Streams of {_device(device)}{first}",
        columns=(
            Column(title="stream"),
            Column(title="kernels", numeric=True),
            Column(title="copies", numeric=True),
            Column(title="memsets", numeric=True),
            Column(title="busy", unit="ms", term="union of the stream's work", numeric=True),
            Column(
                title="of window",
                term=f"busy share of {numbers.significant(device.window_us / 1e3)} ms, from the first start to the "
                "last end of the device's work",
                numeric=True,
            ),
            Column(title="overlap", term="share of its busy time in which another stream worked, too", numeric=True),
            Column(
                title="exposed copies",
                unit="ms",
                term="copies of the stream while no kernel ran on the device",
                numeric=True,
            ),
            Column(title="holds", term="what the stream is for, by its work"),
        ),
        rows=tuple(
            (
                Cell(text="not known" if stream.stream is None else str(stream.stream)),
                Cell(text=numbers.count(stream.kernels)),
                Cell(text=numbers.count(stream.copies)),
                Cell(text=numbers.count(stream.memsets)),
                Cell(text=numbers.fixed(stream.busy_us / 1e3)),
                Cell(text=numbers.percent(stream.window_ratio)),
                Cell(text=numbers.percent(stream.overlap_ratio)),
                Cell(text=numbers.fixed(stream.exposed_copy_us / 1e3) if stream.copies else numbers.ABSENT),
                Cell(text=_kind(stream)),
            )
            for stream in shown
        ),
        absent=_NO_WORK,
    )


def concurrency_table(device: DeviceStreams) -> Table:
    """How long how many streams worked at a time."""
    found = device.concurrency
    parts = (
        (_IDLE, found.none_us),
        ("one", found.one_us),
        ("two", found.two_us),
        ("three or more", found.more_us),
    )
    longest = max(spent_us for _, spent_us in parts)
    return Table(
        title=f"Streams of {_device(device)} that worked at a time",
        columns=(
            Column(title="streams"),
            Column(title="", bar=True),
            Column(title="time", unit="ms", term="sums to the device's window", numeric=True),
            Column(title="of window", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=name),
                Cell(text="", ratio=spent_us / longest, key="idle" if name == _IDLE else "forward"),
                Cell(text=numbers.fixed(spent_us / 1e3)),
                Cell(text=numbers.percent(spent_us / device.window_us)),
            )
            for name, spent_us in parts
            if longest > 0 and (spent_us or name in (_IDLE, "one"))
        ),
        absent=f"The work of {_device(device)} has no duration.",
    )


def queue_table(device: DeviceStreams, limit: int = 16) -> Table:
    """How much work was launched and not done, of the device and of each stream.

    Args:
        device: The device.
        limit: Most streams.
    """
    rows = [_queue_row("all", device.queue, device.works, device.unmatched)]
    if len(device.streams) > 1:
        rows += [
            _queue_row(
                "not known" if stream.stream is None else str(stream.stream),
                stream.queue,
                stream.works,
                stream.unmatched,
            )
            for stream in device.streams[:limit]
        ]
    return Table(
        title=f"Queue of {_device(device)}",
        columns=(
            Column(title="stream"),
            Column(title="mean", term="works that were launched and not done, over time", numeric=True),
            Column(title="max", term="CUDA holds the host in a launch while about 1,000 wait", numeric=True),
            Column(
                title="empty",
                term="share of the window in which nothing was launched and not done; for the whole device: the host "
                "was late",
                numeric=True,
            ),
            Column(title="works", numeric=True),
            Column(
                title="launch unknown",
                term="launched before the window, or the launch was lost: counted only while they run",
                numeric=True,
            ),
        ),
        rows=tuple(rows),
        absent=_NO_WORK,
    )


def stream_tables(streams: Streams) -> tuple[Table, ...]:
    """All tables, device by device."""
    if not streams.devices:
        return (Table(title="Streams", columns=(), rows=(), absent=_NO_WORK),)
    return tuple(
        table
        for device in streams.devices
        for table in (stream_table(device), concurrency_table(device), queue_table(device))
    )


_IDLE = "none: idle"
_NO_WORK = "The trace holds no work of a device."


def _queue_row(name: str, queue: QueueDepth, works: int, unmatched: int) -> tuple[Cell, ...]:
    return (
        Cell(text=name),
        Cell(text=numbers.significant(queue.mean)),
        Cell(text=numbers.count(queue.max)),
        Cell(text=numbers.percent(queue.empty_ratio)),
        Cell(text=numbers.count(works)),
        Cell(text=numbers.count(unmatched)),
    )


def _kind(stream: StreamTimes) -> str:
    if stream.communicates:
        return "communication"
    if not stream.kernels:
        return "copies" if stream.copies else "memsets"
    return "kernels" if not stream.communication_us else "kernels, some communication"


def _device(device: DeviceStreams) -> str:
    shown = plain.name(device.device, 40)
    return f"GPU {shown}" if shown.isdecimal() else shown
