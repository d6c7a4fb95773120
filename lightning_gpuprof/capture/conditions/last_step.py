"""What is known after the last step: the size of what was saved last, and what was logged in every step."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

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


def synced_values(trainer: Any) -> dict[str, Value]:
    """``trainer.synced_values``: what ranks exchange in every step to log it; empty where the strategy has no ranks.

    Args:
        trainer: After its last step. Where Lightning keeps the logged values is private: another version may know none.
    """
    logged: Any = getattr(trainer.fit_loop.epoch_loop, "_results", {})
    found = [one.meta.name for one in logged.values() if one.meta.on_step and one.meta.sync.should and one.is_tensor]
    return {"trainer.synced_values": ", ".join(found)} if found else {}
