"""Shows text that is data: every character visible, of bounded length."""

import unicodedata

NAME_LIMIT = 120
"""Characters of a name that people are shown; a longer one loses its middle."""

_ENDS = (". ", "; ", ", or ", ": ")
TEXT_LIMIT = 600
"""The same for sentences: summaries, advice, caveats."""

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that draw nothing or change how the text around them is drawn: control characters (terminal
escapes among them), direction marks, surrogates, line separators."""


def visible(text: str) -> str:
    r"""Write control, direction and other invisible characters as ``\xNN`` or ``\uNNNN``.

    A name can then neither colour a terminal, break a table's line nor turn the text after it around.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shorten(text: str, limit: int, ellipsis: str = "...") -> str:
    """Cut the middle out of a long text; its two ends tell names apart best.

    Args:
        text: Any text.
        limit: Most characters that come back, at least 8.
        ellipsis: Stands for the middle.

    Returns:
        The text itself if it is not longer than ``limit``.
    """
    if len(text) <= limit:
        return text
    kept = limit - len(ellipsis)
    return f"{text[: kept - kept // 2]}{ellipsis}{text[len(text) - kept // 2 :]}"


def cut(text: str, limit: int) -> str:
    """A text that ends between sentences, else between clauses, else between words.

    Args:
        text: Sentences.
        limit: Most characters that come back.

    Returns:
        The text itself if it is not longer than ``limit``; cut between words it ends with ``...``, else with a full
        stop.
    """
    if len(text) <= limit:
        return text
    for mark in _ENDS:
        end = text.rfind(mark, limit // 3, limit - 1)
        if end > 0 and text.count("(", 0, end) == text.count(")", 0, end) and text.count("`", 0, end) % 2 == 0:
            return f"{text[:end]}."
    return f"{text[: limit - 4].rsplit(' ', 1)[0].rstrip(',;:')} ..."


def name(text: str, limit: int = NAME_LIMIT) -> str:
    """A name as people are shown it.

    Args:
        text: Untrusted text.
        limit: Characters at the most.

    Returns:
        Hidden characters are escapes, as of :func:`visible`; a long name loses its middle. Not escaped for HTML.
    """
    return shorten(visible(shorten(text, 4 * limit)), limit)


def device(name_in_trace: str, limit: int = 40) -> str:
    """A device as people are shown it: a bare number, as Kineto writes it, becomes ``GPU 0``.

    Args:
        name_in_trace: Untrusted text.
        limit: Characters of the name at the most.

    Returns:
        As of :func:`name`; ``device`` for an empty name.
    """
    shown = name(name_in_trace, limit)
    return f"GPU {shown}" if shown.isdecimal() else shown or "device"


def sentence(text: str) -> str:
    """A summary, an advice or a caveat as people are shown it."""
    return shorten(visible(shorten(text, 4 * TEXT_LIMIT)), TEXT_LIMIT)
