"""Adds events at the end of a trace's list, in its text."""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.chunks import PIECE_BYTES_MAX

BLOCK_BYTES = 1 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}:,]', re.DOTALL)
_OPEN, _CLOSE = b"[{", b"]}"
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))

_STEP = np.zeros(256, np.int8)
_STEP[list(_OPEN)] = 1
_STEP[list(_CLOSE)] = -1


def spliced(stream: BinaryIO, events: Iterable[bytes], *, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Add events to a trace, without decoding it.

    Every other byte stays as it is, but for a byte order mark, which JSON does not allow.

    Args:
        stream: JSON, a list of events or a document with a list ``traceEvents``, at its begin.
        events: What stands between the braces of each new event.
        block_bytes: Bytes per read.

    Returns:
        The text, block by block.

    Raises:
        TraceError: The text has no such list, or ends before the list does.
    """
    text, opens = _head(stream, block_bytes)
    yield text[:opens]
    text = text[opens:]
    body = _Body()
    begun = False
    indent = b""
    while (end := body.end_in(text)) is None:
        following = stream.read(block_bytes)
        if not following:
            raise TraceError("the trace is truncated inside its list of events. Record the window again.")
        if not begun and text.strip(_SPACE):
            begun, indent = True, _indent(text)
        if not begun:
            text += following  # nothing but space so far: whether the list is empty is not known yet
            body = _Body()
            continue
        whole = len(text) - _trailing_escape(text)
        yield text[:whole]
        text = text[whole:] + following
    content = text[:end].rstrip(_SPACE)
    if not begun:
        begun, indent = bool(content), _indent(text)
    block = bytearray(content)
    for event in events:
        block += b"%s%s{%s%s}" % (b"," if begun else b"", indent, event, indent)
        begun = True
        if len(block) >= block_bytes:
            yield bytes(block)
            block.clear()
    yield bytes(block)
    yield text[len(content) :]
    while rest := stream.read(block_bytes):
        yield rest


def _head(stream: BinaryIO, block_bytes: int) -> tuple[bytes, int]:
    """The text as far as it was read, and where in it the list of events begins, behind its bracket."""
    text = stream.read(max(block_bytes, len(_BYTE_ORDER_MARK))).removeprefix(_BYTE_ORDER_MARK)
    depth, position, before, key = 0, 0, b"", b""
    while True:
        for match in _TOKEN.finditer(text, position):
            token = match[0]
            if token.startswith(b'"') and match.end() == len(text):
                break  # it may go on in the next block
            position = match.end()
            if token == b"[" and (not before or (depth == 1 and key == b'"traceEvents"')):
                return text, position
            if token in (b"[", b"{"):
                depth += 1
            elif token in (b"]", b"}"):
                depth -= 1
            elif token == b":" and depth == 1:
                key = before
            elif token == b",":
                key = b"" if depth == 1 else key
            before = token
        block = stream.read(block_bytes)
        if not block or len(text) > PIECE_BYTES_MAX:
            raise TraceError("there is no 'traceEvents' list, so this is not a Kineto trace.")
        text += block


class _Body:
    """Follows the brackets of the list of events, block by block."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False

    def end_in(self, text: bytes) -> int | None:
        """Where the list ends in a text, at its closing bracket; None if it goes on."""
        whole = text[: len(text) - _trailing_escape(text)]
        structure, in_string = _structure(whole, self._in_string)
        if structure:
            depths = np.cumsum(_STEP[np.frombuffer(structure, np.uint8)], dtype=np.int64) + self._depth
            if depths.min() < 0:
                return self._position(whole)
            self._depth = int(depths[-1])
        self._in_string = in_string
        return None

    def _position(self, text: bytes) -> int:
        depth, begin = self._depth, 0
        if self._in_string and (rest := _STRING_REST.match(text)) is not None:
            begin = rest.end()
        for match in _TOKEN.finditer(text, begin):
            if match[0] in (b"[", b"{"):
                depth += 1
            elif match[0] in (b"]", b"}"):
                depth -= 1
                if depth < 0:
                    return match.start()
        raise AssertionError("the brackets were counted differently")


def _structure(text: bytes, in_string: bool) -> tuple[bytes, bool]:
    """The brackets outside of strings, and whether the text ends inside of one.

    All by whole-text operations of ``bytes``: a trace has a bracket or quote in every sixth byte.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # strings without brackets, which are nearly all, are two quotes now; leaving both out changes no other's side
    parts = text.translate(None, _NO_STRUCTURE).replace(b'""', b"").split(b'"')
    return b"".join(parts[in_string::2]), in_string ^ (len(parts) % 2 == 0)


def _trailing_escape(text: bytes) -> int:
    """1 if the last backslash escapes what comes in the next block, else 0."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2


def _indent(text: bytes) -> bytes:
    """What is before the brace of the first event: the new ones are laid out alike, as readers cut where braces stand.

    Empty if they are not on lines of their own.
    """
    space = text[: len(text) - len(text.lstrip(_SPACE))]
    return space[space.rfind(b"\n") :] if b"\n" in space else b""
