"""A trace is there as a whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path


def write_trace(path: Path, write: Callable[[], None], written: Future[Path]) -> None:
    """Have a trace written; what is left of one that cannot be is removed. Raises nothing.

    Args:
        path: Where it appears; torch writes to this name with ``.tmp`` behind it first.
        write: Writes it.
        written: Gets the path, or an ``OSError``.
    """
    try:
        write()
        if not path.is_file() or path.stat().st_size == 0:
            raise OSError(f"torch wrote no trace to {path.name}: is the disk full?")
        written.set_result(path)
    except BaseException as error:
        for rest in (path, path.with_name(f"{path.name}.tmp")):
            with contextlib.suppress(OSError):
                rest.unlink(missing_ok=True)
        written.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
