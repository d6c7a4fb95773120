"""A place in the code as a trace names it, and what its line number means."""

from typing import Literal

import msgspec

LineMeaning = Literal["call", "definition", "when the recording began"]
"""Which line of the function the number in a frame's name is: the one that called, as in the stacks that torch wrote
until 2022; the function's ``def`` (or first decorator), as in the Python calls it records since; or, for a function
that was running when the recording began, the one it had come to then, which says nothing of what it did later."""


class SourceLine(msgspec.Struct, kw_only=True, frozen=True):
    """A frame of user code."""

    frame: str
    """``train.py(82): train_step``, as the trace names it: file, line and function."""
    means: LineMeaning
