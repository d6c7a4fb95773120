"""Mends what some writers of traces get wrong in their JSON, and only that."""

import re
from typing import Literal

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|-?[A-Za-z][A-Za-z/]*', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_WORDS = frozenset({"true", "false", "null"})


def encoding_of(text: bytes) -> Literal["utf-8", "latin-1"]:
    """How the characters of a document are written; what is not UTF-8 is taken as latin-1, which never fails."""
    try:
        text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def repaired(text: bytes) -> bytes:
    r"""Make a trace, given as a whole document, readable that breaks the rules of JSON.

    - Bare words such as ``N/A``, ``nan`` and ``-inf`` become ``null``.
    - Raw control characters inside strings are escaped, and so are backslashes that escape nothing (``C:\Users``).
    - Bytes that are not UTF-8 are taken as latin-1, which never fails.

    Returns:
        UTF-8. A document that is cut off stays so.
    """
    encoding = encoding_of(text)
    characters = text.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    return _TOKEN.sub(_repaired_token, characters).encode("utf-8", "surrogatepass")


def _repaired_token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] == '"':
        if "\\" in token:
            token = _BAD_ESCAPE.sub(lambda escape: escape[0] if escape[1] else "\\\\", token)
        return _CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", token)
    return token if token in _WORDS or token.lstrip("-")[0].isdigit() else "null"
