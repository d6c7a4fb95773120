"""A trainer on the CPU with nothing beside the training: no progress bar, checkpoint, logger or sanity check."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

QUIET: Mapping[str, Any] = {
    "max_epochs": 1,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
    "num_sanity_val_steps": 0,
}


def trainer_in(folder: Path | None, callbacks: Sequence[pl.Callback] = (), **options: Any) -> pl.Trainer:
    """One epoch by default; options are those of the Trainer, and count first."""
    return pl.Trainer(**{**QUIET, "default_root_dir": folder, "callbacks": list(callbacks), **options})
