"""The words of a command line as a report may show them: without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

MAX_TEXT = 400
"""Characters of them; the rest is cut."""
_HIDDEN = "***"
_SECRET_NAME = re.compile(r"token|secret|passw|credential|api.?key|auth", re.IGNORECASE)
_SECRET_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def shown_arguments(words: Sequence[str]) -> str:
    """Words of a shell, after the program's file.

    Args:
        words: Such as ``["--lr", "1", "--api_key=x"]``.

    Returns:
        Such as ``--lr 1 --api_key=***``: values of options named like a secret are left out.
    """
    found = []
    is_secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_secret and not word.startswith("-"):
            word = _HIDDEN
        elif equals and _SECRET_NAME.search(name):
            word = f"{name}={_HIDDEN}"
        is_secret = not equals and word.startswith("-") and _SECRET_NAME.search(word) is not None
        found.append(word if word.endswith(_HIDDEN) else shlex.quote(_SECRET_IN_ADDRESS.sub(_HIDDEN, word)))
    text = " ".join(found)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
