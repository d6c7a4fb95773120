"""Collects all facts of a run once its loaders are set up; each fact may fail by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.capture.conditions import (
    compile_facts,
    loader_facts,
    machine_facts,
    model_facts,
    software_facts,
    torch_facts,
    trainer_facts,
)
from lightning_gpuprof.capture.conditions.reading import Reader, Subject, Surroundings, read
from lightning_gpuprof.model.journal import Value

if TYPE_CHECKING:
    import lightning.pytorch as pl

READERS: dict[str, Reader] = {
    **software_facts.FACTS,
    **machine_facts.FACTS,
    **trainer_facts.FACTS,
    **model_facts.FACTS,
    **compile_facts.FACTS,
    **loader_facts.FACTS,
    **torch_facts.FACTS,
}
"""How each fact is read, but those of the first batch (:mod:`lightning_gpuprof.capture.conditions.first_batch`), and of
each of several loaders (:func:`loader_facts.readers_of_each`)."""


def collect(
    trainer: pl.Trainer, module: pl.LightningModule, loaders: object, around: Surroundings | None = None
) -> dict[str, Value]:
    """Everything known when training starts; CUDA is not started for any of it.

    Args:
        trainer: After its dataloaders were set up.
        module: The model.
        loaders: One iterable, or a collection of them, that the steps are fed from.
        around: The machine; None: this one.

    Returns:
        Dotted name (``loader.num_workers``) → value; a fact that cannot be read is absent.
    """
    readers = {**READERS, **loader_facts.readers_of_each(loaders)}
    return read(readers, Subject(trainer, module, loaders, around or _this_machine()))


def _this_machine() -> Surroundings:
    try:
        folder = Path.cwd()
    except OSError:  # it was deleted
        folder = None
    return Surroundings(environ=os.environ, folder=folder)
