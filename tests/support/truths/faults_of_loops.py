"""Faults around the model: callbacks, module hooks, logging, validation, checkpoints, epochs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from lightning_gpuprof import TraceConfig
from truths.costs import Cost
from truths.models import SHAPES, Classifier, Items
from truths.setup import Setup, fault


def _hooked(name: str, hook: str, happens: Callable[[], None]) -> Callback:
    """A callback of a class of its own with one hook."""

    def method(self: Callback, *args: Any, **kwargs: Any) -> None:
        happens()

    kind: type[Callback] = type(name, (Callback,), {hook: method})
    return kind()


@fault
def slow_callback(
    setup: Setup, ms: float, *, hook: str = "on_train_batch_end", every: int = 1, burns: bool = False
) -> None:
    """A callback whose hook takes its time."""
    cost = setup.costs["callback"] = Cost(ms=ms, burns=burns, every=every)
    setup.callbacks.append(_hooked("Watcher", hook, cost.take))


@fault
def module_hook(setup: Setup, ms: float, *, hook: str = "on_train_batch_end") -> None:
    """The same in the LightningModule."""
    cost = setup.costs["hook"] = Cost(ms=ms)

    class Hooked(type(setup.model)):  # type: ignore[misc]
        pass

    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        cost.take()

    setattr(Hooked, hook, method)
    setup.model.__class__ = Hooked


@fault
def windows_with_stacks(setup: Setup, *, every: int) -> None:
    """Windows of 20 steps with stacks, one every so many steps."""
    begins = list(range(every, setup.steps - every, every))
    setup.profiler = {"windows": begins, "trace": TraceConfig(active=20, with_stack=True, max_windows=len(begins))}


@fault
def many_values(setup: Setup, number: int, **how: Any) -> None:
    """So many calls of ``self.log`` in every step."""

    def log(model: Classifier, loss: Tensor) -> None:
        for value in range(number):
            model.log(f"value_{value}", loss, **how)

    setup.model.logs.append(log)


class SlowLogger(CSVLogger):
    """A logger that waits for its server."""

    cost: Cost

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Wait, and forget the values."""
        if "epoch" in metrics and len(metrics) > 1:
            self.cost.take()


@fault
def slow_logger(setup: Setup, ms: float, *, every: int = 1) -> None:
    """A logger that takes its time, every so many steps."""
    logger = SlowLogger(setup.folder)
    logger.cost = setup.costs["logger"] = Cost(ms=ms)
    setup.model.logs.append(lambda model, loss: model.log("loss", loss))
    setup.trainer |= {"logger": logger, "log_every_n_steps": every}


@fault
def csv_logger(setup: Setup, *, every: int = 50) -> None:
    """One value and a CSVLogger; no fault."""
    setup.model.logs.append(lambda model, loss: model.log("loss", loss))
    setup.trainer |= {"logger": CSVLogger(setup.folder), "log_every_n_steps": every}


@fault
def validation(setup: Setup, batches: int, *, ms: float = 0.0, every: int | None = None, epochs: int = 1) -> None:
    """Validation of so many batches, each of which may take its time.

    Args:
        batches: Of one validation run.
        ms: What each takes.
        every: Steps between two runs; None: after each epoch.
        epochs: Into which the steps are divided.
    """
    setup.validation = batches
    cost = setup.costs["validation"] = Cost(ms=ms)
    setup.model.in_validation.append(cost.take)
    setup.items.size = setup.steps // epochs * setup.batch_size
    if every is not None:
        setup.trainer["val_check_interval"] = every


@fault
def slow_validation_items(setup: Setup, batches: int, *, ms: float, epochs: int) -> None:
    """Validation of so many batches after each epoch, whose samples take their time."""
    validation(batches, epochs=epochs)(setup)
    setup.val_items = Items(SHAPES[setup.kind], batches * setup.batch_size)
    cost = setup.costs["validation items"] = Cost(ms=ms)
    setup.val_items.before.append(lambda index: cost.take())


@fault
def slow_scheduler(setup: Setup, ms: float) -> None:
    """The learning rate is scheduled in each step, which takes its time."""
    cost = setup.costs["scheduler"] = Cost(ms=ms)

    def rate(step: int) -> float:
        cost.take()
        return 1.0

    def configure() -> Any:
        optimizer = setup.model.optimizer(setup.model.parameters(), lr=1e-4)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    setup.model.configure_optimizers = configure  # type: ignore[method-assign]


@fault
def sanity_check(setup: Setup, batches: int, *, ms: float) -> None:
    """A sanity check of so many slow batches before the training, and hardly any validation."""
    setup.validation = batches
    cost = setup.costs["validation"] = Cost(ms=ms)
    setup.model.in_validation.append(lambda: cost.take() if setup.model.trainer.sanity_checking else None)
    setup.trainer |= {"num_sanity_val_steps": batches}


@fault
def checkpoints(setup: Setup, every: int, *, ms: float = 0.0, megabytes: float = 0.0) -> None:
    """Checkpoints every so many steps that take their time or are large."""
    cost = setup.costs["checkpoint"] = Cost(ms=ms)
    if megabytes:
        setup.model.register_buffer("ballast", torch.rand(int(megabytes * 1024 * 256)))
    setup.callbacks += [
        _hooked("Archivist", "on_save_checkpoint", cost.take),
        ModelCheckpoint(every_n_train_steps=every, save_top_k=1, dirpath=Path(setup.folder) / "checkpoints"),
    ]
    setup.trainer["enable_checkpointing"] = True


@fault
def slow_epoch_end(setup: Setup, ms: float, *, epochs: int) -> None:
    """A callback that takes its time after each epoch."""
    cost = setup.costs["epoch end"] = Cost(ms=ms)
    setup.items.size = setup.steps // epochs * setup.batch_size
    setup.callbacks.append(_hooked("Summary", "on_train_epoch_end", cost.take))


@fault
def as_lightning_comes(setup: Setup) -> None:
    """Progress bar, summary, checkpoints, logger and sanity check as Lightning's defaults have them; no fault."""
    csv_logger()(setup)
    setup.trainer |= {
        "enable_progress_bar": True,
        "enable_model_summary": True,
        "enable_checkpointing": True,
        "num_sanity_val_steps": 2,
    }


@fault
def trainer(setup: Setup, **settings: Any) -> None:
    """Arguments of the Trainer."""
    setup.trainer |= settings
