"""Memory that reading and analyses have freed goes back to the system before the next needs some of its own."""

from __future__ import annotations

import contextlib


def trim_heap() -> None:
    """Let the C library return what is free inside its heap, which it otherwise keeps for later.

    While a file is read, millions of small objects come and go between the columns that stay; of their room, half as
    much as the whole trace needs was still held afterwards. Only glibc has a call for that; elsewhere nothing is done.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
