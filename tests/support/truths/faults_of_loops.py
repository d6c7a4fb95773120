"""Faults around the model: callbacks, module hooks, logging, validation, checkpoints, epochs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from truths.costs import Cost
from truths.models import SHAPES, Classifier, Items
from truths.setup import Fault, Setup


def _hooked(name: str, hook: str, happens: Callable[[], None]) -> Callback:
    """A callback of a class of its own with one hook."""

    def method(self: Callback, *args: Any, **kwargs: Any) -> None:
        happens()

    kind: type[Callback] = type(name, (Callback,), {hook: method})
    return kind()


def slow_callback(ms: float, *, hook: str = "on_train_batch_end", every: int = 1, burns: bool = False) -> Fault:
    """A callback whose hook takes its time."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["callback"] = Cost(ms=ms, burns=burns, every=every)
        setup.callbacks.append(_hooked("Watcher", hook, cost.take))

    return plant


def module_hook(ms: float, *, hook: str = "on_train_batch_end") -> Fault:
    """The same in the LightningModule."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["hook"] = Cost(ms=ms)

        class Hooked(type(setup.model)):  # type: ignore[misc]
            pass

        def method(self: Any, *args: Any, **kwargs: Any) -> None:
            cost.take()

        setattr(Hooked, hook, method)
        setup.model.__class__ = Hooked

    return plant


def many_values(number: int) -> Fault:
    """So many calls of ``self.log`` in every step."""

    def plant(setup: Setup) -> None:
        def log(model: Classifier, loss: Tensor) -> None:
            for value in range(number):
                model.log(f"value_{value}", loss)

        setup.model.logs.append(log)

    return plant


class SlowLogger(CSVLogger):
    """A logger that waits for its server."""

    cost: Cost

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Wait, and forget the values."""
        if "epoch" in metrics and len(metrics) > 1:
            self.cost.take()


def slow_logger(ms: float, *, every: int = 1) -> Fault:
    """A logger that takes its time, every so many steps."""

    def plant(setup: Setup) -> None:
        logger = SlowLogger(setup.folder)
        logger.cost = setup.costs["logger"] = Cost(ms=ms)
        setup.model.logs.append(lambda model, loss: model.log("loss", loss))
        setup.trainer |= {"logger": logger, "log_every_n_steps": every}

    return plant


def csv_logger(*, every: int = 50) -> Fault:
    """One value and a CSVLogger; no fault."""

    def plant(setup: Setup) -> None:
        setup.model.logs.append(lambda model, loss: model.log("loss", loss))
        setup.trainer |= {"logger": CSVLogger(setup.folder), "log_every_n_steps": every}

    return plant


def validation(batches: int, *, ms: float = 0.0, every: int | None = None, epochs: int = 1) -> Fault:
    """Validation of so many batches, each of which may take its time.

    Args:
        batches: Of one validation run.
        ms: What each takes.
        every: Steps between two runs; None: after each epoch.
        epochs: Into which the steps are divided.
    """

    def plant(setup: Setup) -> None:
        setup.validation = batches
        cost = setup.costs["validation"] = Cost(ms=ms)
        setup.model.in_validation.append(cost.take)
        setup.items.size = setup.steps // epochs * setup.batch_size
        if every is not None:
            setup.trainer["val_check_interval"] = every

    return plant


def slow_validation_items(batches: int, *, ms: float, epochs: int) -> Fault:
    """Validation of so many batches after each epoch, whose samples take their time."""

    def plant(setup: Setup) -> None:
        validation(batches, epochs=epochs)(setup)
        setup.val_items = Items(SHAPES[setup.kind], batches * setup.batch_size)
        cost = setup.costs["validation items"] = Cost(ms=ms)
        setup.val_items.before.append(lambda index: cost.take())

    return plant


def slow_scheduler(ms: float) -> Fault:
    """The learning rate is scheduled in each step, which takes its time."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["scheduler"] = Cost(ms=ms)

        def rate(step: int) -> float:
            cost.take()
            return 1.0

        def configure() -> Any:
            optimizer = setup.model.optimizer(setup.model.parameters(), lr=1e-4)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

        setup.model.configure_optimizers = configure  # type: ignore[method-assign]

    return plant


def sanity_check(batches: int, *, ms: float) -> Fault:
    """A sanity check of so many slow batches before the training, and hardly any validation."""

    def plant(setup: Setup) -> None:
        setup.validation = batches
        cost = setup.costs["validation"] = Cost(ms=ms)
        setup.model.in_validation.append(lambda: cost.take() if setup.model.trainer.sanity_checking else None)
        setup.trainer |= {"num_sanity_val_steps": batches}

    return plant


def checkpoints(every: int, *, ms: float = 0.0, megabytes: float = 0.0) -> Fault:
    """Checkpoints every so many steps that take their time or are large."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["checkpoint"] = Cost(ms=ms)
        if megabytes:
            setup.model.register_buffer("ballast", torch.rand(int(megabytes * 1024 * 256)))
        setup.callbacks += [
            _hooked("Archivist", "on_save_checkpoint", cost.take),
            ModelCheckpoint(every_n_train_steps=every, save_top_k=1, dirpath=Path(setup.folder) / "checkpoints"),
        ]
        setup.trainer["enable_checkpointing"] = True

    return plant


def slow_epoch_end(ms: float, *, epochs: int) -> Fault:
    """A callback that takes its time after each epoch."""

    def plant(setup: Setup) -> None:
        cost = setup.costs["epoch end"] = Cost(ms=ms)
        setup.items.size = setup.steps // epochs * setup.batch_size
        setup.callbacks.append(_hooked("Summary", "on_train_epoch_end", cost.take))

    return plant


def as_lightning_comes() -> Fault:
    """Progress bar, summary, checkpoints, logger and sanity check as Lightning's defaults have them; no fault."""

    def plant(setup: Setup) -> None:
        csv_logger()(setup)
        setup.trainer |= {
            "enable_progress_bar": True,
            "enable_model_summary": True,
            "enable_checkpointing": True,
            "num_sanity_val_steps": 2,
        }

    return plant


def trainer(**settings: Any) -> Fault:
    """Arguments of the Trainer."""

    def plant(setup: Setup) -> None:
        setup.trainer |= settings

    return plant
