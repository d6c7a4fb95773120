"""Reads what ``nsys export --type sqlite`` writes, as the events that Kineto would have written of the same run.

Tables and columns are those of the schema in Nsight Systems' user guide. Versions differ in columns that may be missing
here: the columns are looked at, the version is not.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from msgspec import Raw

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.phases import FETCH_NAME
from lightning_gpuprof.model.trace.attribution import MODULE
from lightning_gpuprof.trace.columns import ColumnBuilder
from lightning_gpuprof.trace.events import (
    ABSENT,
    NOTHING,
    SQLITE,
    AnyArguments,
    AnyDocument,
    Document,
    Event,
    ExactEvent,
)

_HOW_TO_EXPORT = "Export the report with: nsys export --type sqlite FILE.nsys-rep"

COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
"""``copyKind``, as Kineto names it; those from 11 on are migrations of managed memory."""
MEMORIES = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}
"""``srcKind``, ``dstKind`` and ``memKind``."""
WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""``syncType``."""
PUSH_POP, START_END = 59, 60
"""``eventType`` of ranges; other events of NVTX have no duration."""

_PHASES = {
    "data_wait": FETCH_NAME,
    "h2d": "[pl][profile]batch_to_device",
    "optimizer": "[pl][profile]optimizer_step",
    "zero_grad": "[pl][profile]LightningModule.optimizer_zero_grad",
    "clip": "[pl][profile]LightningModule.configure_gradient_clipping",
    "checkpoint": "[pl][profile]save_checkpoint",
    "logging": "[pl][profile]self.log",
    "validation": "[pl][profile]run_evaluation",
}
"""The ranges of our own runs under nsys that have another name in our traces."""
_STEP = re.compile(r"step (\d+)")
_HOOK = re.compile(r"\w+\.on_\w+")
_OPERATOR = re.compile(r"(.+?), (?:seq|op_id|sizes|input_op_ids) = ")
"""A range of ``emit_nvtx``: the operator's name, and what torch knows of the call."""
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
"""torch does not write here which thread ran the forward, only its sequence number."""
_SEQUENCE = re.compile(r", seq = (\d+)")
_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
"""Behind the names of API functions: ``cudaLaunchKernel_v7000``."""

_BLOCK_ROWS = 1 << 15
_MAX_NAME = 1 << 16
"""Characters of a name; templates make some of thousands."""
_MAX_GPUS = 64
_FLOAT_NS = 1 << 52
"""Below, nanoseconds are exact as a float of microseconds."""
_PROCESS = 24
"""Bits of a thread in a ``globalTid``; the 24 above them are the process."""


class _Kind(NamedTuple):
    """One table, and how its rows become events."""

    table: str
    names: tuple[str, ...]
    """Columns that hold a string's id; the first one that is there names the event."""
    columns: tuple[str, ...]
    """Further columns, whole numbers; None where they are missing."""
    event: Callable[[_Row], tuple[str, str, int | str, int | str, AnyArguments]]
    """Category, name, process, thread and arguments of a row."""


class _Row(dict[str, Any]):
    """A row by the names of its columns."""

    def id(self, column: str) -> int:
        """A number, :data:`ABSENT` if there is none."""
        value = self[column]
        return ABSENT if value is None else value


def read_nsys(path: Path) -> tuple[ColumnBuilder, AnyDocument]:
    """Take all events of an export of nsys, or of its report if nsys is there to export it.

    Args:
        path: An SQLite database or a report.

    Returns:
        The events as columns, and what the file says of the machine.

    Raises:
        TraceError: It is damaged, not from nsys, or has columns of no version of nsys; or nsys is missing or fails.
        OverflowError: A time does not fit.
    """
    with path.open("rb") as file:
        is_export = file.read(len(SQLITE)) == SQLITE
    if is_export:
        return _read(path, path)
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceError(f"{path}: only nsys can read its reports, and it is not on the PATH. {_HOW_TO_EXPORT}")
    with TemporaryDirectory(prefix="gpuprof-") as folder:
        export = Path(folder) / "report.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(export), str(path.resolve())]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode or not export.is_file():
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            raise TraceError(f"{path}: nsys cannot export it: {said[-1][:200]}")
        return _read(export, path)


