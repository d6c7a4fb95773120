"""Parses JSON text into typed events: only the fields that the columns need, the rest is skipped unread."""

from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, field

from lightning_gpuprof.model.trace.attribution import MODULE_FACTS
from lightning_gpuprof.model.trace.call_lines import CALL_LINES

Loose = int | float | str | None
"""Kineto writes ids as numbers; other writers and older versions write strings."""

INEXACT_FROM_US = 2.0**43
"""From here on a float64 in microseconds is more than half a nanosecond off the number in the text."""

ABSENT = -1
"""An id or a size that is not there."""

NOTHING = Raw(b"")
"""The text of an argument that is not there."""

SQLITE = b"SQLite format 3\0"
"""The first bytes of what ``nsys export`` writes."""


class LaunchArguments(msgspec.Struct, gc=False):
    """``args`` of runtime and driver calls."""

    external_id: Loose = field(default=ABSENT, name="External id")
    external_id_2020: Loose = field(default=ABSENT, name="external id")
    correlation: Loose = ABSENT


class DeviceArguments(LaunchArguments, gc=False):
    """``args`` of device work. What is kept as text is parsed once for each distinct text."""

    device: Loose = None
    device_id: Loose = field(default=None, name="Device Id")
    stream: Loose = ABSENT
    size_bytes: Loose = field(default=ABSENT, name="bytes")
    registers: Loose = field(default=None, name="registers per thread")
    shared_memory: Loose = field(default=None, name="shared memory")
    blocks_per_sm: Loose = field(default=None, name="blocks per SM")
    warps_per_sm: Loose = field(default=None, name="warps per SM")
    grid: Raw = NOTHING
    block: Raw = NOTHING
    occupancy: Loose = field(default=None, name="est. achieved occupancy %")
    collective: Loose = field(default=None, name="Collective name")
    elements_in: Loose = field(default=None, name="In msg nelems")
    elements_out: Loose = field(default=None, name="Out msg nelems")
    group_size: Loose = field(default=None, name="Group size")
    dtype: Loose = None
    group: Loose = field(default=None, name="Process Group Name")


class OperatorArguments(msgspec.Struct, gc=False):
    """``args`` of operators and named ranges."""

    external_id: Loose = field(default=ABSENT, name="External id")
    external_id_2020: Loose = field(default=ABSENT, name="external id")
    sequence: Loose = field(default=ABSENT, name="Sequence number")
    forward_thread: Loose = field(default=ABSENT, name="Fwd thread id")
    values: Raw = field(default=NOTHING, name="Concrete Inputs")
    types: Raw = field(default=NOTHING, name="Input type")
    shapes: Raw = field(default=NOTHING, name="Input Dims")
    shapes_2021: Raw = field(default=NOTHING, name="Input dims")
    stack: Loose = field(default=None, name="Call stack")
    collective: Loose = field(default=None, name="Collective name")
    elements_in: Loose = field(default=None, name="In msg nelems")
    elements_out: Loose = field(default=None, name="Out msg nelems")
    group_size: Loose = field(default=None, name="Group size")
    dtype: Loose = None
    group: Loose = field(default=None, name="Process Group Name")


class MemoryArguments(msgspec.Struct, gc=False):
    """``args`` of the moments at which memory was allocated or freed."""

    address: Loose = field(default=ABSENT, name="Addr")
    changed_bytes: Loose = field(default=0, name="Bytes")
    held_bytes: Loose = field(default=ABSENT, name="Total Allocated")
    device_type: Loose = field(default=0, name="Device Type")
    device_id: Loose = field(default=None, name="Device Id")


class FrameArguments(msgspec.Struct, gc=False):
    """``args`` of calls of Python functions."""

    python_id: Loose = field(default=ABSENT, name="Python id")
    parent_id: Loose = field(default=ABSENT, name="Python parent id")


