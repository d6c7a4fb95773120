"""What of the user's code changed between two runs."""

import difflib
from collections.abc import Iterator, Mapping

from lightning_gpuprof.model.comparison import CodeChange

MAX_LINES = 200
"""Of the diff of a file."""


def code_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[CodeChange, ...] | None:
    """The files that differ.

    A file that is known of one of them only may be new, or did not fit.

    Args:
        before: Source files of the earlier run by path.
        after: Source files of the later run.

    Returns:
        The largest change first; empty if none differs, None if no file of both runs is known.
    """
    if not before.keys() & after.keys():
        return None
    return tuple(sorted(_changes(before, after), key=lambda one: (-one.added - one.removed, one.path)))


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[CodeChange]:
    for path in before.keys() & after.keys():
        earlier, later = (side[path].splitlines() for side in (before, after))
        lines = list(difflib.unified_diff(earlier, later, n=1, lineterm=""))[2:]  # without the names of the files
        if not lines:
            continue
        yield CodeChange(
            path=path,
            added=sum(line.startswith("+") for line in lines),
            removed=sum(line.startswith("-") for line in lines),
            diff=tuple(" ..." if line.startswith("@@") else line for line in lines[1:])[:MAX_LINES],
            cut=len(lines) > MAX_LINES,
        )