def _read(export: Path, path: Path) -> tuple[ColumnBuilder, AnyDocument]:
    """The events of an export: it is only read, and nothing that is stored in it is executed."""
    builder = ColumnBuilder()
    processes: dict[int, int] = {}
    try:
        # immutable: neither is a journal beside it looked for, nor a lock taken
        with closing(sqlite3.connect(f"{export.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")
            tables = _tables(database, path)
            strings = _strings(database, tables)
            kinds = [kind for kind in _KINDS if kind.table in tables]
            owned = all("globalPid" in tables[kind.table] for kind in kinds if "globalPid" in kind.columns)
            for kind in kinds:
                for rows in _rows(database, tables, strings, kind, path):
                    if owned:
                        _number_calls(rows, processes)
                    builder.add([_event(kind, row) for row in rows])
            return builder, _document(database, tables)
    except sqlite3.Error as error:
        raise TraceError(f"{path}: the SQLite file cannot be read ({error}). {_HOW_TO_EXPORT}") from None


def _tables(database: sqlite3.Connection, path: Path) -> dict[str, frozenset[str]]:
    """The stored columns of each table that is read."""
    kinds = {
        name: "view" if kind == "view" else "virtual table" if str(sql).lower().startswith("create virtual") else ""
        for name, kind, sql in database.execute(
            "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table','view')"
        )
    }
    wanted = [*(kind.table for kind in _KINDS), _STRINGS, *_OF_GPUS, _START]
    for name in wanted:
        if kinds.get(name):
            raise TraceError(f"{path}: {name} is a {kinds[name]}, which nsys never writes. {_HOW_TO_EXPORT}")
    if not any(kind.table in kinds for kind in _KINDS):
        raise TraceError(
            f"{path}: is an SQLite database without events of nsys (CUPTI_ACTIVITY_KIND_KERNEL, NVTX_EVENTS). "
            f"{_HOW_TO_EXPORT}"
        )
    return {
        name: frozenset(row[1] for row in database.execute(f'PRAGMA table_info("{name}")'))  # none that is computed
        for name in wanted
        if name in kinds
    }


def _rows(
    database: sqlite3.Connection,
    tables: Mapping[str, frozenset[str]],
    strings: Mapping[int, str],
    kind: _Kind,
    path: Path,
) -> Iterator[list[_Row]]:
    there = tables[kind.table]
    if missing := [name for name in ("start", "end") if name not in there]:
        raise TraceError(
            f"{path}: {kind.table} has no column {missing[0]!r}, which every nsys writes. {_HOW_TO_EXPORT}"
        )
    columns = ("start", "end", *kind.columns)
    chosen = [f'CAST(e."{name}" AS INTEGER)' if name in there else "NULL" for name in columns]
    text = f"substr(CAST(e.text AS TEXT), 1, {_MAX_NAME})" if "text" in there else "NULL"
    name_id = next((f'CAST(e."{name}" AS INTEGER)' for name in kind.names if name in there), "NULL")
    cursor = database.execute(
        f"SELECT {text}, {name_id}, {', '.join(chosen)} FROM {kind.table} e "
        'WHERE e."start" IS NOT NULL AND e."end" IS NOT NULL'
    )
    while block := cursor.fetchmany(_BLOCK_ROWS):
        yield [
            _Row(zip(("name", *columns), (strings.get(number) if own is None else own, *row), strict=True))
            for own, number, *row in block
        ]


def _strings(database: sqlite3.Connection, tables: Mapping[str, frozenset[str]]) -> dict[int, str]:
    """Texts by their number, the first of each; once each, however many rows have it."""
    if not {"id", "value"} <= tables.get(_STRINGS, frozenset()):
        return {}
    found: dict[int, str] = {}
    for number, text in database.execute(
        f"SELECT CAST(id AS INTEGER), substr(CAST(value AS TEXT), 1, {_MAX_NAME}) FROM {_STRINGS}"
    ):
        if text is not None:
            found.setdefault(number, text)
    return found


def _number_calls(rows: list[_Row], processes: dict[int, int]) -> None:
    """Make the numbers of calls differ between processes, each of which counts its own from 1 on."""
    for row in rows:
        if row.get("correlationId") is not None:
            owner = (row.get("globalPid") or row.get("globalTid") or 0) >> _PROCESS
            row["correlationId"] += processes.setdefault(owner, len(processes)) << 32


def _event(kind: _Kind, row: _Row) -> Event | ExactEvent:
    category, name, process, thread, arguments = kind.event(row)
    arguments.correlation = row.get("correlationId")
    start, duration = row["start"], (row["end"] - row["start"]) / 1000
    common = {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "dur": duration}
    if abs(start) < _FLOAT_NS:
        return Event(ts=start / 1000, args=arguments, **common)
    return ExactEvent(ts=Decimal(start) / 1000, args=arguments, **common)


def _on_device(row: _Row, **more: Any) -> tuple[int, int, AnyArguments]:
    device, stream = row.id("deviceId"), row.id("streamId")
    return device, stream, AnyArguments(device=device, stream=stream, size_bytes=row.get("bytes"), **more)


def _kernel(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    shared = None
    if row["staticSharedMemory"] is not None or row["dynamicSharedMemory"] is not None:
        shared = (row["staticSharedMemory"] or 0) + (row["dynamicSharedMemory"] or 0)
    more = {
        "grid": _three(row["gridX"], row["gridY"], row["gridZ"]),
        "block": _three(row["blockX"], row["blockY"], row["blockZ"]),
        "registers": row["registersPerThread"],
        "shared_memory": shared,
    }
    return "kernel", row["name"] or "kernel without a name", *_on_device(row, **more)


@lru_cache(maxsize=1 << 12)
def _three(x: int | None, y: int | None, z: int | None) -> Raw:
    return NOTHING if x is None or y is None or z is None else Raw(b"[%d,%d,%d]" % (x, y, z))


def _copy(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    source, target = (MEMORIES.get(row[name], "Unknown") for name in ("srcKind", "dstKind"))
    return "gpu_memcpy", f"Memcpy {COPIES.get(row['copyKind'], 'Unknown')} ({source} -> {target})", *_on_device(row)


def _memset(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    return "gpu_memset", f"Memset ({MEMORIES.get(row['memKind'], 'Unknown')})", *_on_device(row)


def _wait(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    return "cuda_sync", WAITS.get(row["syncType"], "Sync"), *_on_device(row)


def _call(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    name = _VERSION.sub("", row["name"] or "call without a name")
    category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
    return category, name, *_thread(row), AnyArguments()


def _range(row: _Row) -> tuple[str, str, int, int, AnyArguments]:
    category, name, sequence, of_backward = _meant(row["name"] or "")
    if row["eventType"] not in (None, PUSH_POP, START_END):
        category = "no range"
    return category, name, *_thread(row), AnyArguments(sequence=sequence, forward_thread=of_backward)


@lru_cache(maxsize=1 << 14)
def _meant(text: str) -> tuple[str, str, int, int]:
    """Category, name in our traces, sequence number, and 1 if it is the backward of that, of a range."""
    if operator := _OPERATOR.match(text):
        sequence = _SEQUENCE.search(text)
        of_backward = 1 if sequence and _BACKWARD.search(operator[1]) else ABSENT
        return "cpu_op", operator[1], int(sequence[1]) if sequence else ABSENT, of_backward
    if text.startswith(("aten::", MODULE)):
        return "cpu_op", text, ABSENT, ABSENT
    if step := _STEP.fullmatch(text):
        return "user_annotation", f"ProfilerStep#{step[1]}", ABSENT, ABSENT
    if _HOOK.fullmatch(text):
        return "user_annotation", f"[pl][profile][Callback]{text}", ABSENT, ABSENT
    return "user_annotation", _PHASES.get(text, text), ABSENT, ABSENT


def _thread(row: _Row) -> tuple[int, int]:
    """Process and thread of a ``globalTid``."""
    serial = row["globalTid"] or 0
    mask = (1 << _PROCESS) - 1
    return serial >> _PROCESS & mask, serial & mask


_ON_DEVICE = ("deviceId", "streamId", "correlationId", "globalPid")
_GEOMETRY = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
_KINDS = (
    _Kind(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        ("demangledName", "shortName", "name"),
        (*_ON_DEVICE, *_GEOMETRY, "staticSharedMemory", "dynamicSharedMemory"),
        _kernel,
    ),
    _Kind("CUPTI_ACTIVITY_KIND_MEMCPY", (), (*_ON_DEVICE, "bytes", "copyKind", "srcKind", "dstKind"), _copy),
    _Kind("CUPTI_ACTIVITY_KIND_MEMSET", (), (*_ON_DEVICE, "bytes", "memKind"), _memset),
    _Kind("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (), (*_ON_DEVICE, "syncType"), _wait),
    _Kind("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",), ("globalTid", "correlationId"), _call),
    _Kind("NVTX_EVENTS", ("textId",), ("globalTid", "eventType"), _range),
)
_STRINGS, _START = "StringIds", "TARGET_INFO_SESSION_START_TIME"
_OF_GPUS = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
"""The second one until early 2021."""
PROPERTIES = {
    "id": ("cuDevice", "id", "deviceId"),
    "totalGlobalMem": ("totalMemory", "totalGlobalMemory"),
    "computeMajor": ("computeMajor", "computeCapabilityMajor"),
    "computeMinor": ("computeMinor", "computeCapabilityMinor"),
    "numSms": ("smCount", "numMultiprocessors"),
    "warpSize": ("threadsPerWarp", "numThreadsPerWarp"),
    "maxThreadsPerBlock": ("maxThreadsPerBlock",),
    "regsPerMultiprocessor": ("maxRegistersPerSm", "maxRegistersPerMultiprocessor"),
    "sharedMemPerBlock": ("maxShmemPerBlock", "maxSharedMemoryPerBlock"),
    "sharedMemPerMultiprocessor": ("maxShmemPerSm", "maxSharedMemoryPerMultiprocessor"),
    "maxWarpsPerMultiprocessor": ("maxWarpsPerSm", "maxWarpsPerMultiprocessor"),
}
"""Kineto's name of a property of a GPU, and the columns that have it, the newest name first."""


def _document(database: sqlite3.Connection, tables: Mapping[str, frozenset[str]]) -> AnyDocument:
    properties: list[dict[str, object]] = []
    gpus = next((table for table in _OF_GPUS if table in tables), None)
    if gpus is not None:
        wanted = [*PROPERTIES.values(), ("name",)]
        columns = [name for names in wanted for name in names if name in tables[gpus]]
        chosen = ", ".join(f'"{name}"' for name in columns) or "NULL"
        properties = [
            _properties(dict(zip(columns, row, strict=False)))
            for row in database.execute(f"SELECT {chosen} FROM {gpus} LIMIT {_MAX_GPUS}")
        ]
    base_time = None
    if "utcEpochNs" in tables.get(_START, frozenset()):
        base_time = next(database.execute(f"SELECT CAST(utcEpochNs AS INTEGER) FROM {_START} LIMIT 1"), (None,))[0]
    return Document(events=[], base_time=base_time, device_properties=properties)


def _properties(row: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for kineto, columns in PROPERTIES.items():
        known = [value for column in columns if isinstance(value := row.get(column), int)]
        if known:
            found[kineto] = known[0]
    warps, warp = (found.get(name) for name in ("maxWarpsPerMultiprocessor", "warpSize"))
    if isinstance(warps, int) and isinstance(warp, int):
        found["maxThreadsPerMultiprocessor"] = warps * warp
    if isinstance(name := row.get("name"), str):
        found["name"] = name[:_MAX_NAME]
    return found
