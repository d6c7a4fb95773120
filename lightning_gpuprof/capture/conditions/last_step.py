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


def logged_values(trainer: Any) -> dict[str, Value]:
    """How many values ``training_step`` logs, and how many of them ranks exchange in every step.

    Args:
        trainer: After the last step of a fit. Where Lightning keeps logged values is private: another version may know
            none.

    Returns:
        ``trainer.logged_values`` and ``trainer.synced_values``; empty if nothing is logged.
    """
    logged: Any = getattr(trainer.fit_loop.epoch_loop, "_results", {})
    of_step = [one for one in logged.values() if one.meta.fx == "training_step"]
    synced = [one for one in of_step if one.is_tensor and one.meta.on_step and _is_synced(one.meta.sync)]
    return {"trainer.logged_values": len(of_step), "trainer.synced_values": len(synced)} if of_step else {}


def _is_synced(sync: Any) -> bool:
    """Whether ranks exchange it: with ``rank_zero_only=True`` they do not."""
    return bool(sync.should and not sync.rank_zero_only)
