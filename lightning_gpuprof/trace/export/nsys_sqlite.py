"""Writes a trace in the SQLite schema of Nsight Systems, for recipes and ``nsys stats`` reports."""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy.typing as npt

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.compression import replacing
from lightning_gpuprof.trace.nsight_systems import COPIES, MEMORIES, PROPERTIES, PUSH_POP, START_END, WAITS
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, DeviceSpans, Geometry, Spans

SCHEMA_VERSION = "3.11.0"
"""Of Nsight Systems 2024.2, whose tables these are."""

_DEVICE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
_TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value",
    "META_DATA_EXPORT": "name, value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_GPU": ", ".join(("name", *(columns[0] for columns in PROPERTIES.values()))),
    "ENUM_CUDA_MEMCPY_OPER": "id, name, label",
    "ENUM_CUDA_MEM_KIND": "id, name, label",
    "ENUM_CUPTI_SYNC_TYPE": "id, name, label",
    "ENUM_NSYS_EVENT_TYPE": "id, name, label",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE}, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE}, bytes, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE}, value, bytes, memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_DEVICE}, syncType, eventId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, textId, domainId",
}
_COPY = re.compile(r"Memcpy (?P<way>\w+) \((?P<source>.+) -> (?P<target>.+)\)")
_MEMSET = re.compile(r"Memset \((?P<memory>.+)\)")
_WAYS = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "HtoH": "Host-to-Host"}
_NUMBER_OF_WAY = {way: number for number, way in reversed(COPIES.items())}
_NUMBER_OF_MEMORY = {name: number for number, name in MEMORIES.items()}
_NUMBER_OF_WAIT = {name: number for number, name in WAITS.items()}
_UNKNOWN = 7
"""Neither a way of copying nor a kind of memory."""
_NO_SIZES = (None, None, None)
_BLOCK_ROWS = 1 << 15
_PROCESS, _MOST = 24, (1 << 24) - 1

_Row = Sequence[object]


def write_nsys_sqlite(trace: Trace, target: Path) -> None:
    """Write what nsys would have written of the same run; operators are ranges as ``emit_nvtx`` names them.

    Args:
        trace: The trace.
        target: The database, replaced if it exists.

    Raises:
        TraceError: It cannot be written.
    """
    try:
        with replacing(target) as file, closing(sqlite3.connect(file.name)) as database:
            database.execute("PRAGMA journal_mode = OFF")  # what is not whole is deleted
            for table, columns in _TABLES.items():
                database.execute(f"CREATE TABLE {table} ({columns})")
            for table, rows in _rows(trace).items():
                marks = ", ".join("?" * len(_TABLES[table].split(",")))
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            database.commit()
    except (OSError, sqlite3.Error, OverflowError) as error:
        raise TraceError(f"cannot write {target}: {error}.") from error


def _rows(trace: Trace) -> dict[str, Iterable[_Row]]:
    threads = [_serial(text) for text in trace.threads]
    process = _process(trace, threads)
    properties = trace.about.device_properties
    return {
        "StringIds": enumerate(trace.names),
        "META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", SCHEMA_VERSION)],
        "TARGET_INFO_SESSION_START_TIME": [(trace.base_time_ns,)],
        "TARGET_INFO_GPU": [[one.get(name) for name in ("name", *PROPERTIES)] for one in properties],
        "ENUM_CUDA_MEMCPY_OPER": [(number, way, _WAYS.get(way, way)) for number, way in COPIES.items()],
        "ENUM_CUDA_MEM_KIND": [(number, name, name) for number, name in MEMORIES.items()],
        "ENUM_CUPTI_SYNC_TYPE": [(number, name, name) for number, name in WAITS.items()],
        "ENUM_NSYS_EVENT_TYPE": [(PUSH_POP, "NvtxPushPopRange", ""), (START_END, "NvtxStartEndRange", "")],
        "CUPTI_ACTIVITY_KIND_KERNEL": _kernels(trace, process),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            (*device, size, *_copy(trace.names[name])) for device, name, size in _on_device(trace.memcpy, process)
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            (*device, 0, size, _memory(_MEMSET.match(trace.names[name]), "memory"))
            for device, name, size in _on_device(trace.memset, process)
        ),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            (*device, _NUMBER_OF_WAIT.get(trace.names[name], 0), 0)
            for device, name, _ in _on_device(trace.device_wait, process)
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            (start, end, int(not trace.names[name].startswith("cuda")), threads[thread], _or_none(correlation), name, 0)
            for start, end, thread, name, correlation in _columns(
                trace.runtime, trace.runtime.thread, trace.runtime.name, trace.runtime.correlation
            )
        ),
        "NVTX_EVENTS": _ranges(trace, threads),
    }


