"""The size of what was saved last, asked of the file system once, after the last step."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from lightning_gpuprof.model.journal import Value

_PATHS = ("best_model_path", "last_model_path")
"""Of Lightning's ModelCheckpoint."""


def checkpoint_bytes(callbacks: Iterable[object]) -> dict[str, Value]:
    """``checkpoint.bytes``: what a step with a checkpoint writes; empty where no file of it is on this machine.

    Args:
        callbacks: Those that save, each of them one file and perhaps another as the last. Folders are not looked into.
    """
    paths = {str(getattr(one, name, "") or "") for one in callbacks for name in _PATHS}
    found = 0
    for path in paths - {""}:
        with suppress(OSError, ValueError):
            status = os.lstat(path)  # a link was written for nothing
            found += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return {"checkpoint.bytes": found} if found else {}
