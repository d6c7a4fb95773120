"""A model, data, callbacks and the rest of a small run, each of which sleeps where its naps are planned."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as lightning_pytorch
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from planted_loops.naps import Naps

FEATURES = 8


class Rows(Dataset[Tensor]):
    """Rows of numbers; each takes a nap to make."""

    def __init__(self, size: int, naps: Naps, place: str = "dataset") -> None:
        self.size = size
        self.naps = naps
        self.place = place

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        self.naps.take(self.place)
        return self.row(index)

    def row(self, index: int) -> Tensor:
        return torch.full((FEATURES,), float(index % 7))


class Stream(IterableDataset[Tensor]):
    """The same without a length. Lightning fetches the first row of an epoch before the epoch's first step."""

    def __init__(self, size: int, naps: Naps) -> None:
        self.size = size
        self.naps = naps

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(self.size):
            self.naps.take("dataset" if index else "first fetch")
            yield torch.full((FEATURES,), float(index % 7))


class SlowToIterate(DataLoader[Tensor]):
    """A loader that takes a nap before its iterator is there, as one does that starts workers."""

    naps: Naps

    def __iter__(self) -> Any:
        self.naps.take("iter")
        return super().__iter__()


class _NapInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, naps: Naps) -> Tensor:
        ctx.naps = naps
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.naps.take("backward")
        return grad, None


class SlowSGD(torch.optim.SGD):
    """Takes a nap in each update."""

    naps: Naps

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.naps.take("optimizer")
        return loss


class SlowLBFGS(torch.optim.LBFGS):
    """Takes a nap in each update; runs its closure several times in one."""

    naps: Naps

    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        self.naps.take("optimizer")
        return super().step(closure)  # type: ignore[no-any-return,no-untyped-call]


class SlowScheduler(torch.optim.lr_scheduler.ConstantLR):
    """Takes a nap in each change of the learning rate but the first, which its construction makes."""

    naps: Naps | None = None

    def step(self, *args: Any) -> None:
        if self.naps is not None:
            self.naps.take("scheduler")
        super().step(*args)