def _columns(spans: Spans, *columns: npt.NDArray[Any]) -> Iterator[tuple[int, ...]]:
    """Start, end and further columns of each row, as Python's numbers."""
    all_columns = (spans.start_ns, spans.end_ns, *columns)
    for begin in range(0, len(spans), _BLOCK_ROWS):
        yield from zip(*(column[begin : begin + _BLOCK_ROWS].tolist() for column in all_columns), strict=True)


def _process(trace: Trace, threads: Sequence[int]) -> int:
    """The ``globalPid`` of the process that launched: a trace is of one."""
    first = next((spans.thread[0] for spans in (trace.runtime, trace.cpu_op, trace.annotation) if len(spans)), None)
    return 0 if first is None else threads[first] >> _PROCESS << _PROCESS


def _on_device(work: DeviceSpans, process: int) -> Iterator[tuple[tuple[int | None, ...], int, int | None]]:
    """What all work of devices has, its name, and its bytes."""
    chosen = work.device, work.stream, work.correlation, work.name, work.size_bytes
    for start, end, device, stream, correlation, name, size in _columns(work, *chosen):
        yield (start, end, device, 1, stream, _or_none(correlation), process), name, max(size, 0)


def _kernels(trace: Trace, process: int) -> Iterator[_Row]:
    for (device, name, _), geometry in zip(
        _on_device(trace.kernel, process), trace.kernel.geometry.tolist(), strict=True
    ):
        one = Geometry() if geometry == ABSENT else trace.geometries[geometry]
        sizes = (*(one.grid or _NO_SIZES), *(one.block or _NO_SIZES))
        yield (*device, name, name, one.registers_per_thread, *sizes, one.shared_memory_bytes, 0, None)


def _ranges(trace: Trace, threads: Sequence[int]) -> Iterator[_Row]:
    annotations, modules = trace.annotation, trace.module_range
    for spans in (annotations, modules):
        for start, end, thread, name in _columns(spans, spans.thread, spans.name):
            yield start, end, PUSH_POP, None, threads[thread], name, 0
    ops = trace.cpu_op
    for number, (start, end, thread, name, sequence) in enumerate(_columns(ops, ops.thread, ops.name, ops.sequence)):
        known = f", seq = {sequence}" if sequence >= 0 else ""
        yield start, end, PUSH_POP, f"{trace.names[name]}{known}, op_id = {number}", threads[thread], None, 0


def _copy(name: str) -> tuple[int, int, int]:
    found = _COPY.match(name)
    way = _NUMBER_OF_WAY.get(found["way"], _UNKNOWN) if found else _UNKNOWN
    return way, _memory(found, "source"), _memory(found, "target")


def _memory(found: re.Match[str] | None, group: str) -> int:
    return _NUMBER_OF_MEMORY.get(found[group], _UNKNOWN) if found else _UNKNOWN


def _or_none(number: int) -> int | None:
    return None if number == ABSENT else number


def _serial(text: str) -> int:
    """The ``globalTid`` of a thread; one that is no number has one that no other thread has."""
    process, _, thread = text.partition("/")
    numbers = [
        int(part) if part.isdigit() else _MOST - zlib.crc32(part.encode()) % (1 << 20) for part in (process, thread)
    ]
    return (numbers[0] & _MOST) << _PROCESS | numbers[1] & _MOST
