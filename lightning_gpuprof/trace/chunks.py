"""From a stream of JSON text to pieces that each hold whole events, so that a trace is never in memory at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
"""Bytes per read: large enough that cutting costs nothing, small enough that a piece's events stay below 10 MB."""

_CLOSE = ord("]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_EVENT = re.compile(rb'(?:"traceEvents"\s*:\s*|\A(?:\xef\xbb\xbf)?\s*)\[(\s*)(?=\{\s*("[^"]*"))')


class Pieces:
    """Cuts a trace between events.

    Every piece but the last is a JSON list of events. The last is what remains of the document around its last
    events, so that the keys before and after ``traceEvents`` are read and checked as well. A cut is made where the
    text between two events stands; should it stand elsewhere, too, a piece is not valid JSON and the reader takes
    the whole document instead, so a wrong cut is never silent.

    Args:
        stream: Decompressed JSON.
        block_bytes: Bytes per read.
    """

    def __init__(self, stream: BinaryIO, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self.bytes_read = 0
        """Bytes of JSON read so far."""

    def __iter__(self) -> Iterator[bytearray]:
        text = bytearray(self._read())
        while (first := _FIRST_EVENT.search(text)) is None:
            block = self._read()
            if not block:
                yield text.removeprefix(_BYTE_ORDER_MARK)
                return
            text += block
        opens = first.start(1) - 1
        separators = _separators(bytes(first[1]), bytes(first[2]))
        del first  # a match holds the buffer, which could then not be resized
        head, text = text[:opens], text[opens:]
        searched = 0
        while block := self._read():
            cut = _last_cut(text, separators, searched)
            if cut < 0:
                searched = len(text)
            else:
                # in place: the comma closes this list, and what is behind it begins the next one
                rest = bytearray(b"[")
                rest += text[cut + 1 :]
                text[cut] = _CLOSE
                del text[cut + 1 :]
                yield text
                text = rest
                searched = 0
            text += block
        yield (head + text).removeprefix(_BYTE_ORDER_MARK)

    def _read(self) -> bytes:
        block = self._stream.read(self._block_bytes)
        self.bytes_read += len(block)
        return block


def _separators(space: bytes, first_key: bytes) -> tuple[bytes, ...]:
    """What stands between two events: Kineto and ``json.dump(indent=...)`` put each brace on a line of its own.

    A raw newline or an unescaped quote cannot be inside a JSON string, so none of these can be part of a name.
    """
    compact = (b"}," + first_key.join((b"{", b"")), b"}, " + first_key.join((b"{", b"")))
    newline = space.rfind(b"\n")
    if newline < 0:
        return compact
    indent = space[newline:]
    return (indent + b"}," + indent + b"{", *compact)


def _last_cut(text: bytearray, separators: tuple[bytes, ...], searched: int) -> int:
    """Position of the comma behind the last complete event, or -1."""
    for separator in separators:
        found = text.rfind(separator, max(0, searched - len(separator)))
        if found >= 0:
            return found + separator.index(b",")
    return -1