class SlowLogger(DummyLogger):
    """Takes a nap whenever the metrics of training steps are written."""

    naps: Naps

    @property
    def save_dir(self) -> None:
        return

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Take metrics; those of the profiler are no part of the run."""
        if "loss" in metrics:
            self.naps.take("logger")


class SlowDisk(TorchCheckpointIO):
    """Takes a nap in each checkpoint."""

    naps: Naps

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.naps.take("save")
        super().save_checkpoint(*args, **kwargs)


_PHASE_HOOKS = {"zero_grad": "optimizer_zero_grad", "clip": "configure_gradient_clipping"}
"""Hooks of the module that are a phase of their own."""


def _with_hooks(kind: type, naps: Naps, owner: str, name: str) -> type:
    """A subclass that overrides exactly the hooks in which naps are planned."""

    def make(hook: str, place: str) -> Callable[..., Any]:
        def take_a_nap(self: Any, *args: Any, **kwargs: Any) -> Any:
            naps.take(place)
            return getattr(super(subclass, self), hook)(*args, **kwargs)

        return take_a_nap

    hooks = {hook: make(hook, f"{owner}.{hook}") for hook in naps.planned(f"{owner}.")}
    if owner == "module":
        hooks |= {hook: make(hook, place) for place, hook in _PHASE_HOOKS.items() if place in naps}
    subclass = type(name, (kind,), {**hooks, "__module__": __name__})
    return subclass


class _Planted:
    """What a planted module does, whichever package its base class is from."""

    naps: Naps
    none_every = 0
    scheduler_interval = ""
    lr = 1e-6
    layer: nn.Module

    def loss(self, batch: Any) -> Tensor:
        """A loss with all naps of the forward and the backward pass."""
        while not isinstance(batch, Tensor):
            batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        self.naps.take("training_step")
        output = self.layer(batch)
        if "backward" in self.naps:
            output = _NapInBackward.apply(output, self.naps)  # type: ignore[no-untyped-call]
        return output.square().mean()  # type: ignore[no-any-return]

    def training_step(self: Any, batch: Any, batch_idx: int) -> Tensor | None:
        loss = self.loss(batch)
        self.log("loss", loss)
        skipped = self.none_every and batch_idx % self.none_every == 0
        return None if skipped else loss

    def validation_step(self: Any, batch: Tensor, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.naps.take("validation_step")
        self.log("val_loss", self.layer(batch).square().mean())

    def test_step(self: Any, batch: Tensor, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.naps.take("test_step")
        self.log("test_loss", self.layer(batch).square().mean())

    def predict_step(self: Any, batch: Tensor, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        self.naps.take("predict_step")
        return self.layer(batch)  # type: ignore[no-any-return]

    def configure_optimizers(self: Any) -> Any:
        optimizer = SlowSGD(self.parameters(), lr=self.lr)
        optimizer.naps = self.naps
        if not self.scheduler_interval:
            return optimizer
        scheduler = SlowScheduler(optimizer, factor=1.0)
        scheduler.naps = self.naps
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": self.scheduler_interval},
        }


class _TwoOptimizers(_Planted):
    """Manual optimization with two optimizers."""

    def training_step(self: Any, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            optimizer.step()
        self.log("loss", loss)

    def configure_optimizers(self: Any) -> Any:
        layer: Any = self.layer
        both = [SlowSGD([layer.weight], lr=1e-6), SlowSGD([layer.bias], lr=1e-6)]
        for optimizer in both:
            optimizer.naps = self.naps
        return both


class _Lbfgs(_Planted):
    """An optimizer that runs its closure several times."""

    def configure_optimizers(self: Any) -> Any:
        optimizer = SlowLBFGS(self.parameters(), lr=1e-9, max_iter=3, tolerance_grad=0, tolerance_change=0)
        optimizer.naps = self.naps
        return optimizer


class _LogsNothing(_Planted):
    """For torch.compile, which cannot trace ``self.log`` (seen with lightning 2.6.6 and torch 2.13)."""

    def training_step(self: Any, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)  # type: ignore[no-any-return]


class _FromIterator(_Planted):
    """Takes its batches from the iterator itself."""

    def training_step(self: Any, dataloader_iter: Any) -> Tensor:  # type: ignore[override]
        batch, _, _ = next(dataloader_iter)
        return self.loss(batch)  # type: ignore[no-any-return]


KINDS: dict[str, type[_Planted]] = {
    "automatic": _Planted,
    "logs nothing": _LogsNothing,
    "manual": _TwoOptimizers,
    "lbfgs": _Lbfgs,
    "dataloader_iter": _FromIterator,
}


def planted_module(naps: Naps, kind: str = "automatic", *, package: Any = lightning_pytorch, **settings: Any) -> Any:
    """A module with the hooks in which naps are planned, and no others.

    Args:
        naps: Where it sleeps.
        kind: One of :data:`KINDS`.
        package: ``lightning.pytorch`` or ``pytorch_lightning``.
        settings: Attributes such as ``none_every`` and ``scheduler_interval``.
    """
    base = type("Base", (KINDS[kind], package.LightningModule), {})
    module = _with_hooks(base, naps, "module", "PlantedModule")()
    module.naps = naps
    module.layer = nn.Linear(FEATURES, FEATURES)
    module.automatic_optimization = kind != "manual"
    for name, value in settings.items():
        setattr(module, name, value)
    return module


def planted_callback(naps: Naps, *, package: Any = lightning_pytorch) -> Any:
    """A callback with the hooks in which naps are planned."""
    return _with_hooks(package.Callback, naps, "callback", "PlantedCallback")()


class _Data(lightning_pytorch.LightningDataModule):
    naps: Naps
    size = 10
    batch_size = 1

    def train_dataloader(self) -> Any:
        return loader(self.naps, self.size, batch_size=self.batch_size)


def planted_data(naps: Naps, *, size: int) -> Any:
    """A DataModule with the hooks in which naps are planned."""
    data = _with_hooks(_Data, naps, "datamodule", "PlantedData")()
    data.naps = naps
    data.size = size
    return data


def collate(naps: Naps, rows: list[Tensor]) -> Tensor:
    """Put rows together, with a nap."""
    naps.take("collate")
    return torch.stack(rows)


def loader(
    naps: Naps, size: int, *, batch_size: int = 1, place: str = "dataset", **settings: Any
) -> DataLoader[Tensor]:
    """A loader over rows that take naps."""
    if "collate" in naps:
        settings["collate_fn"] = functools.partial(collate, naps)
    if "iter" in naps and place == "dataset":
        slow = SlowToIterate(Rows(size, naps, place), batch_size=batch_size, **settings)
        slow.naps = naps
        return slow
    return DataLoader(Rows(size, naps, place), batch_size=batch_size, **settings)
