"""A place in the code as sentences name it: the function first, then file and line."""

import re

_PLACE = re.compile(r"(?P<file>.+)(?::(?P<sampled>\d+) |\((?P<traced>\d+)\): )(?P<function>.+)", re.DOTALL)
"""``costs.py:38 take``, as samples name it, and ``costs.py(38): take``, as traces do."""


def in_words(place: str) -> str:
    """``take (costs.py:38)``; of code outside of functions ``costs.py:38``, and what is no line as it is.

    Args:
        place: A line as samples or traces name it, a hook, a phase or an operator.
    """
    found = _PLACE.fullmatch(place)
    if found is None:
        return place
    line = f"{found['file']}:{found['sampled'] or found['traced']}"
    return line if found["function"] == "<module>" else f"{found['function']} ({line})"
