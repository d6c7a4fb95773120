"""Streams as people read them: their work, how many worked at a time, and their queues."""

import msgspec
from table_texts import texts

from lightning_gpuprof.model.trace.streams import Concurrency, DeviceStreams, QueueDepth, Streams, StreamTimes
from lightning_gpuprof.sinks.window_tables.streams import concurrency_table, queue_table, stream_table, stream_tables

QUEUE = QueueDepth(mean=8.05, max=1023, empty_ratio=0.125, bin_us=10.0, means=(1.0,), maxima=(2,))

COMPUTE = StreamTimes(
    stream=7,
    works=12_350,
    kernels=12_000,
    copies=300,
    memsets=50,
    unmatched=4,
    busy_us=60_000.0,
    window_ratio=0.6,
    device_busy_ratio=0.75,
    overlap_us=15_000.0,
    overlap_ratio=0.25,
    communication_us=0.0,
    communicates=False,
    copy_us=3_000.0,
    exposed_copy_us=2_000.0,
    queue=QUEUE,
)

COLLECTIVES = msgspec.structs.replace(
    COMPUTE,
    stream=13,
    works=20,
    kernels=20,
    copies=0,
    memsets=0,
    unmatched=0,
    busy_us=35_000.0,
    window_ratio=0.35,
    communication_us=35_000.0,
    communicates=True,
    copy_us=0.0,
    exposed_copy_us=0.0,
)

DEVICE = DeviceStreams(
    device="0",
    window_us=100_000.0,
    busy_us=80_000.0,
    works=12_370,
    unmatched=4,
    copy_us=3_000.0,
    exposed_copy_us=2_000.0,
    concurrency=Concurrency(
        none_us=20_000.0, one_us=65_000.0, two_us=15_000.0, more_us=0.0, max=2, mean=(65 + 30) / 80
    ),
    queue=QUEUE,
    streams=(COMPUTE, COLLECTIVES),
)


def test_each_stream_has_a_row() -> None:
    assert texts(stream_table(DEVICE)) == [
        ["7", "12,000", "300", "50", "60", "60.0 %", "25.0 %", "2", "kernels"],
        ["13", "20", "0", "0", "35", "35.0 %", "25.0 %", "-", "communication"],
    ]


def test_what_a_stream_holds() -> None:
    copies = msgspec.structs.replace(COMPUTE, kernels=0)
    memsets = msgspec.structs.replace(COMPUTE, kernels=0, copies=0)
    mixed = msgspec.structs.replace(COMPUTE, communication_us=1.0)
    unknown = msgspec.structs.replace(COMPUTE, stream=None)
    shown = texts(stream_table(msgspec.structs.replace(DEVICE, streams=(copies, memsets, mixed, unknown))))
    assert [row[-1] for row in shown] == ["copies", "memsets", "kernels, some communication", "kernels"]
    assert shown[3][0] == "unknown"


def test_a_table_of_many_streams_says_that_it_shows_the_busiest() -> None:
    table = stream_table(msgspec.structs.replace(DEVICE, streams=(COMPUTE,) * 40))
    assert len(table.rows) == 16
    assert table.title == "Streams of GPU 0, busiest first (first 16 of 40)"


def test_how_many_streams_worked_at_a_time() -> None:
    table = concurrency_table(DEVICE)
    assert texts(table) == [
        ["none: idle", "", "20", "20.0 %"],
        ["one", "", "65", "65.0 %"],
        ["two", "", "15", "15.0 %"],
    ]
    assert [row[1].key for row in table.rows] == ["forward"] * 3


def test_a_device_always_busy_has_a_row_for_no_stream() -> None:
    full = Concurrency(none_us=0.0, one_us=100_000.0, two_us=0.0, more_us=0.0, max=1, mean=1.0)
    table = concurrency_table(msgspec.structs.replace(DEVICE, concurrency=full))
    assert [row[0] for row in texts(table)] == ["none: idle", "one"]


def test_the_queue_of_the_device_and_of_each_stream() -> None:
    assert texts(queue_table(DEVICE)) == [
        ["all", "8.05", "1,023", "12.5 %", "12,370", "4"],
        ["7", "8.05", "1,023", "12.5 %", "12,350", "4"],
        ["13", "8.05", "1,023", "12.5 %", "20", "0"],
    ]
    assert len(queue_table(msgspec.structs.replace(DEVICE, streams=(COMPUTE,))).rows) == 1


def test_work_without_duration_is_a_sentence() -> None:
    nothing = Concurrency(none_us=0.0, one_us=0.0, two_us=0.0, more_us=0.0, max=0, mean=None)
    table = concurrency_table(msgspec.structs.replace(DEVICE, window_us=0.0, concurrency=nothing))
    assert (table.rows, table.absent) == ((), "Nothing on GPU 0 has a duration.")


def test_a_trace_without_devices_has_one_sentence() -> None:
    (table,) = stream_tables(Streams())
    assert (table.rows, table.absent) == ((), "The trace has no device activity.")
