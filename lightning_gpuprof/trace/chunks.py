"""Cuts a stream of JSON text into pieces of whole events, so that a trace is never in memory at once."""

import re
from collections.abc import Iterator
from typing import BinaryIO

BLOCK_BYTES = 1 << 19
"""Bytes per read: large enough that cutting costs nothing, small enough that a piece's events stay in a CPU's cache."""

PIECE_BYTES_MAX = 512 << 20
"""What comes before the first event, and any event, may be so large; more is no trace that anyone wrote."""

_LOOK_BACK = 4096
_CLOSE = ord("]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_EVENT = re.compile(rb'(?:"traceEvents"\s*:\s*|\A(?:\xef\xbb\xbf)?\s*)\[(\s*)(?=\{\s*("[^"]*"))')


class TooLargeError(Exception):
    """There is no cut for so long that the text would fill the memory."""


class Pieces:
    """Cuts a trace between events.

    Every piece but the last is a JSON list of events. The last is what remains of the document around its last
    events, so that the keys before and after ``traceEvents`` are read and checked as well. A cut is made where the
    text between two events stands; should it stand elsewhere, too, a piece is not valid JSON and the reader takes
    the whole document instead, so a wrong cut is never silent.

    Args:
        stream: Decompressed JSON.
        block_bytes: Bytes per read.
        begin: Leave out the events before the first cut at or behind this byte. If there is none, there are no pieces.
        stop: End at the first cut at or behind this byte, without what is behind it. If there is none, nothing is left
            out. Two that share such a byte share out the events.
    """

    def __init__(
        self, stream: BinaryIO, *, block_bytes: int = BLOCK_BYTES, begin: int = 0, stop: int | None = None
    ) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._begin = begin
        self._stop = stop
        self.bytes_read = 0
        """Bytes of JSON read or left out so far."""
        self.ended_early = False
        """Whether the end was left out, and so there is no last piece with the document around the events."""

    def __iter__(self) -> Iterator[bytearray]:
        text = bytearray(self._read())
        looked_at = 0
        while (first := _FIRST_EVENT.search(text, looked_at)) is None:
            looked_at = max(0, len(text) - _LOOK_BACK)
            block = self._read()
            if not block:
                if not self._begin:
                    yield text.removeprefix(_BYTE_ORDER_MARK)
                return
            text += block
            if len(text) > PIECE_BYTES_MAX:
                raise TooLargeError
        opens = first.start(1) - 1
        separators = _separators(bytes(first[1]), bytes(first[2]))
        del first  # a match holds the buffer, which could then not be resized
        head, text = text[:opens], text[opens:]
        if self._begin:
            found = self._behind(text, separators)
            if found is None:
                return
            text = found
        searched = 0
        while True:
            if self._stop is not None and self.bytes_read >= self._stop:
                text, self.ended_early = self._up_to_stop(text, separators)
                if self.ended_early:
                    yield text
                    return
                break
            block = self._read()
            if not block:
                break
            cut = _last_cut(text, separators, searched)
            if cut < 0:
                searched = len(text)
                if searched > PIECE_BYTES_MAX:
                    raise TooLargeError
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

    def _behind(self, text: bytearray, separators: tuple[bytes, ...]) -> bytearray | None:
        """The list of events from the first cut at or behind ``begin`` on, as far as it is read."""
        longest = max(map(len, separators))
        if self.bytes_read + longest < self._begin:
            text = self._skip_to(self._begin - longest, text, longest)
        while True:
            # the comma counts, not the separator's first character
            cut = _first_cut(text, separators, self._begin - (self.bytes_read - len(text)))
            if cut >= 0:
                return bytearray(b"[") + text[cut + 1 :]
            block = self._read()
            if not block:
                return None
            text += block

    def _skip_to(self, position: int, text: bytearray, keep: int) -> bytearray:
        """Leave out the text up to a byte; a few bytes of what was read before stay at hand."""
        try:
            self._stream.seek(position)
        except (AttributeError, OSError):
            while (left := position - self.bytes_read) > 0 and (block := self._read(min(self._block_bytes, left))):
                text = text[-keep:] + block
            return text
        self.bytes_read = position
        return bytearray(self._read())

    def _up_to_stop(self, text: bytearray, separators: tuple[bytes, ...]) -> tuple[bytearray, bool]:
        """All events up to the first cut at or behind ``stop``, or all there are."""
        assert self._stop is not None
        while True:
            cut = _first_cut(text, separators, self._stop - (self.bytes_read - len(text)))
            if cut >= 0:
                text[cut] = _CLOSE
                del text[cut + 1 :]
                return text, True
            block = self._read()
            if not block:
                return text, False
            text += block

    def _read(self, size: int = 0) -> bytes:
        block = self._stream.read(size or self._block_bytes)
        self.bytes_read += len(block)
        return block


def _separators(space: bytes, first_key: bytes) -> tuple[bytes, ...]:
    """What stands between two events.

    Kineto and ``json.dump(indent=...)`` put each brace on a line of its own, others each event; lines end as on Unix
    or as on Windows.
    A raw newline or an unescaped quote cannot be inside a JSON string, so none of these can be part of a name.
    """
    begin = b"{" + first_key
    compact = (b"}," + begin, b"}, " + begin)
    newline = space.rfind(b"\n")
    if newline < 0:
        return (*compact, b"},\n" + begin)
    indent = space[newline:]
    line_end = b"\r" * (space[newline - 1 : newline] == b"\r")
    return (indent + b"}," + line_end + indent + b"{", *compact, b"}," + line_end + indent + begin)


def _last_cut(text: bytearray, separators: tuple[bytes, ...], searched: int) -> int:
    """Position of the comma behind the last complete event, or -1."""
    for separator in separators:
        found = text.rfind(separator, max(0, searched - len(separator)))
        if found >= 0:
            return found + separator.index(b",")
    return -1


def _first_cut(text: bytearray, separators: tuple[bytes, ...], position: int) -> int:
    """Index of the first comma at or behind a position that stands between two events, or -1."""
    cuts = []
    for separator in separators:
        comma = separator.index(b",")
        found = text.find(separator, max(0, position - comma))
        if found >= 0:
            cuts.append(found + comma)
    return min(cuts, default=-1)
