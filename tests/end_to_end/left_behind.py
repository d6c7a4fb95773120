"""What of ours is still there after a run: in the trainer, in its loops, in its model, among the open files."""

import gc
from pathlib import Path
from typing import Any


def what_is_left(trainer: Any, model: Any) -> list[str]:
    """Attributes of a trainer, its loops or its model that hold something of ours; to be empty after each stage."""
    steps = trainer.fit_loop.epoch_loop
    owners = [trainer, model, trainer.fit_loop, steps, steps._results, steps.val_loop, trainer.validate_loop]
    return [
        f"{type(owner).__name__}.{name}"
        for owner in owners
        for name, value in vars(owner).items()
        if type(value).__module__.startswith("lightning_gpuprof")
    ]


def files_of_ours() -> set[str]:
    """Open files of a run's folder, and those of the kernel that only we read."""
    if _open_files():
        gc.collect()  # what others hold in cycles, as loaders with workers are
    return _open_files()


def _open_files() -> set[str]:
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        try:
            file = str(number.readlink())
        except OSError:  # the listing itself
            continue
        if "gpuprof" in file or "schedstat" in file or "/pressure/" in file:
            found.add(file)
    return found
