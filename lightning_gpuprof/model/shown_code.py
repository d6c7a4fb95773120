"""The user's code as a report may hold it: the text in it that may be secret is hidden, and so are comments."""

import re
import tokenize
from collections.abc import Iterator, Sequence

from lightning_gpuprof.errors import HIDDEN
from lightning_gpuprof.model.command_line import SECRET_NAME

_STRING_OR_COMMENT = re.compile(
    r"""(?P<quote>"{3}|'{3}|["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P<end>(?P=quote)?)|\s*#.*""", re.DOTALL
)
"""A string may end with the line."""
_SECRET_CALL = re.compile(r"login|connect|bearer|dsn|session", re.IGNORECASE)
"""Calls that take a secret without naming it."""
_STRING = re.compile(r"""(?P<prefix>[A-Za-z]*)(?P<quote>"{3}|'{3}|["'])(?P<text>.*)(?P=quote)""", re.DOTALL)
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
    is_secret = _names_a_secret(code)

    def shown(found: re.Match[str]) -> str:
        quote, text = found["quote"], found["text"]
        if quote is None:
            return ""
        return found[0] if _is_harmless(text, is_secret) else f"{quote}{HIDDEN}{found['end']}"

    hidden = _STRING_OR_COMMENT.sub(shown, code)
    return _LONG_NUMBER.sub(HIDDEN, hidden) if is_secret else hidden


def shown_lines(text: str) -> Iterator[str]:
    """The statements of a source file as :func:`shown_code` shows them, without comments, docstrings and empty lines.

    A string of several lines is ``***``. What is hidden beside a name like ``password`` is so in
    all lines of the statement.

    Args:
        text: A file of Python.

    Yields:
        Each statement with its indentation, of one line or several.

    Raises:
        SyntaxError: It is none, or of a later version of Python.
        tokenize.TokenError: Likewise.
    """
    lines = text.splitlines(keepends=True)
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        if token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.NL):
            statement.append(token)
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            yield from _shown_statement(statement, lines)
            statement = []


def _shown_statement(tokens: Sequence[tokenize.TokenInfo], lines: Sequence[str]) -> Iterator[str]:
    begin = next((token.start[0] for token in tokens if token.type != tokenize.COMMENT), 0)
    end = tokens[-1].end[0] if tokens[-1].type == tokenize.NEWLINE else 0
    kinds = {token.type for token in tokens} - {tokenize.NEWLINE, tokenize.COMMENT}
    if not 0 < begin <= end or kinds == {tokenize.STRING}:
        return
    code, starts = "".join(lines[begin - 1 : end]), [0]
    for line in lines[begin - 1 : end]:
        starts.append(starts[-1] + len(line))
    is_secret = _names_a_secret(code)
    shown, at = "", 0
    for first, last, kind in _pieces(tokens):
        if first[0] < begin:
            continue
        start, stop = (starts[row - begin] + column for row, column in (first, last))
        shown += f"{code[at:start]}{_shown_piece(code[start:stop], kind, is_secret)}"
        at = stop
    yield from (line.rstrip() for line in f"{shown}{code[at:]}".splitlines() if line.strip())


_Place = tuple[int, int]


def _pieces(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[_Place, _Place, int]]:
    """Comments, numbers and strings; since Python 3.12 f-strings are tokens of their own, one inside of another."""
    opened: list[_Place] = []
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            opened.append(token.start)
        elif name.endswith("STRING_END"):
            start = opened.pop()
            if not opened:
                yield start, token.end, tokenize.STRING
        elif not opened and token.type in (tokenize.STRING, tokenize.COMMENT, tokenize.NUMBER):
            yield token.start, token.end, token.type


def _shown_piece(piece: str, kind: int, is_secret: bool) -> str:
    if kind == tokenize.COMMENT:
        return ""
    if kind == tokenize.NUMBER:
        return _LONG_NUMBER.sub(HIDDEN, piece) if is_secret else piece
    found = _STRING.fullmatch(piece)
    if found is None:
        return HIDDEN
    if "\n" not in piece and _is_harmless(found["text"], is_secret):
        return piece
    return f"{found['prefix']}{found['quote']}{HIDDEN}{found['quote']}"


def _names_a_secret(code: str) -> bool:
    return any(names.search(_NO_SECRET.sub("", code)) for names in (SECRET_NAME, _SECRET_CALL))


def _is_harmless(text: str, is_secret: bool) -> bool:
    return not text or bool(not is_secret and "://" not in text and _HARMLESS.fullmatch(text))
