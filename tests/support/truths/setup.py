"""What a fit is made of before it runs: faults are planted in it, cures are applied to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import torch
from lightning.pytorch import Callback, seed_everything
from quiet_trainer import trainer_in
from torch.utils.data import DataLoader

from truths.costs import Cost
from truths.models import BATCH_SIZES, NETWORKS, SHAPES, Classifier, Items, Kind


@dataclass(kw_only=True)
class Setup:
    """A fit that is not running yet.

    Attributes:
        kind: Of the model.
        model: The module.
        items: Training samples.
        batch_size: Samples per step.
        loader: Arguments of the training DataLoader.
        validation: Batches of one validation run.
        val_items: Validation samples.
        trainer: Arguments of the Trainer.
        callbacks: The user's.
        profiler: Arguments of the profiler.
        steps: Training steps.
        folder: For files that the fit writes.
        beside: What runs next to the training.
        costs: Planted costs by a name of their own; a cure may change them.
        make_loader: Makes the training loader, where that is no ordinary DataLoader.
    """

    kind: Kind
    model: Classifier
    items: Items
    batch_size: int
    steps: int
    folder: str
    loader: dict[str, Any] = field(default_factory=dict)
    validation: int = 0
    val_items: Items | None = None
    trainer: dict[str, Any] = field(default_factory=dict)
    callbacks: list[Callback] = field(default_factory=list)
    profiler: dict[str, Any] = field(default_factory=dict)
    beside: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    make_loader: Callable[[Setup], Any] | None = None

    def fit(self, more: list[Callback]) -> None:
        """Train on the CPU, with further callbacks."""
        settings = {"devices": 1, "max_steps": self.steps, "max_epochs": -1, **self.trainer}
        trainer = trainer_in(Path(self.folder), [*self.callbacks, *more], **settings)
        with ExitStack() as stack:
            for companion in self.beside:
                stack.enter_context(companion())
            trainer.fit(self.model, self.train_loader(), self.val_loader())

    def train_loader(self) -> Any:
        """The training loader."""
        if self.make_loader is not None:
            return self.make_loader(self)
        return DataLoader(self.items, batch_size=self.batch_size, **self.loader)

    def val_loader(self) -> Any:
        """The validation loader, or None."""
        if not self.validation:
            return None
        items = self.val_items or Items(SHAPES[self.kind], self.validation * self.batch_size)
        return DataLoader(items, batch_size=self.batch_size)


Fault = Callable[[Setup], None]
"""Changes a fit that is about to be run."""
Arguments = ParamSpec("Arguments")


def fault(plant: Callable[Concatenate[Setup, Arguments], None]) -> Callable[Arguments, Fault]:
    """Called with all arguments but the first, the function gives the fault that is planted with them."""

    @functools.wraps(plant)
    def planned(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Fault:
        return lambda setup: plant(setup, *args, **kwargs)

    return planned


def set_up(kind: Kind, *, steps: int, folder: str, seed: int, threads: int = 1) -> Setup:
    """A healthy fit.

    Args:
        kind: Of the model and its data.
        steps: Training steps; all in one epoch.
        folder: For files that the fit writes.
        seed: Of weights, samples and their order.
        threads: On which torch computes.
    """
    torch.set_num_threads(threads)
    seed_everything(seed, verbose=False)
    batch_size = BATCH_SIZES[kind]
    return Setup(
        kind=kind,
        model=Classifier(NETWORKS[kind]()),
        items=Items(SHAPES[kind], steps * batch_size),
        batch_size=batch_size,
        steps=steps,
        folder=folder,
    )
