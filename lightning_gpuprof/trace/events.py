"""From JSON text to typed events: only the fields that the columns need, everything else is skipped unread."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Generic, TypeVar

import msgspec

Loose = int | float | str | None
"""Kineto writes ids as numbers; other writers and older versions write strings."""

INEXACT_FROM_US = 2.0**43
"""From here on a float64 in microseconds is more than half a nanosecond off the number in the text."""


class Arguments(msgspec.Struct, gc=False):
    """The ``args`` of an event."""

    correlation: Loose = None
    external_id: Loose = msgspec.field(default=None, name="External id")
    external_id_2020: Loose = msgspec.field(default=None, name="external id")
    stream: Loose = None
    device: Loose = None
    device_id: Loose = msgspec.field(default=None, name="Device Id")
    size_bytes: Loose = msgspec.field(default=None, name="bytes")


class _Common(msgspec.Struct, gc=False):
    ph: str = ""
    cat: Loose = None
    name: Loose = None
    dur: Loose = None
    pid: Loose = None
    tid: Loose = None
    args: Arguments | None = None


class Event(_Common, gc=False):
    """An event whose ``ts`` (microseconds) came through float64: exact below :data:`INEXACT_FROM_US`."""

    ts: int | float | None = None


class ExactEvent(_Common, gc=False):
    """An event whose ``ts`` (microseconds) keeps every digit of the text; slower to read."""

    ts: Decimal | None = None


E = TypeVar("E")


class Document(msgspec.Struct, Generic[E], gc=False):
    """The JSON document around the events."""

    events: list[E] = msgspec.field(name="traceEvents")
    base_time: Loose = msgspec.field(default=None, name="baseTimeNanoseconds")


AnyDocument = Document[Event] | Document[ExactEvent]

_LIST = msgspec.json.Decoder(list[Event])
_DOCUMENT = msgspec.json.Decoder(Document[Event])
_EXACT_LIST = msgspec.json.Decoder(list[ExactEvent])
_EXACT_DOCUMENT = msgspec.json.Decoder(Document[ExactEvent])
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_DOCUMENT = msgspec.json.Decoder(Document[msgspec.Raw])
_EXACT_EVENT = msgspec.json.Decoder(ExactEvent)


def decode(text: bytes | bytearray, *, exact: bool = False) -> AnyDocument:
    """Decode a list of events or a document that holds one.

    Args:
        text: JSON. A bare list is a valid document: the oldest traces are such.
        exact: Read times from the text at once. Otherwise this is done only if a time would lose precision.

    Returns:
        The document, with every time exact to the nanosecond.

    Raises:
        msgspec.DecodeError: The text is not JSON or an event has another shape.
        UnicodeDecodeError: A name is not UTF-8.
    """
    bare = _is_list(text)
    if not exact:
        try:
            document = Document(events=_LIST.decode(text)) if bare else _DOCUMENT.decode(text)
        except msgspec.ValidationError:
            pass  # a time may be a string: the exact reading takes those, too
        else:
            if not _loses_precision(document.events):
                return document
    return Document(events=_EXACT_LIST.decode(text)) if bare else _EXACT_DOCUMENT.decode(text)


def decode_one_by_one(text: bytes) -> tuple[Document[ExactEvent], int]:
    """Decode each event alone, so that one of an unknown shape costs only itself.

    Returns:
        The document with the readable events, and the number of unreadable ones.

    Raises:
        msgspec.DecodeError: The text is not JSON or holds no list of events.
    """
    raw = Document(events=_RAW_LIST.decode(text)) if _is_list(text) else _RAW_DOCUMENT.decode(text)
    events: list[ExactEvent] = []
    for one in raw.events:
        try:
            events.append(_EXACT_EVENT.decode(one))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return Document(events=events, base_time=raw.base_time), len(raw.events) - len(events)


def _is_list(text: bytes | bytearray) -> bool:
    return text[:64].lstrip()[:1] == b"["


def _loses_precision(events: Sequence[Event]) -> bool:
    return any(type(event.ts) is float and event.ts >= INEXACT_FROM_US for event in events)
