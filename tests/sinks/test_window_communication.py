"""Tables of communication: what people read of it."""

import msgspec
from empty_structs import empty
from table_texts import texts

from lightning_gpuprof.model.trace.communication import (
    CollectiveTimes,
    Communication,
    DeviceCommunication,
    StreamCommunication,
)
from lightning_gpuprof.sinks.window_tables import communication as tables

ROW = CollectiveTimes(
    kind="all_reduce",
    dtype="float",
    group="0",
    group_size=8,
    group_size_source="collective",
    message_bytes=4 << 20,
    count=3,
    total_us=3000.0,
    mean_us=1000.0,
    min_us=900.0,
    max_us=1100.0,
    share_ratio=1.0,
    exposed_us=1500.0,
    sized=3,
    total_bytes=12 << 20,
    algorithm_bandwidth_bytes_per_s=4.2e9,
    bus_bandwidth_bytes_per_s=7.35e9,
    best_bus_bandwidth_bytes_per_s=8.1e9,
)
FOUND = Communication(
    rank=0,
    world_size=8,
    backend="nccl",
    devices=(
        DeviceCommunication(
            device="0",
            collectives=3,
            window_us=10_000.0,
            communication_us=3000.0,
            computation_us=5000.0,
            overlap_us=1500.0,
            exposed_us=1500.0,
            exposed_ratio=0.15,
            copy_us=200.0,
            copy_exposed_us=100.0,
        ),
    ),
    kinds=(ROW,),
    sizes=(ROW,),
    sizes_left_out=2,
    streams=(
        StreamCommunication(
            device="0", stream=20, collectives=3, communication_us=3000.0, exposed_us=1500.0, computation_us=0.0
        ),
    ),
    notes=("The size of 1 of 4 collectives is not known.",),
)
NONE = empty(Communication)
ALL = (
    tables.device_communication_table,
    tables.collective_kind_table,
    tables.collective_size_table,
    tables.communication_stream_table,
    tables.communication_note_table,
)


def test_the_tables_of_a_trace_with_communication() -> None:
    """What computation does not cover, bandwidth in decimal gigabytes, type and group, and how many are left out."""
    assert texts(tables.device_communication_table(FOUND)) == [
        ["0", "3", "5", "1.50", "1.50", "15.0 %", "0.200", "0.100"]
    ]
    assert texts(tables.collective_kind_table(FOUND)) == [
        ["all_reduce", "", "3", "3", "1", "1.50", "12 MiB", "7.35", "8.10"]
    ]
    sizes = tables.collective_size_table(FOUND)
    assert sizes.title == "Collectives by size (2 more)"
    assert texts(sizes) == [["all_reduce", "4 MiB", "float", "0 of 8", "3", "1", "0.900", "1.10", "50.0 %", "7.35"]]
    assert texts(tables.communication_stream_table(FOUND)) == [["0", "20", "3", "3", "1.50", "0"]]
    assert texts(tables.communication_note_table(FOUND)) == [["The size of 1 of 4 collectives is not known."]]


def test_what_is_not_known_is_a_dash() -> None:
    unknown = msgspec.structs.replace(
        ROW, dtype=None, group=None, group_size=None, message_bytes=None, bus_bandwidth_bytes_per_s=None
    )
    row = texts(tables.collective_size_table(msgspec.structs.replace(FOUND, sizes=(unknown,))))[0]
    assert (row[1], row[2], row[3], row[-1]) == ("-", "-", "-", "-")
