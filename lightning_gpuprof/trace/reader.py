"""Reads a Kineto trace file into a :class:`Trace`: the columns of everything recorded in a window."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.phases import FETCH_NAME, FETCH_RANGE
from lightning_gpuprof.model.trace.attribution import MODULE
from lightning_gpuprof.model.trace.call_lines import CallLines
from lightning_gpuprof.trace.chunks import BLOCK_BYTES, Pieces, TooLargeError
from lightning_gpuprof.trace.columns import ColumnBuilder, Kind
from lightning_gpuprof.trace.compression import BOMB_RATIO, GZIP_ERRORS, BombError, open_json, open_json_of
from lightning_gpuprof.trace.events import SQLITE, AnyDocument, Document, EventDecoder, decode_one_by_one
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.labels import collectives_of, geometries_of, inputs_of
from lightning_gpuprof.trace.partial_read import (
    TWO_BY_FORK_FROM_BYTES,
    TWO_FROM_BYTES,
    PartialRead,
    add,
    add_all,
    read_in_two,
    size_of_json,
)
from lightning_gpuprof.trace.repair import encoding_of, repaired
from lightning_gpuprof.trace.tables import (
    Collective,
    DeviceSpans,
    FrameSpans,
    Geometry,
    Inputs,
    LaunchSpans,
    MemoryEvents,
    OperatorSpans,
    Rows,
    Spans,
    distinct,
    joined,
)

How = Literal["stream", "whole", "repaired", "one by one", "nsys"]
"""How a trace was read: in pieces; at once; at once after a repair of its text; so, and each event alone; or from what
nsys wrote, which is no JSON."""

WHOLE_BYTES = 128 << 20
"""A trace that cannot be cut into pieces is read at once if it is not larger: some fifteen times this much memory
is the most that a broken file can cost."""

_BEGIN_BYTES = 64
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_AGAIN = "Record the window again, or give another trace."
_NSYS_REPORTS = (".nsys-rep", ".qdrep")
_ACCEPTED_FILES = "Give a *.pt.trace.json or *.pt.trace.json.gz file written by torch.profiler, or an export of nsys."


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of itself; None and empty where it does not."""

    base_time_ns: int | None = None
    """Unix time of the trace clock's zero; without it the clock mostly is Unix time."""
    values: Mapping[str, object]
    """Versions and settings under Kineto's names, e.g. ``schemaVersion``, ``record_shapes``; those that are there."""
    device_properties: tuple[Mapping[str, object], ...] = ()
    """One per GPU of the machine, under Kineto's names."""
    distributed: Mapping[str, object]
    """``rank``, ``world_size``, ``backend`` …"""
    modules: Mapping[str, tuple[str, int | None]]
    """Class of each module, and parameters with those in it, by its name in ranges of ours; else empty."""
    call_lines: CallLines | None = None
    """Lines at which user code called, in windows of ours with stacks."""

    @property
    def rank(self) -> int | None:
        """The rank of the process in its job. None: the trace has none."""
        rank = self.distributed.get("rank")
        return rank if isinstance(rank, int) and not isinstance(rank, bool) else None

    @property
    def world_size(self) -> int | None:
        """Ranks of the job. None: the trace has none."""
        size = self.distributed.get("world_size")
        return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None

    @property
    def gpus(self) -> list[str]:
        """Names of the GPU models of the machine, each once."""
        return sorted({name for one in self.device_properties if isinstance(name := one.get("name"), str)})


