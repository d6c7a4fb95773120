"""The user's code as a report may hold it: the text in it that may be secret is hidden, and so are comments."""

import re

from lightning_gpuprof.errors import HIDDEN
from lightning_gpuprof.model.command_line import SECRET_NAME

_STRING_OR_COMMENT = re.compile(
    r"""(?P<quote>"{3}|'{3}|["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P<end>(?P=quote)?)|\s*#.*""", re.DOTALL
)
"""A string may end with the line."""
_SECRET_CALL = re.compile(r"login|connect|bearer|dsn|session", re.IGNORECASE)
"""Calls that take a secret without naming it."""
_NO_SECRET = re.compile(r"tokeniz\w*|tokens\b", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"\b\d{4,}\b")
_HARMLESS = re.compile(
    r"(?!.*[A-Za-z]{21})(?:[A-Za-z_ ./:,%()\[\]<>|-]|\{[\w.:,%<> ]*\}){0,40}"
    r"|(?:cpu|cuda|mps|xpu):\d{1,3}|utf-?8|(?:fp|bf|b?float|u?int)?\d{1,2}(?:-mixed|-true)?"
)
"""Words of up to 20 letters without digits, as names of metrics, columns and formats; devices, encodings, types."""


def shown_code(code: str) -> str:
    """A line of code, or a call, in which ``***`` stands for strings that may be secret.

    Shown are short strings without digits and signs, unless a name like ``password`` is in the same line; long numbers
    beside such a name are hidden as well.

    Args:
        code: Such as ``db.query("select", password="hunter2")  # mine``.

    Returns:
        Such as ``db.query("***", password="***")``.
    """
    is_secret = any(names.search(_NO_SECRET.sub("", code)) for names in (SECRET_NAME, _SECRET_CALL))

    def shown(found: re.Match[str]) -> str:
        quote, text = found["quote"], found["text"]
        if quote is None:
            return ""
        is_harmless = not text or (not is_secret and "://" not in text and _HARMLESS.fullmatch(text))
        return found[0] if is_harmless else f"{quote}{HIDDEN}{found['end']}"

    hidden = _STRING_OR_COMMENT.sub(shown, code)
    return _LONG_NUMBER.sub(HIDDEN, hidden) if is_secret else hidden