class AnyArguments(DeviceArguments, gc=False):
    """``args`` of an event of any category."""

    address: Loose = field(default=ABSENT, name="Addr")
    changed_bytes: Loose = field(default=0, name="Bytes")
    held_bytes: Loose = field(default=ABSENT, name="Total Allocated")
    device_type: Loose = field(default=0, name="Device Type")

    sequence: Loose = field(default=ABSENT, name="Sequence number")
    forward_thread: Loose = field(default=ABSENT, name="Fwd thread id")
    values: Raw = field(default=NOTHING, name="Concrete Inputs")
    types: Raw = field(default=NOTHING, name="Input type")
    shapes: Raw = field(default=NOTHING, name="Input Dims")
    shapes_2021: Raw = field(default=NOTHING, name="Input dims")
    stack: Loose = field(default=None, name="Call stack")
    python_id: Loose = field(default=ABSENT, name="Python id")
    parent_id: Loose = field(default=ABSENT, name="Python parent id")


class _Common(msgspec.Struct, gc=False):
    ph: str = ""
    cat: Loose = None
    name: Loose = None
    pid: Loose = None
    tid: Loose = None
    dur: Loose = None
    args: AnyArguments | None = None


class Event(_Common, gc=False):
    """An event whose ``ts`` (microseconds) came through float64: exact below :data:`INEXACT_FROM_US`."""

    ts: int | float | None = None


class ExactEvent(_Common, gc=False):
    """An event whose ``ts`` (microseconds) keeps every digit of the text; slower to read."""

    ts: Decimal | None = None


# What follows is the same once more for the categories that Kineto writes since 2021. Their first key but one is the
# category, and each is read into a class of its own: what it has no field for is skipped, which is what makes it fast.


class Known(msgspec.Struct, gc=False, tag_field="cat"):
    """A span of a category that is known by its spelling; events of other kinds are not of it: see ``ph``."""

    cat: ClassVar[str] = ""
    ph: Literal["X"]


class KnownSpan(Known, gc=False):
    """One that has a place in a table; ``ts`` in microseconds as in :class:`Event`."""

    name: Loose = None
    pid: Loose = None
    tid: Loose = None
    ts: int | float | None = None
    dur: Loose = None


class KnownMoment(msgspec.Struct, gc=False, tag_field="cat"):
    """An event without a duration, whose category is known by its spelling."""

    dur: ClassVar[int] = 0
    cat: ClassVar[str] = ""
    ph: str = ""
    name: Loose = None
    pid: Loose = None
    tid: Loose = None
    ts: int | float | None = None


class NoSpan(msgspec.Struct, gc=False, tag_field="cat"):
    """An event of a category that has no spans: nothing of it is kept."""


_ARGUMENTS: dict[str, type[msgspec.Struct]] = {
    "kernel": DeviceArguments,
    "gpu_memcpy": DeviceArguments,
    "gpu_memset": DeviceArguments,
    "cuda_sync": DeviceArguments,
    "cuda_runtime": LaunchArguments,
    "cuda_driver": LaunchArguments,
    "cpu_op": OperatorArguments,
    "user_annotation": OperatorArguments,
    "overhead": LaunchArguments,
    "python_function": FrameArguments,
}


def _of_category(category: str, base: type[msgspec.Struct], arguments: type[msgspec.Struct] | None = None) -> Any:
    """The class of the events of a category."""
    fields = [] if arguments is None else [("args", arguments | None, None)]
    namespace = {"cat": category} if issubclass(base, (Known, KnownMoment)) else None
    return msgspec.defstruct(category, fields, bases=(base,), namespace=namespace, gc=False, tag=category)


_SPANS = [_of_category(category, KnownSpan, arguments) for category, arguments in _ARGUMENTS.items()]
_OTHERS = [
    *(_of_category(category, NoSpan) for category in ("ac2g", "fwdbwd")),
    _of_category("cpu_instant_event", KnownMoment, MemoryArguments),
    _of_category("gpu_user_annotation", Known),
]
_WITH_FRAMES: Any = reduce(or_, _SPANS + _OTHERS)
_WITHOUT_FRAMES: Any = reduce(or_, [*_SPANS[:-1], *_OTHERS, _of_category("python_function", Known)])

