"""Tables of the streams' kernels, overlap and queues."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.streams import DeviceStreams, Streams, StreamTimes
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, PERCENT, SIGNIFICANT, US_AS_MS, Column, Table, bar

MAX_STREAMS = 16


def stream_table(device: DeviceStreams) -> Table:
    """What each stream did, busiest first."""
    window = f"{numbers.significant(device.window_us / 1e3)} ms from the first to the last kernel or copy"
    return Table.of(
        f"Streams of {plain.device(device.device)}, busiest first",
        device.streams,
        Column("stream", _number),
        Column("kernels", lambda stream: stream.kernels, COUNT),
        Column("copies", lambda stream: stream.copies, COUNT),
        Column("memsets", lambda stream: stream.memsets, COUNT),
        Column("busy", lambda stream: stream.busy_us, US_AS_MS, help="time in which the stream was busy"),
        Column("of window", lambda stream: stream.window_ratio, PERCENT, help=f"busy share of {window}"),
        Column(
            "overlap",
            lambda stream: stream.overlap_ratio,
            PERCENT,
            help="share of its busy time in which another stream was busy",
        ),
        Column(
            "exposed copies",
            lambda stream: stream.exposed_copy_us if stream.copies else None,
            US_AS_MS,
            help="copies of the stream while no kernel ran on the device",
        ),
        Column("used for", _kind, help="what the stream is used for"),
        absent=_NO_WORK,
        limit=MAX_STREAMS,
    )


def concurrency_table(device: DeviceStreams) -> Table:
    """How long how many streams worked at a time."""
    found = device.concurrency
    parts = ((_IDLE, found.none_us), ("one", found.one_us), ("two", found.two_us), ("three or more", found.more_us))
    longest = max(spent_us for _, spent_us in parts)
    return Table.of(
        f"Concurrent streams of {plain.device(device.device)}",
        [part for part in parts if longest > 0 and (part[1] or part[0] in (_IDLE, "one"))],
        Column("streams", lambda row: row[0]),
        bar(lambda row: row[1] / longest),
        Column("time", lambda row: row[1], US_AS_MS, help="adds up to the device's window"),
        Column("of window", lambda row: row[1] / device.window_us, PERCENT),
        absent=f"Nothing on {plain.device(device.device)} has a duration.",
    )


def queue_table(device: DeviceStreams) -> Table:
    """How much work was launched and not done, of the device and of each stream."""
    streams = device.streams[:MAX_STREAMS] if len(device.streams) > 1 else ()
    rows: list[tuple[str, DeviceStreams | StreamTimes]] = [
        ("all", device),
        *((_number(stream), stream) for stream in streams),
    ]
    return Table.of(
        f"Queue of {plain.device(device.device)}",
        rows,
        Column("stream", lambda row: row[0]),
        Column("mean", lambda row: row[1].queue.mean, SIGNIFICANT, help="launched but not finished, mean over time"),
        Column("max", lambda row: row[1].queue.max, COUNT, help="CUDA blocks the host at about 1,000 queued launches"),
        Column(
            "empty",
            lambda row: row[1].queue.empty_ratio,
            PERCENT,
            help="share of the window with an empty queue; for the whole GPU: the host was late",
        ),
        Column("operations", lambda row: row[1].works, COUNT, help="kernels, copies and memsets"),
        Column(
            "launch unknown",
            lambda row: row[1].unmatched,
            COUNT,
            help="launched before the window, or the launch was lost; counted only while they run",
        ),
        absent=_NO_WORK,
    )


def stream_tables(streams: Streams) -> tuple[Table, ...]:
    """All tables, device by device."""
    if not streams.devices:
        return (Table.of("Streams", (), absent=_NO_WORK),)
    return tuple(
        table
        for device in streams.devices
        for table in (stream_table(device), concurrency_table(device), queue_table(device))
    )


_IDLE = "none: idle"
_NO_WORK = "The trace has no device activity."


def _kind(stream: StreamTimes) -> str:
    if stream.communicates:
        return "communication"
    if not stream.kernels:
        return "copies" if stream.copies else "memsets"
    return "kernels" if not stream.communication_us else "kernels, some communication"


def _number(stream: StreamTimes) -> str:
    return "unknown" if stream.stream is None else str(stream.stream)