class Trace(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All spans of a trace in columns. Times are nanoseconds on the trace's clock."""

    device_work: DeviceSpans
    """Kernels, then copies, then memsets; the next three are parts of it."""
    kernel: DeviceSpans
    memcpy: DeviceSpans
    memset: DeviceSpans
    device_wait: DeviceSpans
    """What streams and the host waited for on the device, where CUPTI recorded it (``cuda_sync``): no work."""
    runtime: LaunchSpans
    """Launches and all other calls of the CUDA or HIP runtime and driver."""
    cpu_op: OperatorSpans
    annotation: OperatorSpans
    """Ranges that the user or torch named."""
    module_range: Spans
    """Calls of modules that our own windows name, :data:`MODULE` before each; Kineto lists them among operators."""
    python_function: FrameSpans
    overhead: Spans
    """What the profiler itself did, such as flushing its buffers."""
    memory: MemoryEvents
    """Allocations and frees, where they were recorded (``profile_memory``)."""
    names: tuple[str, ...]
    """The texts that :attr:`Spans.name` counts; likewise below."""
    threads: tuple[str, ...]
    """``process/thread``."""
    devices: tuple[str, ...]
    stacks: tuple[str, ...]
    """Frames from the innermost to the outermost, separated by ``;``."""
    geometry_texts: tuple[tuple[Any, ...], ...]
    input_texts: tuple[tuple[bytes, bytes, bytes], ...]
    collective_texts: tuple[tuple[Any, ...], ...]
    about: About
    categories: Mapping[str, int]
    """Spans of each category as it is spelled in the file."""
    events: int
    """Entries of the file, of all kinds, readable or not."""
    bytes_json: int
    """Size of the JSON, decompressed."""
    how: How
    call_stacks: int = 0
    """Operators that say something of their call stack, though it may be empty."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    unreadable: int = 0
    """Entries that are no events."""
    timeless: int = 0
    """Spans without a start, which are left out."""
    backwards: int = 0
    """Spans that end before they start, which count as empty."""
    with_frames: bool = True
    """Whether :attr:`python_function` was read; if not, it is empty whatever the file holds."""

    @cached_property
    def geometries(self) -> tuple[Geometry, ...]:
        """What :attr:`DeviceSpans.geometry` counts; likewise below."""
        return geometries_of(self.geometry_texts)

    @cached_property
    def inputs(self) -> tuple[Inputs, ...]:
        """The arguments of operators."""
        return inputs_of(self.input_texts)

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """What torch wrote beside communication."""
        return collectives_of(self.collective_texts)

    @property
    def by_category(self) -> dict[str, Spans]:
        """All events, by what people call their kind."""
        return {
            "kernel": self.kernel,
            "memcpy": self.memcpy,
            "memset": self.memset,
            "device wait": self.device_wait,
            "runtime": self.runtime,
            "operator": self.cpu_op,
            "range": self.annotation,
            "module": self.module_range,
            "python": self.python_function,
            "profiler": self.overhead,
        }

    @cached_property
    def device_rows(self) -> dict[int, Rows]:
        """Rows of :attr:`device_work` of each device, by its number in :attr:`devices`."""
        device = self.device_work.device
        return {int(number): np.flatnonzero(device == number) for number in distinct(device)}

    @cached_property
    def device_busy(self) -> dict[int, Coverage]:
        """When each device was busy: at least one of its streams worked. By the same keys."""
        work = self.device_work
        return {device: Coverage(work.start_ns[rows], work.end_ns[rows]) for device, rows in self.device_rows.items()}

    def properties_of(self, device: int) -> Mapping[str, object] | None:
        """What ``deviceProperties`` says of a device, by its number in :attr:`devices`; None if it says nothing.

        A device without an entry of its own (a trace may number devices otherwise than its properties) has those of
        the others if all of them are alike.
        """
        known = self.about.device_properties
        for properties in known:
            if device < len(self.devices) and str(properties.get("id")) == self.devices[device]:
                return properties
        alike = [{key: value for key, value in one.items() if key != "id"} for one in known]
        return known[0] if known and all(one == alike[0] for one in alike) else None

    def product_of(self, device: int) -> str | None:
        """The name of a device's product, None if it is not known."""
        name = (self.properties_of(device) or {}).get("name")
        return name if isinstance(name, str) and name else None

    @property
    def base_time_ns(self) -> int | None:
        """Unix time of the trace clock's zero; None if the file does not say."""
        return self.about.base_time_ns

    @staticmethod
    def read(
        source: str | os.PathLike[str] | BinaryIO,
        *,
        frames: bool = True,
        processes: int | None = None,
        block_bytes: int = BLOCK_BYTES,
        fork: bool = False,
        meanwhile: Callable[[], None] | None = None,
    ) -> Trace:
        """Read a trace, plain or gzip.

        Args:
            source: The file, or an open binary file at its begin; its name does not matter.
            frames: Also read the calls of Python functions, if they were recorded; analyses of source lines need them.
            processes: 2 reads the halves of a file side by side, 1 does not; by default two where the file is big
                (128 MB of JSON) and a CPU is there for each.
            block_bytes: Bytes of JSON that are in memory at a time.
            fork: The second process may be a copy of this one, as no thread of it may hold a lock and it has no
                GPU. A copy starts at once: two are then the default from 20 MB of JSON on.
            meanwhile: What this process does while the second one already reads, such as imports; not called where
                one process reads all.

        Returns:
            The trace. A trace without steps, operators or GPU is valid.

        Raises:
            TraceError: The file is missing, a folder, empty, cut off, broken, or not a Kineto trace.
        """
        trace = _read_file(_File(source, frames, block_bytes, processes, fork, meanwhile))
        trim_heap()
        return trace


class _File:
    """Something that can be read from its begin more than once, and how it is to be read: see :meth:`Trace.read`."""

    def __init__(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        frames: bool,
        block_bytes: int,
        processes: int | None,
        fork: bool,
        meanwhile: Callable[[], None] | None,
    ) -> None:
        self.meanwhile = meanwhile
        self.frames, self.block_bytes, self.processes = frames, block_bytes, processes
        self.fork = fork and hasattr(os, "fork")
        self._stream: BinaryIO | None = None
        """The open file, if one was given."""
        if isinstance(source, (str, os.PathLike)):
            self.path = Path(source)
            self.name = str(self.path)
        else:
            self._stream = source if source.seekable() else io.BytesIO(source.read())
            self.name = str(getattr(source, "name", "the trace"))
            self.path = Path(self.name)

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def open(self) -> AbstractContextManager[BinaryIO]:
        if self._stream is None:
            return open_json(self.path)
        self._stream.seek(0)
        return open_json_of(self._stream)


def _read_file(file: _File) -> Trace:
    try:
        return _read(file)
    except FileNotFoundError:
        raise TraceError(f"{file.name}: there is no such file. {_ACCEPTED_FILES}") from None
    except IsADirectoryError:
        found = sorted(f.name for f in file.path.iterdir() if ".json" in f.suffixes and "trace" in f.name)
        hint = f"Give one of its traces: {', '.join(found[:5])}." if found else _ACCEPTED_FILES
        raise TraceError(f"{file.name}: this is a folder. {hint}") from None
    except BombError:
        raise TraceError(
            f"{file.name}: unpacks to more than {BOMB_RATIO} times its size, which no trace does. {_ACCEPTED_FILES}"
        ) from None
    except EOFError:
        raise TraceError(
            f"{file.name}: the gzip file is truncated: its writer was stopped or has not finished. {_AGAIN}"
        ) from None
    except GZIP_ERRORS as error:
        raise TraceError(f"{file.name}: the gzip file is broken ({error}). {_AGAIN}") from None
    except OSError as error:
        raise TraceError(f"{file.name}: cannot be read ({error.strerror or error}).") from None
    except OverflowError:
        raise TraceError(f"{file.name}: a time in the trace does not fit 64-bit nanoseconds. {_AGAIN}") from None


def _read(file: _File) -> Trace:
    with file.open() as stream:
        begin = stream.read(_BEGIN_BYTES)
    if not file.is_open and (begin.startswith(SQLITE) or file.path.suffix in _NSYS_REPORTS):
        from lightning_gpuprof.trace.nsight_systems import read_nsys  # and sqlite3: not for other traces

        return _trace(*read_nsys(file.path), file.path.stat().st_size, "nsys")
    _refuse_other_formats(file, begin)
    try:
        return _read_pieces(file)
    except (*_NOT_JSON, TooLargeError):
        pass  # cut in the wrong place, or wrong in itself: the ways below find out
    with file.open() as stream:
        text = stream.read(WHOLE_BYTES + 1)
    if len(text) > WHOLE_BYTES:
        raise TraceError(
            f"{file.name}: cannot be read in pieces, and at once only up to {WHOLE_BYTES >> 20} MiB. {_AGAIN}"
        )
    size = len(text)
    try:
        return _built(file, text, size, "whole")
    except _NOT_JSON as error:
        if "truncated" in str(error) and not isinstance(error, msgspec.ValidationError):
            raise _readable_error(file, text, error) from None  # valid up to its end: there is nothing to repair
    encoding = encoding_of(text)
    text = repaired(text)
    try:
        return replace(_built(file, text, size, "repaired"), encoding=encoding)
    except _NOT_JSON:
        pass
    try:
        document, unreadable = decode_one_by_one(text)
    except _NOT_JSON as error:
        raise _readable_error(file, text, error) from None
    if unreadable and not document.events:
        raise TraceError(f"{file.name}: its list contains no trace events. {_ACCEPTED_FILES}")
    builder = ColumnBuilder(frames=file.frames)
    builder.add(document.events)
    return replace(_trace(builder, document, size, "one by one", unreadable), encoding=encoding)


def _read_pieces(file: _File) -> Trace:
    half: PartialRead | None = None
    if not file.is_open:
        size = size_of_json(file.path)
        least = TWO_BY_FORK_FROM_BYTES if file.fork else TWO_FROM_BYTES
        if (file.processes or min(usable_cpus(), 2) * (size >= least)) > 1:
            half = read_in_two(
                file.path,
                size,
                frames=file.frames,
                block_bytes=file.block_bytes,
                fork=file.fork,
                meanwhile=file.meanwhile,
            )
    if half is None:
        with file.open() as stream:
            pieces = Pieces(stream, block_bytes=file.block_bytes)
            builder, document = add_all(pieces, frames=file.frames)
        half = PartialRead(builder, document, pieces.bytes_read)
    return _trace(half.builder, half.document or Document(events=[]), half.bytes_json, "stream")


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _built(file: _File, text: bytes, size: int, how: How) -> Trace:
    builder = ColumnBuilder(frames=file.frames)
    return _trace(builder, add(builder, EventDecoder(frames=file.frames), text), size, how)


_MEMORY = "[memory]"
"""Moments of other names stand beside those of the allocator."""
_VALUES = {
    "schemaVersion": "schema_version",
    "cuda_runtime_version": "cuda_runtime_version",
    "cuda_driver_version": "cuda_driver_version",
    "cupti_version": "cupti_version",
    "roctracer_version": "roctracer_version",
    "hip_runtime_version": "hip_runtime_version",
    "record_shapes": "record_shapes",
    "with_stack": "with_stack",
    "profile_memory": "profile_memory",
    "displayTimeUnit": "display_time_unit",
    "baseTimeNanoseconds": "base_time",
}


def _about(document: AnyDocument) -> About:
    base_time = document.base_time
    values = {name: getattr(document, field) for name, field in _VALUES.items()}
    properties = document.device_properties if isinstance(document.device_properties, list) else []
    return About(
        base_time_ns=int(base_time) if isinstance(base_time, int) else None,
        values={name: value for name, value in values.items() if value is not None},
        device_properties=tuple(one for one in properties if isinstance(one, dict)),
        distributed=document.distributed if isinstance(document.distributed, dict) else {},
        modules=_modules(document.module_facts),
        call_lines=_call_lines(document.call_lines),
    )


def _modules(found: object) -> dict[str, tuple[str, int | None]]:
    """Empty where they are missing or broken: then modules have names only."""
    try:
        return msgspec.convert(found, dict[str, tuple[str, int | None]])
    except msgspec.ValidationError:
        return {}


def _call_lines(found: object) -> CallLines | None:
    """None without lines, or where they are broken: then lines are those at which functions begin."""
    try:
        return None if found is None else msgspec.convert(found, CallLines)
    except msgspec.ValidationError:
        return None


def _trace(builder: ColumnBuilder, document: AnyDocument, bytes_json: int, how: How, unreadable: int = 0) -> Trace:
    kinds: tuple[Kind, ...] = ("kernel", "memcpy", "memset")
    parts = [builder.table(kind, DeviceSpans) for kind in kinds]
    kernels, copies = len(parts[0]), len(parts[0]) + len(parts[1])
    work = joined(DeviceSpans, parts)
    ops = builder.table("cpu_op", OperatorSpans)
    memory = builder.table("memory", MemoryEvents)
    is_memory = np.array([name == _MEMORY for name in builder.names.texts], np.bool_)
    is_module = np.array([name.startswith(MODULE) for name in builder.names.texts], np.bool_)[ops.name]
    rest: dict[str, Any] = {
        "device_wait": builder.table("device_wait", DeviceSpans),
        "runtime": builder.table("runtime", LaunchSpans),
        "cpu_op": ops.where(~is_module) if is_module.any() else ops,
        "module_range": ops.spans.where(is_module),
        "annotation": builder.table("annotation", OperatorSpans),
        "python_function": builder.table("python_function", FrameSpans),
        "overhead": builder.table("overhead", Spans),
        "memory": memory.where(is_memory[memory.name]),
    }
    return Trace(
        **rest,
        device_work=work,
        kernel=work.between(0, kernels),
        memcpy=work.between(kernels, copies),
        memset=work.between(copies, len(work)),
        names=tuple(FETCH_NAME if name == FETCH_RANGE else name for name in builder.names.texts),
        threads=tuple(builder.threads.texts),
        devices=tuple(builder.devices.texts),
        stacks=tuple(builder.stacks.texts),
        geometry_texts=tuple(builder.geometries),
        input_texts=tuple(builder.inputs),
        collective_texts=tuple(builder.collectives),
        about=_about(document),
        categories=dict(builder.categories),
        events=builder.events + unreadable,
        bytes_json=bytes_json,
        how=how,
        call_stacks=builder.call_stacks,
        unreadable=unreadable,
        timeless=builder.timeless,
        backwards=builder.backwards,
        with_frames=builder.frames,
    )


def _refuse_other_formats(file: _File, begin: bytes) -> None:
    """Tell by the first bytes, so that a large file of another kind is not read to its end."""
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text and len(begin) < _BEGIN_BYTES:
        raise TraceError(f"{file.name}: the file is empty: its writer was stopped before it wrote. {_AGAIN}")
    if text and text[:1] not in (b"{", b"["):
        raise TraceError(f"{file.name} is not a trace: it is not JSON. {_ACCEPTED_FILES}")


def _readable_error(file: _File, text: bytes, error: Exception) -> TraceError:
    if "truncated" in str(error):
        return TraceError(
            f"{file.name}: the JSON is truncated after {len(text)} bytes: its writer was stopped. {_AGAIN}"
        )
    if isinstance(error, msgspec.ValidationError):
        return TraceError(
            f"{file.name}: is JSON without a 'traceEvents' list, so it is not a Kineto trace. {_ACCEPTED_FILES}"
        )
    return TraceError(f"{file.name}: cannot be read as JSON ({error}). {_AGAIN}")


def trim_heap() -> None:
    """Let the C library return what is free inside its heap, which it otherwise keeps for later.

    While a file is read, millions of small objects come and go between the columns that stay; of their room, half as
    much as the whole trace needs was still held afterwards. Only glibc has a call for that; elsewhere nothing is done.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