AnyEvent = Event | ExactEvent | Known | KnownMoment | NoSpan
E = TypeVar("E")


class Document(msgspec.Struct, Generic[E], gc=False):
    """The JSON document around the events; what other writers leave out or spell differently stays as it is."""

    events: list[E] = field(name="traceEvents")
    base_time: Any = field(default=None, name="baseTimeNanoseconds")
    schema_version: Any = field(default=None, name="schemaVersion")
    device_properties: Any = field(default=None, name="deviceProperties")
    distributed: Any = field(default=None, name="distributedInfo")
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    cupti_version: Any = None
    roctracer_version: Any = None
    hip_runtime_version: Any = None
    record_shapes: Any = None
    with_stack: Any = None
    profile_memory: Any = None
    display_time_unit: Any = field(default=None, name="displayTimeUnit")
    module_facts: Any = field(default=None, name=MODULE_FACTS)
    call_lines: Any = field(default=None, name=CALL_LINES)


AnyDocument = Document[Any]

_FAST = msgspec.json.Decoder(list[_WITH_FRAMES])
_FAST_WITHOUT_FRAMES = msgspec.json.Decoder(list[_WITHOUT_FRAMES])
_LIST = msgspec.json.Decoder(list[Event])
_DOCUMENT = msgspec.json.Decoder(Document[Event])
_EXACT_LIST = msgspec.json.Decoder(list[ExactEvent])
_EXACT_DOCUMENT = msgspec.json.Decoder(Document[ExactEvent])
_RAW_LIST = msgspec.json.Decoder(list[Raw])
_RAW_DOCUMENT = msgspec.json.Decoder(Document[Raw])
_EXACT_EVENT = msgspec.json.Decoder(ExactEvent)

_GIVE_UP_AFTER = 2
"""Pieces that the fast way did not take before it is no longer tried; the first or last of a file may be one."""


class EventDecoder:
    """Decodes the pieces of one file, and remembers which of the ways took the last one.

    Args:
        frames: Whether calls of Python functions are wanted; without them they are counted only.
    """

    def __init__(self, *, frames: bool = True) -> None:
        self._fast = _FAST if frames else _FAST_WITHOUT_FRAMES
        self._slow_pieces = 0
        self.exact = False
        """Read times from the text at once: set where float64 has not enough digits for them."""

    def decode(self, text: bytes | bytearray) -> AnyDocument:
        """Decode a document that holds a list of events, or a bare list: the oldest traces are such.

        Raises:
            msgspec.DecodeError: The text is not JSON or an event has another shape.
            UnicodeDecodeError: A name is not UTF-8.
        """
        bare = _is_list(text)
        if not self.exact:
            if bare and self._slow_pieces < _GIVE_UP_AFTER:
                try:
                    return Document(events=self._fast.decode(text))
                except msgspec.ValidationError:
                    self._slow_pieces += 1  # a category that is not known, an event without one
            try:
                return Document(events=_LIST.decode(text)) if bare else _DOCUMENT.decode(text)
            except msgspec.ValidationError:
                pass  # a time may be a string: the exact reading takes those, too
        return Document(events=_EXACT_LIST.decode(text)) if bare else _EXACT_DOCUMENT.decode(text)


def decode_one_by_one(text: bytes) -> tuple[AnyDocument, int]:
    """Decode each event alone, so that one of an unknown shape costs only itself.

    Returns:
        The document with the readable events, and the number of unreadable ones.

    Raises:
        msgspec.DecodeError: The text is not JSON or has no list of events.
    """
    document: AnyDocument = Document(events=_RAW_LIST.decode(text)) if _is_list(text) else _RAW_DOCUMENT.decode(text)
    events: list[ExactEvent] = []
    for one in document.events:
        try:
            events.append(_EXACT_EVENT.decode(one))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return msgspec.structs.replace(document, events=events), len(document.events) - len(events)


def _is_list(text: bytes | bytearray) -> bool:
    return text[:64].lstrip()[:1] == b"["
