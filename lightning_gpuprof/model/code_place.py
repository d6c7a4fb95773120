"""A place in the code as sentences name it: the function first, then file and line."""

import re

import msgspec

_PLACE = re.compile(r"(?P<file>.+)(?::(?P<sampled>\d+) |\((?P<traced>\d+)\): )(?P<function>.+)", re.DOTALL)
"""``costs.py:38 take``, as samples name it, and ``costs.py(38): take``, as traces do."""


class CodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place in its parts."""

    file: str
    line: int
    function: str
    is_sampled: bool
    """Whether the line is the one that ran; in a trace it may be that of the function's ``def``."""

    def is_in(self, other: "CodePlace") -> bool:
        """Whether both are in one function; if ``other`` is sampled, in one line. A trace may name less of the path."""
        files = sorted((self.file, other.file), key=len)
        same_file = f"/{files[1]}".endswith(f"/{files[0]}")
        return same_file and self.function == other.function and (not other.is_sampled or self.line == other.line)


def parts(place: str) -> CodePlace | None:
    """A place as of :func:`in_words` in its parts; None: it is no line."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    line = int(found["sampled"] or found["traced"])
    return CodePlace(file=found["file"], line=line, function=found["function"], is_sampled=found["sampled"] is not None)


def in_words(place: str) -> str:
    """``take() (costs.py:38)``; of code outside of functions ``costs.py:38``, and what is no line as it is.

    No line is a hook, a phase or an operator. The brackets say that a name is code, whatever word the user has chosen.
    """
    found = _PLACE.fullmatch(place)
    if found is None:
        return place
    line, function = f"{found['file']}:{found['sampled'] or found['traced']}", found["function"]
    if function == "<module>":
        return line
    return f"{function if function.endswith('>') else f'{function}()'} ({line})"
